"""Chunks of tables, moved to the position that a batch ends at: by the changes that the relay log has around them.

In: chunks, each with the places between which its rows may stand; the position. Out: per table the blocks that hold
there, or why not now: a statement changed the table in between, so that it has to be read again, or does so behind the
position, which has to come first; or rows were changed, of a table that has no key, while it was read. The window of
the relay log is kept and grows, while the tables are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from replica.relay_log.location import RelayLocation
from replica.snapshot.images.partial_rows import completed
from replica.snapshot.reconcile.key_order import KeyOrder
from replica.snapshot.reconcile.moved import moved
from replica.snapshot.reconcile.whole_rows import recounted
from replica.snapshot.reconcile.window import BackfillWindow, location_at
from replica.snapshot.rows.chunk import starts
from replica.snapshot.rows.kept_key import key_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from replica.errors import PrerequisiteError
    from replica.relay_log.log import RelayLog
    from replica.schema.known_tables import TableName
    from replica.snapshot.images.key_states import KeyStates
    from replica.snapshot.rows.chunk import ReadTable, TableChunk
    from replica.snapshot.rows.row_block import RowBlock
    from replica.snapshot.spool.spool import Spool, StoredBlock


class ReconcileResult(Enum):
    """The answer to whether chunks can be moved to a position."""

    FITS = auto()
    AGAIN = auto()
    """A statement changed the table between the chunks' beginning and the position: they are read again."""
    LATER = auto()
    """A statement changes it behind the position, before the chunks' end."""
    FORWARD = auto()
    """Row images lack columns before the chunks' end: nothing can be taken back up to there."""
    UNSETTLED = auto()
    """Rows without a key were changed while they were read: which of the changes they show, nothing tells."""


@dataclass(frozen=True, slots=True)
class ChunkRun:
    """Chunks of one table, neighbours in key order. `upper`: the place that all of them were read before; `shown`: the
    one that rows without a key show nothing behind, None for others.
    """

    name: TableName
    chunks: Sequence[TableChunk]
    upper: RelayLocation
    shown: RelayLocation | None = None

    @property
    def table(self) -> ReadTable:
        """The table, which is the same for all of them."""
        return self.chunks[0].table

    @property
    def lower(self) -> RelayLocation:
        """The place up to which all of them surely see."""
        return min(chunk.lower for chunk in self.chunks)


class BlockLostError(Exception):
    """The file of a chunk is gone; it never leaves the engine."""


