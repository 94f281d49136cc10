"""The choice of the chunks that a batch may take: those that wait, in order, as far as relay log and limit allow.

In: the tables with chunks that wait, the place that the batch ends at, its limit. Out: runs of chunks, each with the
place that all of it was read before; and the tables that were not there at that place. Whether a run can be moved to
the batch's place is not asked here.
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
"""What one batch takes of the chunks that wait, unless it is told less."""


class ReadLimit(NamedTuple):
    """The most that one batch takes; one chunk at least, whatever it says."""

    rows: int | None = None
    size: int | None = None

    @property
    def most_bytes(self) -> int:
        """The bytes that it comes to."""
        return BATCH_BYTES if self.size is None else self.size


ALL: Final = ReadLimit()


def choose_chunks(
    view: LogView, tables: Iterable[TableReading], v: RelayHead, limit: ReadLimit
) -> tuple[list[tuple[ChunkRun, TableReading]], list[TableReading]]:
    """Return the chunks that a batch up to `v` may take of these tables, and the tables that are not there."""
    rows, size = limit.rows, limit.most_bytes
    chosen: list[tuple[ChunkRun, TableReading]] = []
    gone = []
    definitions: dict[TableName, ReadTable] = {}
    stopped: set[TableName] = set()  # lanes behind these have to wait
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
                break  # a log that is full gets there once the batch has let go a part of it
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
    """Find the place that all rows of a table without a key stood before, which the log has got to; None for others."""
    (first, *_) = chunks
    return place_behind(view, first.shown or first.upper) if first.table.key.is_row else None


def _is_there(view: LogView, chunk: TableChunk, v: RelayHead) -> bool:
    """Tell whether the relay log has got to where a chunk was read."""
    return covers(v.position, chunk.upper) or covers(view.head().position, chunk.upper)


def _upper(view: LogView, chunks: Sequence[TableChunk], v: RelayHead) -> RelayLocation | None:
    """Find the place of the relay log that chunks were read before; None where it has not got there."""
    behind = {chunk.upper for chunk in chunks if not covers(v.position, chunk.upper)}
    if not behind:
        return v.location
    last = max(behind, key=lambda position: sum(gtid.seq_no for gtid in position))
    if all(covers(last, position) for position in behind):
        behind = {last}  # looking up a place takes milliseconds
    places = [place_behind(view, position) for position in behind]
    return None if None in places else max(v.location, *(place for place in places if place is not None))
