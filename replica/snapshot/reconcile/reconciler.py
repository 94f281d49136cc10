"""Reconciliation of snapshot chunks with the batch position, from the row changes in the relay log around their reads.

`ChunkReconciler` takes chunks with their low and high watermarks. `fit` decides whether they can be reconciled with a
position, and `blocks` returns their rows as of that position. `fit` refuses chunks if DDL changed the table meanwhile,
or if rows of a table without a key changed during the read. The reconciler keeps one window of the relay log and
extends it as long as the tables stay the same.
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
from replica.snapshot.images.key_states import completed
from replica.snapshot.images.row_halves import same_images
from replica.snapshot.reconcile.whole_rows import KeyOrder, recounted
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
    """Answer of `fit`: whether chunks can be reconciled with a position, or what prevents it."""

    FITS = auto()
    AGAIN = auto()
    """A statement changed the table between the low watermark and the position: the chunks must be read again."""
    LATER = auto()
    """A statement changes the table after the position and before the high watermark: a later position is needed."""
    FORWARD = auto()
    """Row images before the high watermark lack columns, so the changes cannot be undone."""
    UNSETTLED = auto()
    """Rows without a key were changed during the read, and nothing shows which of the changes the rows contain."""


@dataclass(frozen=True, slots=True)
class ChunkRun:
    """Chunks of one table that are neighbours in key order.

    Attributes:
        high: Location after all reads of the chunks.
        shown: Location after every change that the rows of a table without a key may contain; None for other tables.
    """

    name: TableName
    chunks: Sequence[TableChunk]
    high: RelayLocation
    shown: RelayLocation | None = None

    @property
    def table(self) -> ReadTable:
        """Table of all chunks."""
        return self.chunks[0].table

    @property
    def low(self) -> RelayLocation:
        """Low watermark of the run: every chunk contains all changes up to this location."""
        return min(chunk.low for chunk in self.chunks)


class BlockLostError(Exception):
    """Error for a chunk whose spool file is missing. This error never leaves the snapshot package."""


class ChunkReconciler:
    """Reconciler of one snapshot, called by one thread."""

    def __init__(self, log: RelayLog, spool: Spool, *, resnapshot_statement_dml: bool = False) -> None:
        """Create a reconciler without a window. `resnapshot_statement_dml`: treat changes without row events as DDL."""
        self._resnapshot_statement_dml = resnapshot_statement_dml
        self._log = log
        self._spool = spool
        self._window: BackfillWindow | None = None
        self._tables: dict[TableName, ReadTable] = {}
        self._settled = RelayLocation(0, 0)  # the window cannot compute states before this location any more

    def load_window(self, groups: Sequence[ChunkRun], v: RelayLocation) -> None:
        """Read the changes around these chunks into the window.

        Raises:
            DataLossError: The relay log does not contain these changes any more.
        """
        tables = {group.name: group.table for group in groups}
        start = min(v, *(group.low for group in groups))
        end = max(v, *(group.high for group in groups))
        window = self._window
        known = window is not None and tables == self._tables and window.start <= start <= window.end
        if window is not None and known and v >= self._settled:
            self._settled = v
            window.extend(end, settled=v)
            window.trim(start)
            return
        keys = {name: table.key for name, table in tables.items()}
        schemas = {name: table.schema for name, table in tables.items()}
        defined = {name: table.full_schema for name, table in tables.items()}
        self._window = BackfillWindow.read(
            *(self._log, start, end, keys, schemas),
            defined=defined,
            settled=v,
            statement_dml_defines=self._resnapshot_statement_dml,
        )
        self._tables, self._settled = tables, v

    def forget(self) -> None:
        """Release the window's memory."""
        self._window = None

    def fit(self, group: ChunkRun, v: RelayLocation) -> ReconcileResult:
        """Return whether chunks inside the window can be reconciled with `v`."""
        window = self._known()
        if group.low < v and window.ddl(group.name, group.low, v):
            return ReconcileResult.AGAIN
        if v < group.high and window.ddl(group.name, v, group.high):
            return ReconcileResult.LATER
        if group.shown is not None and len(window.changes(group.name, group.low, group.shown)):
            return ReconcileResult.UNSETTLED
        if v < group.high and window.lacks_columns(group.name, min(group.low, v), group.high):
            return ReconcileResult.FORWARD
        return ReconcileResult.FITS

    def blocks(self, group: ChunkRun, v: RelayLocation) -> Iterator[RowBlock | StoredBlock]:
        """Yield the rows of fitting chunks as of `v`; for a chunk without changes, yield its spool file, taken for the
        batch.

        Raises:
            BlockLostError: The spool file of a chunk is missing.
            PartialRowError: A change of a row lacks columns that are needed.
            PrerequisiteError: The images of a change do not contain the row's key.
            UnlikeRowsError: Rows without a key differ from the before images in the log.
        """
        window = self._known()
        table = group.table
        if group.shown is not None:
            forward = v > group.shown
            after, upto = (group.shown, v) if forward else (v, max(v, group.low))
            changes = window.changes(group.name, after, upto)
            rows = (block for chunk in group.chunks for block in _loaded(chunk))
            yield from self._sorted(recounted(rows, changes, window.table_maps, back=not forward))
            return
        states = window.state_at(group.name, min(group.low, v), v, group.high)
        if not table.key.ordered:
            yield from self._in_key_order(group, states)
            return
        for chunk in group.chunks:
            begin = None if starts(chunk.begin) else key_bytes(table.schema, table.key, chunk.begin)
            end = None if chunk.end is None else key_bytes(table.schema, table.key, chunk.end)
            changed = len(range(*states.between(begin, end))) > 0
            for stored in chunk.stored:
                if changed or stored.images is None:
                    yield from reconciled(_block(stored), states, begin, end)
                elif stored.take():
                    yield stored
                else:
                    raise BlockLostError

    def _in_key_order(self, group: ChunkRun, states: KeyStates) -> Iterator[RowBlock]:
        """Yield the rows of a table that is delivered whole."""
        return self._sorted(_reconciled_unordered(group, states))

    def _sorted(self, blocks: Iterator[RowBlock]) -> Iterator[RowBlock]:
        order = KeyOrder(self._spool)
        try:
            for block in blocks:
                order.add(block)
            yield from order.blocks()
        finally:
            order.drop()

    def last_change(self, group: ChunkRun) -> RelayLocation:
        """Return the location of the last change that the rows of a table without a key may contain."""
        places = self._known().changes(group.name, group.low, group.shown or group.high)["place"]
        return location_at(int(places.max())) if len(places) else group.low

    def partial_error(self, name: TableName, place: int) -> PrerequisiteError:
        """Return the error for rows that stay incomplete because their images lack columns."""
        return self._known().missing_images_error(name, place, key=False)

    def _known(self) -> BackfillWindow:
        if self._window is None:
            raise RuntimeError("look at the chunks first")
        return self._window


