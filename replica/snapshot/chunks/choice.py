"""Choose the chunks that a batch takes, in order, within the limits of the relay log and the batch.

`choose_chunks` returns runs of chunks, each with the relay log location that all its reads precede. It also returns the
tables that did not exist at the batch position. It does not check whether a run can be reconciled with the batch
position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from replica.protocol.gtid import covers
from replica.snapshot.log_view import place_behind
from replica.snapshot.reconcile.reconciler import ChunkRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.schema.known_tables import TableName
    from replica.snapshot.chunks.table_reading import TableReading
    from replica.snapshot.log_view import LogView
    from replica.snapshot.rows.chunk import ReadTable, TableChunk

BATCH_BYTES: Final = 256 << 20
"""Default limit of the waiting chunks that one batch takes, in bytes."""


class ReadLimit(NamedTuple):
    """Maximum rows and bytes of snapshot chunks in one batch. A batch takes at least one chunk, whatever the limit."""

    rows: int | None = None
    size: int | None = None

    @property
    def most_bytes(self) -> int:
        """Limit in bytes."""
        return BATCH_BYTES if self.size is None else self.size


ALL: Final = ReadLimit()


def choose_chunks(
    view: LogView, tables: Iterable[TableReading], v: RelayHead, limit: ReadLimit
) -> tuple[list[tuple[ChunkRun, TableReading]], list[TableReading]]:
    """Return the chunks that a batch up to `v` may take of these tables, and the tables that do not exist at `v`."""
    rows, size = limit.rows, limit.most_bytes
    chosen: list[tuple[ChunkRun, TableReading]] = []
    gone = []
    definitions: dict[TableName, ReadTable] = {}
    stopped: set[TableName] = set()  # later lanes of these tables have to wait
    for table in tables:
        if table.name in stopped:
            continue
        if table.gone is not None:
            if covers(v.position, table.gone):
                gone.append(table)
            continue
        chunks: list[TableChunk] = []
        for chunk in list(table.chunks):
            fits = (rows is None or chunk.rows <= rows) and chunk.size <= size
            first = not (chunks or chosen)
            if not (fits or first or table.whole) or (chunks and chunk.table != chunks[0].table):
                break
            if chunks and not (table.whole or _is_there(view, chunk, v)):
                break  # a full relay log reaches the chunk's position after this batch frees a part of the log
            chunks.append(chunk)
            rows, size = None if rows is None else rows - chunk.rows, size - chunk.size
        upper = _upper(view, chunks, v) if chunks else None
        if upper is not None and definitions.setdefault(table.name, chunks[0].table) == chunks[0].table:
            chosen.append((ChunkRun(table.name, tuple(chunks), upper, shown_before(view, chunks)), table))
            if len(chunks) == len(table.chunks):
                continue
        stopped.add(table.name)
    return chosen, gone


def shown_before(view: LogView, chunks: Sequence[TableChunk]) -> RelayLocation | None:
    """Return the relay log location that all changes shown by the rows of a table without a key precede.

    Return None for a table with a key, and if the relay log has not reached that location.
    """
    (first, *_) = chunks
    return place_behind(view, first.shown or first.upper) if first.table.key.is_row else None


def _is_there(view: LogView, chunk: TableChunk, v: RelayHead) -> bool:
    """Return True if the relay log has reached the position at which a chunk was read."""
    return covers(v.position, chunk.upper) or covers(view.head().position, chunk.upper)


def _upper(view: LogView, chunks: Sequence[TableChunk], v: RelayHead) -> RelayLocation | None:
    """Return the relay log location that all reads of these chunks precede; None if the relay log has not reached
    it.
    """
    behind = {chunk.upper for chunk in chunks if not covers(v.position, chunk.upper)}
    if not behind:
        return v.location
    last = max(behind, key=lambda position: sum(gtid.seq_no for gtid in position))
    if all(covers(last, position) for position in behind):
        behind = {last}  # each look-up of a location takes milliseconds
    places = [place_behind(view, position) for position in behind]
    return None if None in places else max(v.location, *(place for place in places if place is not None))
