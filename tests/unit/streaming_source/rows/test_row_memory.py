"""Memory for rows is given again and again."""

from __future__ import annotations

import numpy as np

from streaming_source.rows.change_rows import RowMemory


def test_memory_is_that_of_the_batch_before_unless_it_was_smaller() -> None:
    memory = RowMemory()
    first = memory.bytes("a", 100)
    assert np.shares_memory(memory.bytes("a", 50), first)
    assert not np.shares_memory(memory.bytes("b", 50), first)
    assert len(memory.bytes("a", 200)) == 200
