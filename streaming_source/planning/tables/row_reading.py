"""The interfaces of the table reader and of the keys of tables, as the planner of a stream uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.rows.decode.open_rows.frontier import DeliveredKeys
    from replica.schema.known_tables import TableName
    from replica.snapshot.chunks.choice import ReadLimit
    from replica.snapshot.frontier import Frontier
    from replica.snapshot.progress import SnapshotProgress
    from replica.snapshot.snapshot import Advance
    from replica.snapshot.spool.batches import SpoolPart


class ReadKeys(Protocol):
    """The keys of the tables that are read: a `KeyColumns`. One thread calls it."""

    def delivered(self, frontier: Frontier) -> DeliveredKeys:
        """Return the frontier with keys that rows are compared with."""
        ...

    def changed(self, frontier: Frontier, names: Collection[TableName]) -> Collection[TableName]:
        """Return which of these tables have another key than the one by which a part of them was delivered."""
        ...


class RowReading(Protocol):
    """The reader of the tables: a `TableSnapshot`. One thread calls it."""

    held_back: tuple[TableName, ...]
    """Tables without rows as of the last position asked for, and with rows as of a later one."""

    @property
    def rekeyed(self) -> tuple[TableName, ...]:
        """Tables whose keys changed, so that they are not read on before a re-snapshot is requested."""
        ...

    def start(self, frontier: Frontier) -> None:
        """Begin to read after the frontier."""
        ...

    def ready(self) -> bool:
        """Return True if rows wait to be delivered."""
        ...

    def more_comes(self, limit: ReadLimit) -> bool:
        """Return True if a batch of this limit would get more rows by waiting."""
        ...

    def advance(self, frontier: Frontier, v: RelayHead, limit: ReadLimit) -> Advance | None:
        """Reconcile waiting rows with V and make them durable; None if no rows can be delivered now."""
        ...

    def parts(
        self, before: Frontier, after: Frontier, v: RelayHead, *, without: Collection[TableName]
    ) -> Sequence[SpoolPart]:
        """Return the rows between two frontiers as of V. Lost rows are read again. `without`: tables that have no rows
        here.
        """
        ...

    def keep_from(self) -> RelayLocation | None:
        """Return the first place of the relay log that is still needed."""
        ...

    def release(self, frontier: Frontier) -> None:
        """Release the rows before the frontier."""
        ...

    def progress(self) -> SnapshotProgress:
        """Return the progress of the read."""
        ...

    def close(self) -> None:
        """End all reading."""
        ...
