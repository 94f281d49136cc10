"""Partitions pickle, give the same bytes by path and on board, and say in words when a file is not there."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from replica.errors import DataLossError, RelayError
from replica.rows.decode.frontier import OpenEnds
from streaming_source.rows.partition import ChangePartition, GroupBounds, InlineRange, MappedRange, Surroundings

if TYPE_CHECKING:
    from pathlib import Path

BOUNDS = GroupBounds(lower=((0, 4),), upper=((0, 9), (7, 2)))


def test_a_range_by_path_is_a_part_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "relay.000001"
    file.write_bytes(bytes(range(100)))
    part = MappedRange(str(file), 10, 40, checksum=True, file="bin.000001", bounds=BOUNDS)
    again = pickle.loads(pickle.dumps(part))  # noqa: S301
    assert again == part
    assert bytes(again.data()) == bytes(range(10, 40))


def test_a_range_on_board_carries_its_bytes_and_does_not_print_them() -> None:
    part = InlineRange(b"secret rows", checksum=False, file="bin.000001")
    again = pickle.loads(pickle.dumps(part))  # noqa: S301
    assert bytes(again.data()) == b"secret rows"
    assert "secret" not in repr(part)


def test_a_missing_folder_or_a_short_file_is_an_error_that_says_what_to_set(tmp_path: Path) -> None:
    file = tmp_path / "relay.000001"
    file.write_bytes(bytes(20))
    for path in (file, tmp_path / "elsewhere" / "relay.000001"):
        with pytest.raises(RelayError, match="transport=inline"):
            MappedRange(str(path), 10, 40, checksum=True).data()


def test_a_file_that_retention_removed_is_lost_data(tmp_path: Path) -> None:
    with pytest.raises(DataLossError, match=r"relay\.000001 is no longer in the relay log.*slow_readers=pause"):
        MappedRange(str(tmp_path / "relay.000001"), 10, 40, checksum=True).data()


def test_a_part_of_a_group_comes_with_what_it_lacks(tmp_path: Path) -> None:
    file = tmp_path / "relay.000001"
    file.write_bytes(bytes(range(100)))
    around = Surroundings(b"head", b"tail", (3, 5))
    part = MappedRange(str(file), 10, 40, checksum=True, ends=OpenEnds(7, rows_follow=True), around=around)
    expected = b"head" + bytes(range(3, 5)) + bytes(range(10, 40)) + b"tail"
    partition = ChangePartition((part, MappedRange(str(file), 50, 60, checksum=True)))
    again = pickle.loads(pickle.dumps(partition))  # noqa: S301
    assert again == partition
    assert [bytes(r.data()) for r in again.ranges] == [expected, bytes(range(50, 60))]
    on_board = partition.inline()
    file.unlink()
    assert [bytes(r.data()) for r in on_board.ranges] == [expected, bytes(range(50, 60))]
    assert on_board.ranges[0].ends == part.ends
    assert partition.size == on_board.size == len(expected) + 10
    assert "head" not in repr(partition), "table maps and texts of statements are nobody's business"


def test_parts_that_are_looked_at_side_by_side_do_not_share_their_memory(tmp_path: Path) -> None:
    file = tmp_path / "relay.000001"
    size = 5 << 20  # smaller memory is not used again
    file.write_bytes(b"1" * size + b"2" * size)
    first, second = (
        MappedRange(str(file), at, at + size, checksum=False, around=Surroundings(b"head")).data() for at in (0, size)
    )
    assert (bytes(first), bytes(second)) == (b"head" + b"1" * size, b"head" + b"2" * size)
    del first
    third = MappedRange(str(file), 0, size, checksum=False, around=Surroundings(b"head")).data()
    assert (bytes(second[:5]), bytes(third[:5])) == (b"head2", b"head1")


def test_a_part_of_a_file_that_is_too_short_is_not_padded(tmp_path: Path) -> None:
    file = tmp_path / "relay.000001"
    file.write_bytes(bytes(20))
    part = MappedRange(str(file), 10, 40, checksum=True, around=Surroundings(b"head"))
    with pytest.raises(RelayError, match="transport=inline"):
        part.data()
