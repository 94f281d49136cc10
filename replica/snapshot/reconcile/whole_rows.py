"""Reconciliation of a table without a key with a relay log location, by counting equal rows.

`recounted` takes all rows of the table at one location and the changes up to another one, and yields the rows there. A
change removes any one of the rows with its before image, and adds one row with its after image. All table maps encode
images in the same way, so equal rows have equal images. Images without all columns are refused. Changes that remove
more rows than the table has are refused too, because then the rows or the images are wrong.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from replica.errors import PrerequisiteError
from replica.native.arrays import address
from replica.protocol.rows.table_map import parse_table_map
from replica.schema.patterns import table_text
from replica.schema.text.naming import quoted_table
from replica.snapshot.images.kernel_key_states import copy_pieces, count_copies, drop_counted, sort_by_key
from replica.snapshot.images.kernel_partial_rows import IS_WHOLE, HalfRecord
from replica.snapshot.images.key_states import PartialRowError
from replica.snapshot.images.row_halves import same_images, same_layout
from replica.snapshot.rows.row_block import RowBlock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from replica.native.record import Records
    from replica.schema.known_tables import TableName
    from replica.snapshot.spool.spool import Spool, StoredBlock


class UnlikeRowsError(Exception):
    """Error for rows that differ from the before images of changes, or cannot be compared. This error never leaves the
    snapshot package.
    """


def unsettled_error(name: TableName, times: int) -> PrerequisiteError:
    """Return the error for a table whose rows changed during every read."""
    shown = table_text(name)
    return PrerequisiteError(
        f"table {shown} has no key that its rows can be read by, and was changed each of the {times} times that it was "
        "read as a whole (snapshotUnkeyed=whole). It is unknown which of the changes those rows contain.",
        hint=f"Start while no one writes to it for half a minute, or hold LOCK TABLES {quoted_table(name)} READ in a "
        "session meanwhile; or give it a primary key; or leave it out of the query's tables.",
    )


def unlike_error(name: TableName) -> PrerequisiteError:
    """Return the error for a table whose rows differ from the before images in the binlog."""
    return PrerequisiteError(
        f"table {table_text(name)} has no key that its rows can be read by, and before images in the binlog "
        "match none of the rows that were read (snapshotUnkeyed=whole). Its columns have other bytes in the binlog, "
        "or its rows were changed without the binlog.",
        hint="Give it a primary key, or leave it out of the query's tables.",
    )


def recounted(
    blocks: Iterable[RowBlock], changes: Records, table_maps: Sequence[bytes], *, back: bool
) -> Iterator[RowBlock]:
    """Yield the rows of a table after these changes, or before them with `back`, in no order.

    Args:
        blocks: Rows before the changes, or after them with `back`; their keys are their images.
        changes: HalfRecords of the table; the caller owns their images.
        table_maps: Bodies of the table maps, indexed by `slot` of the changes.
        back: Whether to undo the changes.

    Raises:
        PartialRowError: An image lacks columns.
        UnlikeRowsError: The rows differ from the images of the changes.
    """
    lacking = changes["place"][changes["flags"] & IS_WHOLE == 0]
    if len(lacking):
        raise PartialRowError(int(lacking.max()))
    counts = _Counts(changes, back=back)
    ours = b""
    left_out: tuple[int, ...] = ()
    for block in blocks:
        left_out = block.left_out
        if block.table_map != ours:
            ours = block.table_map
            if not all(same_layout(ours, table_maps[slot]) for slot in counts.slots):
                raise UnlikeRowsError
        yield counts.take_from(block)
    if (counts.more < 0).any():
        raise UnlikeRowsError
    yield from counts.put(ours, table_maps, left_out)


class _Counts:
    """Distinct changed images, each with the number of rows to add; a negative number is the rows to remove."""

    def __init__(self, changes: Records, *, back: bool) -> None:
        halves = changes.copy()
        halves["key"], halves["key_size"] = halves["image"], halves["size"]
        self._halves = halves
        self._table = np.zeros(1 << (2 * len(halves) + 1).bit_length(), np.int32)
        self._firsts, more = np.empty(len(halves), np.int64), np.zeros(len(halves), np.int64)
        count = count_copies(
            *(address(halves), len(halves), -1 if back else 1),
            *(address(self._table), len(self._table) - 1, address(self._firsts), address(more)),
        )
        self.more = more[:count]
        self.slots: list[int] = np.unique(halves["slot"]).tolist()

    def take_from(self, block: RowBlock) -> RowBlock:
        """Return the block without the rows to remove."""
        taken = np.empty(block.rows, np.int64)
        count = drop_counted(
            *(address(block.images), address(block.ends), block.rows, address(self._halves), address(self._firsts)),
            *(address(self._table), len(self._table) - 1, address(self.more), address(taken)),
        )
        if count == block.rows:
            return block
        taken = taken[:count]
        starts = np.concatenate((np.zeros(1, np.int64), block.ends))
        addresses, sizes = address(block.images) + starts[taken], block.ends[taken] - starts[taken]
        return _block(block.table_map, addresses, sizes, block.left_out)

    def put(self, ours: bytes, table_maps: Sequence[bytes], left_out: tuple[int, ...]) -> Iterator[RowBlock]:
        """Yield the rows to add."""
        coming = np.flatnonzero(self.more > 0)
        images, times = self._halves[self._firsts[coming]], self.more[coming]
        for slot in np.unique(images["slot"]).tolist():
            chosen = images["slot"] == slot
            body = ours if same_images(ours, table_maps[slot]) else table_maps[slot]
            addresses, sizes = (np.repeat(images[field][chosen], times[chosen]) for field in ("image", "size"))
            yield _block(body, addresses, sizes, left_out)


def _block(
    table_map: bytes, addresses: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], left_out: tuple[int, ...]
) -> RowBlock:
    addresses, sizes = np.ascontiguousarray(addresses), np.ascontiguousarray(sizes)
    ends = sizes.cumsum()
    images = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    copy_pieces(address(addresses), address(sizes), len(sizes), address(images))
    width = len(parse_table_map(table_map).columns)
    return RowBlock(table_map, width, images, ends, images, ends, left_out)


# `KeyOrder` merges sorted blocks, one range of keys at a time, so that memory holds some rows of each block and not the
# whole table.


SAMPLE_ROWS: Final = 1 << 12
"""Distance of sampled keys, from which the borders of ranges are chosen. A range's size is off by up to this many rows
per block.
"""
STRETCH_SAMPLES: Final = 32
"""Samples per range, which makes ranges of about 130 000 rows."""


class KeyOrder:
    """Sorter for the rows of one table. Usage, once: `add` all blocks, iterate `blocks`, then `drop` the spool
    files.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._stored: list[StoredBlock] = []

    def add(self, block: RowBlock) -> None:
        """Sort and store the rows of a block.

        Raises:
            DiskFullError: The spool has no room for the rows.
        """
        if block.rows:
            for part in _in_order([block], [(0, block.rows)]):
                self._stored.append(self._spool.store(part))

    def blocks(self) -> Iterator[RowBlock]:
        """Yield all rows in key order; each block has one table map."""
        sorted_blocks = [stored.mapped() for stored in self._stored]
        if not sorted_blocks:
            return
        samples = sorted(block.key(row) for block in sorted_blocks for row in range(0, block.rows, SAMPLE_ROWS))
        borders: list[bytes | None] = [*samples[STRETCH_SAMPLES::STRETCH_SAMPLES], None]
        begins = [0] * len(sorted_blocks)
        for border in borders:
            ends = [_end_of_range(block, begin, border) for block, begin in zip(sorted_blocks, begins, strict=True)]
            yield from _in_order(sorted_blocks, list(zip(begins, ends, strict=True)))
            begins = ends

    def drop(self) -> None:
        """Remove the stored blocks."""
        for stored in self._stored:
            stored.drop()
        self._stored.clear()