class ChunkReconciler:
    """The moves of one snapshot. Called by one thread."""

    def __init__(self, log: RelayLog, spool: Spool, *, untold_again: bool = False) -> None:
        """Make one without a window. `untold_again`: a change that was logged without rows counts as DDL."""
        self._untold_again = untold_again
        self._log = log
        self._spool = spool
        self._window: BackfillWindow | None = None
        self._tables: dict[TableName, ReadTable] = {}
        self._settled = RelayLocation(0, 0)  # no state before it can be had of the window any more

    def look(self, groups: Sequence[ChunkRun], v: RelayLocation) -> None:
        """Read the changes around these chunks.

        Raises:
            DataLossError: the relay log does not reach back to them.
        """
        tables = {group.name: group.table for group in groups}
        start = min(v, *(group.lower for group in groups))
        end = max(v, *(group.upper for group in groups))
        window = self._window
        known = window is not None and tables == self._tables and window.start <= start <= window.end
        if window is not None and known and v >= self._settled:
            self._settled = v
            window.extend(end, settled=v)
            window.trim(start)
            return
        keys = {name: table.key for name, table in tables.items()}
        schemas = {name: table.schema for name, table in tables.items()}
        defined = {name: table.whole for name, table in tables.items()}
        self._window = BackfillWindow.read(
            *(self._log, start, end, keys, schemas), defined=defined, settled=v, untold_defines=self._untold_again
        )
        self._tables, self._settled = tables, v

    def forget(self) -> None:
        """Let the window's memory go."""
        self._window = None

    def fit(self, group: ChunkRun, v: RelayLocation) -> ReconcileResult:
        """Judge whether chunks that were looked at can be moved to `v`."""
        window = self._known()
        if group.lower < v and window.ddl(group.name, group.lower, v):
            return ReconcileResult.AGAIN
        if v < group.upper and window.ddl(group.name, v, group.upper):
            return ReconcileResult.LATER
        if group.shown is not None and len(window.changes(group.name, group.lower, group.shown)):
            return ReconcileResult.UNSETTLED
        if v < group.upper and window.lacks_columns(group.name, min(group.lower, v), group.upper):
            return ReconcileResult.FORWARD
        return ReconcileResult.FITS

    def blocks(self, group: ChunkRun, v: RelayLocation) -> Iterator[RowBlock | StoredBlock]:
        """Yield the rows of chunks that fit, as of `v`; of a chunk that nothing changed its file, which is taken for
        the batch.

        Raises:
            BlockLostError: the file of a chunk is not there any more.
            PartialRowError: the relay log has a change of a row of them whose images lack columns that are needed.
            PrerequisiteError: it has one whose images do not tell the row's key.
            UnlikeRowsError: rows without a key are not those that it says were changed.
        """
        window = self._known()
        table = group.table
        if group.shown is not None:
            forward = v > group.shown
            behind, upto = (group.shown, v) if forward else (v, max(v, group.lower))
            changes = window.changes(group.name, behind, upto)
            rows = (block for chunk in group.chunks for block in _loaded(chunk))
            yield from self._sorted(recounted(rows, changes, window.table_maps, back=not forward))
            return
        states = window.state_at(group.name, min(group.lower, v), v, group.upper)
        if not table.key.ordered:
            yield from self._in_key_order(group, states)
            return
        for chunk in group.chunks:
            begin = None if starts(chunk.begin) else key_bytes(table.schema, table.key, chunk.begin)
            end = None if chunk.end is None else key_bytes(table.schema, table.key, chunk.end)
            changed = len(range(*states.between(begin, end))) > 0
            for stored in chunk.stored:
                if changed or stored.images is None:
                    yield from moved(_block(stored), states, begin, end)
                elif stored.take():
                    yield stored
                else:
                    raise BlockLostError

    def _in_key_order(self, group: ChunkRun, states: KeyStates) -> Iterator[RowBlock]:
        """Yield the rows of a table that only comes as a whole."""
        return self._sorted(_moved_as_whole(group, states))

    def _sorted(self, blocks: Iterator[RowBlock]) -> Iterator[RowBlock]:
        order = KeyOrder(self._spool)
        try:
            for block in blocks:
                order.add(block)
            yield from order.blocks()
        finally:
            order.drop()

    def last_change(self, group: ChunkRun) -> RelayLocation:
        """Return the place of the last change of rows without a key before the one that they show nothing behind."""
        places = self._known().changes(group.name, group.lower, group.shown or group.upper)["place"]
        return location_at(int(places.max())) if len(places) else group.lower

    def partial_error(self, name: TableName, place: int) -> PrerequisiteError:
        """Make the error for rows that stay unknown because their images lack columns."""
        return self._known().untold_error(name, place, key=False)

    def _known(self) -> BackfillWindow:
        if self._window is None:
            raise RuntimeError("look at the chunks first")
        return self._window


def _moved_as_whole(group: ChunkRun, states: KeyStates) -> Iterator[RowBlock]:
    for number, chunk in enumerate(group.chunks):
        last = number == len(group.chunks) - 1
        for block in _loaded(chunk):
            states = completed(states, block, 0, len(states), final=last)
            yield from moved(block, states, None, None, puts=last)


def _loaded(chunk: TableChunk) -> Iterator[RowBlock]:
    """Yield the blocks of a chunk: one, where it has a key."""
    yield from map(_block, chunk.stored)


def _block(stored: StoredBlock) -> RowBlock:
    block = stored.load()
    if block is None:
        raise BlockLostError
    return block
