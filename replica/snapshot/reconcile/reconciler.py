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

import numpy as np

from replica.errors import ProtocolError
from replica.native.arrays import address
from replica.protocol.rows.table_map import parse_table_map
from replica.relay_log.location import RelayLocation
from replica.snapshot.images.kernel_key_states import copy_pieces, drop_touched, merge_in_order
from replica.snapshot.images.partial_rows import completed
from replica.snapshot.images.same_images import same_images
from replica.snapshot.reconcile.key_order import KeyOrder
from replica.snapshot.reconcile.whole_rows import recounted
from replica.snapshot.reconcile.window import BackfillWindow, location_at
from replica.snapshot.rows.chunk import starts
from replica.snapshot.rows.kept_key import key_bytes
from replica.snapshot.rows.row_block import RowBlock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from replica.errors import PrerequisiteError
    from replica.relay_log.log import RelayLog
    from replica.schema.known_tables import TableName
    from replica.snapshot.images.key_states import KeyStates
    from replica.snapshot.rows.chunk import ReadTable, TableChunk
    from replica.snapshot.spool.spool import Spool, StoredBlock

    Ints = npt.NDArray[np.int64]


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


# Rows that were read, moved to one place of the stream: what changed since is taken from there.
#
# In: a chunk of rows as one SELECT saw them, and what is there at the place of each key that the stream touches
# around the reading. Whether the SELECT saw a change or not does not matter: a touched key's row is the stream's, and
# the others did not change. Out: the chunk's rows at the place, as blocks of one table map each. Where nothing was
# touched it is the chunk itself.
#
# Rows of the stream go into the chunk's own block where both table maps describe the same images; else they stand in
# blocks of their own, under the stream's table map.


def moved(
    chunk: RowBlock, states: KeyStates, begin: bytes | None, end: bytes | None, *, puts: bool = True
) -> list[RowBlock]:
    """Return the chunk's rows at the place of `states`, in key order where the key is ordered.

    Args:
        chunk: the rows; with an ordered key ascending.
        states: the touched keys, which take in all that changed behind the position that the SELECT surely saw.
        begin: the chunk covers the keys behind this one, canonical bytes; None: from the first one.
        end: up to this one; None: to the last one.
        puts: put in rows that are there and not in the chunk. Without an order, the touched rows come behind the
            others, and of several chunks only one may put them.

    Raises:
        PartialRowError: images lack columns that the chunk does not have.
        ProtocolError: the rows of an ordered key do not ascend.
    """
    first, last = states.between(begin, end) if states.ordered else (0, len(states))
    if first == last:
        return [chunk]
    states = completed(states, chunk, first, last, final=puts)
    taken = _in_order(chunk, states, first, last) if states.ordered else _behind(chunk, states, puts=puts)
    if len(taken) == chunk.rows and (taken == np.arange(chunk.rows)).all():
        return [chunk]
    return _blocks(chunk, states, taken)


def _in_order(chunk: RowBlock, states: KeyStates, first: int, last: int) -> Ints:
    taken = np.empty(chunk.rows + last - first, np.int64)
    count = merge_in_order(
        *(address(chunk.keys), address(chunk.key_ends), chunk.rows),
        *(address(states.halves), address(states.present), first, last, address(taken)),
    )
    if count < 0:
        table_map = parse_table_map(chunk.table_map)
        name = f"{table_map.database}.{table_map.table}"
        raise ProtocolError(
            f"row {-1 - count} of a result in the order of the key of {name} does not come behind the row before it.",
            hint="Report this with the declaration of the table's key.",
        )
    return taken[:count]


def _behind(chunk: RowBlock, states: KeyStates, *, puts: bool) -> Ints:
    taken = np.empty(chunk.rows, np.int64)
    table = np.zeros(1 << (2 * len(states) + 1).bit_length(), np.int32)
    numbers = np.arange(len(states), dtype=np.int64)
    count = drop_touched(
        *(address(chunk.keys), address(chunk.key_ends), chunk.rows, address(states.halves)),
        *(address(numbers), len(states), address(table), len(table) - 1, address(taken)),
    )
    there = np.flatnonzero(states.present) if puts else np.empty(0, np.int64)
    return np.concatenate((taken[:count], -1 - there))


def _blocks(chunk: RowBlock, states: KeyStates, taken: Ints) -> list[RowBlock]:
    """Return the rows that `taken` names, a block for each stretch of one table map."""
    ours = taken >= 0
    row, half = taken[ours], states.halves[-1 - taken[~ours]]
    image, image_sizes = _pieces(chunk.images, chunk.ends, ours, row, half["image"], half["size"])
    key, key_sizes = _pieces(chunk.keys, chunk.key_ends, ours, row, half["key"], half["key_size"])
    alike = np.zeros(len(states.table_maps), np.bool_)
    for number in np.unique(half["slot"]).tolist():
        alike[number] = same_images(chunk.table_map, states.table_maps[number])
    maps = np.full(len(taken), -1, np.int64)  # of rows that go into the chunk's own block
    maps[~ours] = np.where(alike[half["slot"]], -1, half["slot"])
    borders = np.flatnonzero(maps[1:] != maps[:-1]) + 1
    made = []
    for begin, end in zip([0, *borders.tolist()], [*borders.tolist(), len(taken)], strict=True):
        if begin == end:
            continue
        number = int(maps[begin])
        body = chunk.table_map if number < 0 else states.table_maps[number]
        width = chunk.width if number < 0 else len(parse_table_map(body).columns)
        images, ends = _copied(image[begin:end], image_sizes[begin:end])
        keys, key_ends = _copied(key[begin:end], key_sizes[begin:end])
        made.append(RowBlock(body, width, images, ends, keys, key_ends, chunk.left_out))
    return made


def _pieces(
    memory: npt.NDArray[np.uint8], ends: Ints, ours: npt.NDArray[np.bool_], row: Ints, places: Ints, lengths: Ints
) -> tuple[Ints, Ints]:
    """Return the address and the size of a piece of each row: of the chunk's `memory`, or at one of the `places`."""
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
    addresses, sizes = np.empty(len(ours), np.int64), np.empty(len(ours), np.int64)
    addresses[ours], sizes[ours] = address(memory) + starts[row], ends[row] - starts[row]
    addresses[~ours], sizes[~ours] = places, lengths
    return addresses, sizes


def _copied(addresses: Ints, sizes: Ints) -> tuple[npt.NDArray[np.uint8], Ints]:
    ends = sizes.cumsum()
    target = np.empty(int(ends[-1]), np.uint8)
    addresses, sizes = np.ascontiguousarray(addresses), np.ascontiguousarray(sizes)
    copy_pieces(address(addresses), address(sizes), len(sizes), address(target))
    return target, ends