def _end_of_range(block: RowBlock, begin: int, border: bytes | None) -> int:
    """Return the first row from `begin` whose key is above the border, or the number of rows if there is none."""
    if border is None:
        return block.rows
    return bisect_right(range(block.rows), border, lo=begin, key=block.key)


def _in_order(blocks: Sequence[RowBlock], ranges: Sequence[tuple[int, int]]) -> Iterator[RowBlock]:
    """Yield the rows of these ranges in key order, one block per run of rows with the same table map."""
    rows = np.concatenate([_rows(block, number, *ranges[number]) for number, block in enumerate(blocks)])
    if not len(rows):
        return
    numbers, spare = np.arange(len(rows), dtype=np.int64), np.empty(len(rows), np.int64)
    sort_by_key(address(rows), address(numbers), address(spare), len(rows))
    rows = rows[numbers]
    maps: dict[bytes, int] = {}
    kinds = np.array([maps.setdefault(block.table_map, len(maps)) for block in blocks])[rows["slot"]]
    borders = [0, *(np.flatnonzero(kinds[1:] != kinds[:-1]) + 1).tolist(), len(rows)]
    for begin, end in pairwise(borders):
        taken = rows[begin:end]
        block = blocks[int(taken["slot"][0])]
        images, ends = _copied(taken["image"], taken["size"])
        keys, key_ends = images, ends
        if block.keys is not block.images:
            keys, key_ends = _copied(taken["key"], taken["key_size"])
        yield RowBlock(block.table_map, block.width, images, ends, keys, key_ends, block.left_out)


def _rows(block: RowBlock, number: int, begin: int, end: int) -> Records:
    """Return where the rows [begin, end) of a block lie; `slot` is the number of the block."""
    rows = np.zeros(end - begin, HalfRecord.dtype)
    for field, size, memory, ends in (
        ("image", "size", block.images, block.ends),
        ("key", "key_size", block.keys, block.key_ends),
    ):
        borders = np.concatenate((ends[begin - 1 : begin] if begin else np.zeros(1, np.int64), ends[begin:end]))
        rows[field] = address(memory) + borders[:-1]
        rows[size] = borders[1:] - borders[:-1]
    rows["slot"] = number
    return rows


def _copied(
    addresses: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    addresses, sizes = np.ascontiguousarray(addresses), np.ascontiguousarray(sizes)
    ends = sizes.cumsum()
    target = np.empty(int(ends[-1]), np.uint8)
    copy_pieces(address(addresses), address(sizes), len(sizes), address(target))
    return target, ends
