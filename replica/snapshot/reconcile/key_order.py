"""Sort rows by their key bytes if the server sorts them in another order, so that every read gives the same order.

`KeyOrder` sorts each block and stores it in the spool. `blocks` merges the sorted blocks, one range of keys at a time.
Memory therefore holds some rows of each block and not the whole table.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from replica.native.arrays import address
from replica.snapshot.images.half_record import HalfRecord
from replica.snapshot.images.kernel_key_states import copy_pieces, sort_by_key
from replica.snapshot.rows.row_block import RowBlock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from replica.native.record import Records
    from replica.snapshot.spool.spool import Spool, StoredBlock

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
            ends = [_behind(block, begin, border) for block, begin in zip(sorted_blocks, begins, strict=True)]
            yield from _in_order(sorted_blocks, list(zip(begins, ends, strict=True)))
            begins = ends

    def drop(self) -> None:
        """Remove the stored blocks."""
        for stored in self._stored:
            stored.drop()
        self._stored.clear()


def _behind(block: RowBlock, begin: int, border: bytes | None) -> int:
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
