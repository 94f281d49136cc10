"""Small batches are one partition, large ones are shared evenly by the cores, and an option asks for more."""

from __future__ import annotations

import pytest

from streaming_source.ranges.cutting import PartitionSize

MB = 1 << 20


@pytest.mark.parametrize(
    ("cores", "least", "total", "expected"),
    [
        (2, None, 100, 1),
        (2, None, 4 * MB, 1),
        (2, None, 8 * MB, 2),
        (2, None, 64 * MB, 2),
        (2, None, 65 * MB, 3),
        (8, None, 64 * MB, 8),
        (64, None, 64 * MB, 16),
        (1, None, 512 * MB, 16),
        (2, 10, 64 * MB, 10),
        (2, 1, 64 * MB, 2),
        (2, 1000, 1 * MB, 16),
        (2, None, 0, 0),
    ],
)
def test_as_many_partitions_as_are_worth_it(cores: int, least: int | None, total: int, expected: int) -> None:
    size = PartitionSize(cores, least).bytes(total)
    assert -(-total // size) == expected
