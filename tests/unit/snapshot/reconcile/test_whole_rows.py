"""Rows that are counted: what changes leave of a table without a key is what plain counting says, forward and back."""

from __future__ import annotations

import random
import struct
from collections import Counter
from typing import Any

import numpy as np
import pytest

from replica.native.arrays import address
from replica.snapshot.images.kernel_partial_rows import IS_WHOLE, PUTS, HalfRecord
from replica.snapshot.images.key_states import PartialRowError
from replica.snapshot.reconcile.whole_rows import UnlikeRowsError, recounted
from replica.snapshot.rows.row_block import RowBlock
from tests.kit.binlog.rows import Column, table_map
from tests.unit.snapshot.blocks import INT, block_of, ids_of, int_map

Change = tuple[bool, int]
"""Whether a row with this value is put, or removed."""


def by_row(ids: list[int]) -> RowBlock:
    block = block_of(ids)
    return RowBlock(block.table_map, 1, block.images, block.ends, block.images, block.ends)


def changed(changes: list[Change]) -> tuple[Any, Any]:
    """Return the halves, and the memory that they point into."""
    images = np.frombuffer(b"".join(b"\xfe" + struct.pack("<i", value) for _, value in changes) or b"\0", np.uint8)
    halves = np.zeros(len(changes), HalfRecord.dtype)
    for number, (puts, _) in enumerate(changes):
        halves["image"][number], halves["size"][number] = address(images) + 5 * number, 5
        halves["flags"][number] = IS_WHOLE | (PUTS if puts else 0)
        halves["place"][number] = 1000 + number
    return halves, images


def ids(blocks: list[RowBlock]) -> Counter[int]:
    return Counter(one for block in blocks for one in ids_of(block))


@pytest.mark.parametrize("seed", range(20))
def test_rows_are_those_of_plain_counting_forward_and_back(seed: int) -> None:
    rng = random.Random(seed)
    before = [rng.randrange(8) for _ in range(rng.randrange(60))]
    rows, changes = Counter(before), list[Change]()
    for _ in range(rng.randrange(80)):
        puts, value = rng.random() < 0.5, rng.randrange(10)
        if puts or rows[value]:
            rows[value] += 1 if puts else -1
            changes.append((puts, value))
    halves, _memory = changed(changes)
    blocks = [by_row(before[:20]), by_row(before[20:])]
    after = list(recounted(blocks, halves, [int_map()], back=False))
    assert ids(after) == +rows
    assert ids(list(recounted(after, halves, [int_map()], back=True))) == Counter(before)


def test_rows_that_are_not_there_cannot_be_removed() -> None:
    halves, _memory = changed([(False, 1), (False, 1)])
    with pytest.raises(UnlikeRowsError):
        list(recounted([by_row([1, 2])], halves, [int_map()], back=False))


def test_images_that_are_written_otherwise_are_not_compared() -> None:
    other = table_map(1, [Column("id", INT, nullable=False), Column("n", INT)], table="t")
    halves, _memory = changed([(True, 1)])
    with pytest.raises(UnlikeRowsError):
        list(recounted([by_row([1, 2])], halves, [other], back=False))
    assert ids(list(recounted([by_row([1])], halves[:0], [other], back=False))) == Counter([1])


def test_images_that_lack_columns_are_not_counted() -> None:
    halves, _memory = changed([(True, 1), (True, 2)])
    halves["flags"][1] = PUTS
    with pytest.raises(PartialRowError) as caught:
        list(recounted([by_row([])], halves, [int_map()], back=False))
    assert caught.value.place == 1001
