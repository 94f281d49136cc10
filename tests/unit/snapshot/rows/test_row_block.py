"""Blocks of row images: each row's bytes and key."""

from __future__ import annotations

import numpy as np

from replica.snapshot.rows.row_block import RowBlock


def test_rows_of_a_block_are_found_by_their_number() -> None:
    block = RowBlock(
        table_map=b"",
        width=2,
        images=np.frombuffer(b"aabbbc", np.uint8),
        ends=np.array([2, 5, 6]),
        keys=np.frombuffer(b"123", np.uint8),
        key_ends=np.array([1, 2, 3]),
    )
    assert block.rows == 3
    assert [block.image(row).tobytes() for row in range(3)] == [b"aa", b"bbb", b"c"]
    assert [block.key(row) for row in range(3)] == [b"1", b"2", b"3"]