def _reconciled_unordered(group: ChunkRun, states: KeyStates) -> Iterator[RowBlock]:
    for number, chunk in enumerate(group.chunks):
        last = number == len(group.chunks) - 1
        for block in _loaded(chunk):
            states = completed(states, block, 0, len(states), final=last)
            yield from reconciled(block, states, None, None, puts=last)


def _loaded(chunk: TableChunk) -> Iterator[RowBlock]:
    """Yield the blocks of a chunk, exactly one for a table with a key."""
    yield from map(_block, chunk.stored)


def _block(stored: StoredBlock) -> RowBlock:
    block = stored.load()
    if block is None:
        raise BlockLostError
    return block


# Every key that changed around the read takes its row from the stream; all other rows did not change. It therefore does
# not matter which changes the SELECT saw.
#
# A row of the stream joins the chunk's block if both table maps describe the same images. Otherwise it goes into a
# separate block under the stream's table map.


def reconciled(
    chunk: RowBlock, states: KeyStates, begin: bytes | None, end: bytes | None, *, puts: bool = True
) -> list[RowBlock]:
    """Return the chunk's rows at the location of `states`, in key order if the key is ordered.

    Args:
        chunk: Rows, ascending by key if the key is ordered.
        states: Changed keys, which include every change after the low watermark.
        begin: The chunk covers the keys after this one, canonical bytes; None for no lower limit.
        end: The chunk covers the keys up to and including this one; None for no upper limit.
        puts: Add existing rows that the chunk does not have. Without an order, changed rows follow the others, and only
            one of several chunks may add them.

    Raises:
        PartialRowError: Images lack columns that the chunk does not have.
        ProtocolError: The rows of an ordered key do not ascend.
    """
    first, last = states.between(begin, end) if states.ordered else (0, len(states))
    if first == last:
        return [chunk]
    states = completed(states, chunk, first, last, final=puts)
    taken = _in_order(chunk, states, first, last) if states.ordered else _unchanged_first(chunk, states, puts=puts)
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
            f"row {-1 - count} of a result in the order of the key of {name} does not sort after the row before it.",
            hint="Report this with the declaration of the table's key.",
        )
    return taken[:count]


def _unchanged_first(chunk: RowBlock, states: KeyStates, *, puts: bool) -> Ints:
    taken = np.empty(chunk.rows, np.int64)
    table = np.zeros(1 << (2 * len(states) + 1).bit_length(), np.int32)
    numbers = np.arange(len(states), dtype=np.int64)
    count = drop_touched(
        *(address(chunk.keys), address(chunk.key_ends), chunk.rows, address(states.halves)),
        *(address(numbers), len(states), address(table), len(table) - 1, address(taken)),
    )
    present = np.flatnonzero(states.present) if puts else np.empty(0, np.int64)
    return np.concatenate((taken[:count], -1 - present))


def _blocks(chunk: RowBlock, states: KeyStates, taken: Ints) -> list[RowBlock]:
    """Return the rows that `taken` lists, one block per run of rows with the same table map."""
    ours = taken >= 0
    row, half = taken[ours], states.halves[-1 - taken[~ours]]
    image, image_sizes = _pieces(chunk.images, chunk.ends, ours, row, half["image"], half["size"])
    key, key_sizes = _pieces(chunk.keys, chunk.key_ends, ours, row, half["key"], half["key_size"])
    alike = np.zeros(len(states.table_maps), np.bool_)
    for number in np.unique(half["slot"]).tolist():
        alike[number] = same_images(chunk.table_map, states.table_maps[number])
    maps = np.full(len(taken), -1, np.int64)  # -1: the row goes into the chunk's own block
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
    """Return the address and size of each row's bytes, in the chunk's `memory` or at one of the `places`."""
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
