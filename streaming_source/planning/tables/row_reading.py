"""The reader of tables and what knows their keys, as the planner of a stream knows them.

In: how far tables are read, the place that a batch ends at. Out: rows of them as of that place, on disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.rows.decode.frontier import DeliveredKeys
    from replica.schema.known_tables import TableName
    from replica.snapshot.chunks.choice import ReadLimit
    from replica.snapshot.frontier import Frontier
    from replica.snapshot.progress import SnapshotProgress
    from replica.snapshot.snapshot import Advance
    from replica.snapshot.spool.batches import SpoolPart


class ReadKeys(Protocol):
    """The keys of the tables that are read: a `KeyColumns`. Called by one thread."""

    def delivered(self, frontier: Frontier) -> DeliveredKeys:
        """Return the frontier with keys that rows are compared with."""
        ...

    def changed(self, frontier: Frontier, names: Collection[TableName]) -> Collection[TableName]:
        """Return which of these tables have another key than the one that a part of them was delivered by."""
        ...


class RowReading(Protocol):
    """The reader of the tables: a `TableSnapshot`. Called by one thread."""

    held_back: tuple[TableName, ...]
    """Tables of which nothing can be had as of the position that was asked for last, and can behind it."""

    @property
    def rekeyed(self) -> tuple[TableName, ...]:
        """Tables of which no more is read before they are asked for from their first row on: their keys changed."""
        ...

    def start(self, frontier: Frontier) -> None:
        """Begin to read behind the frontier."""
        ...

    def ready(self) -> bool:
        """Tell whether rows wait to be delivered."""
        ...

    def more_comes(self, limit: ReadLimit) -> bool:
        """Tell whether a batch of this limit would take more rows if it waited."""
        ...

    def advance(self, frontier: Frontier, v: RelayHead, limit: ReadLimit) -> Advance | None:
        """Move rows that wait to V and make them durable; None: nothing can be delivered now."""
        ...

    def parts(
        self, before: Frontier, after: Frontier, v: RelayHead, *, without: Collection[TableName]
    ) -> Sequence[SpoolPart]:
        """Return the rows between two frontiers as of V, read again where they are lost; `without`: tables that they
        have no rows of.
        """
        ...

    def keep_from(self) -> RelayLocation | None:
        """Return from where on the relay log is needed."""
        ...

    def release(self, frontier: Frontier) -> None:
        """Let go what lies before the frontier."""
        ...

    def progress(self) -> SnapshotProgress:
        """Tell how far it is."""
        ...

    def close(self) -> None:
        """End all reading."""
        ...
