from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.errors import RelayError
from replica.protocol.gtid import Gtid, GtidPosition
from replica.relay_log.files.index import INDEX_HEADER, FileIndex
from replica.relay_log.location import index_path, relay_numbers, relay_path
from replica.relay_log.log import RelayLog
from replica.relay_writer.recovery import recover
from replica.relay_writer.writer import RelayWriter
from tests.kit.binlog.primary import Primary
from tests.kit.relay.driving import receive, stored

GROUPS = 3


def make(directory: Path, *, max_file_bytes: int = 1 << 20) -> list[tuple[int, GtidPosition]]:
    """A relay log of GROUPS small groups; the ends in its first file, with the positions there."""
    primary = Primary.dump()
    for seq in range(1, GROUPS + 1):
        primary.transaction(Gtid(seq % 2, 1, seq), (20 * seq,), ["xid", "commit"][seq % 2])
    with RelayWriter.open(directory, max_file_bytes=max_file_bytes) as relay:
        receive(relay, primary.wire())
    head = RelayLog(directory).first_position()
    assert head is not None
    position, ends = head, []
    for end, gtid, _, _ in stored(directory)[1][0]:
        position = position.advance(gtid)
        ends.append((end, position))
    return ends


def test_a_torn_tail_is_cut_to_the_last_complete_group_at_every_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # a thousand recoveries; what is tested is not the disk
    ends = make(tmp_path / "whole")
    whole = relay_path(tmp_path / "whole", 1).read_bytes()
    start = len(whole) - ends[-1][0]
    torn = tmp_path / "torn"
    for length in range(len(whole)):
        shutil.rmtree(torn, ignore_errors=True)
        torn.mkdir()
        relay_path(torn, 1).write_bytes(whole[:length])
        complete = [(end, position) for end, position in ends if start + end <= length]
        with RelayWriter.open(torn, start=GtidPosition.parse("7-7-7")) as relay:
            if complete:
                assert relay.position == complete[-1][1], length
                assert relay_path(torn, 1).stat().st_size == start + complete[-1][0]
                assert relay.recovered_cut_bytes == length - start - complete[-1][0]
            else:  # a whole head tells where the log began, better than whoever opens it
                began = GtidPosition() if length >= start else GtidPosition.parse("7-7-7")
                assert relay.position == began, length
                assert relay_numbers(torn) == []


@settings(max_examples=60)
@given(at=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_flipped_bit_ends_the_log_before_its_group(at: int, bit: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        ends = make(directory)
        path = relay_path(directory, 1)
        data = bytearray(path.read_bytes())
        start = len(data) - ends[-1][0]
        at = start + at % ends[-1][0]
        data[at] ^= 1 << bit
        path.write_bytes(data)
        index_path(directory, 1).unlink()
        with RelayWriter.open(directory) as relay:
            before = [position for end, position in ends if start + end <= at]
            assert relay.position == (before[-1] if before else GtidPosition())


def test_zeros_after_a_power_cut(tmp_path: Path) -> None:
    # A file system may have kept the length and lost the content.
    ends = make(tmp_path)
    path = relay_path(tmp_path, 1)
    data = path.read_bytes()
    start = len(data) - ends[-1][0]
    path.write_bytes(data[: start + ends[1][0]] + bytes(len(data) - start - ends[1][0]))
    index_path(tmp_path, 1).unlink()
    with RelayWriter.open(tmp_path) as relay:
        assert relay.position == ends[1][1]


def test_files_after_a_torn_one_are_dropped(tmp_path: Path) -> None:
    ends = make(tmp_path, max_file_bytes=500)
    numbers = relay_numbers(tmp_path)
    assert len(numbers) >= 3
    for number in numbers[1:]:
        index_path(tmp_path, number).unlink()  # never sealed
    second = relay_path(tmp_path, 2)
    second.write_bytes(second.read_bytes()[:-1])
    with RelayWriter.open(tmp_path) as relay:
        assert relay.position == ends[-1][1]
        assert relay_numbers(tmp_path) == [1]
        assert relay.recovered_cut_bytes > 0


def test_a_gap_between_unsealed_files_ends_the_log(tmp_path: Path) -> None:
    make(tmp_path, max_file_bytes=500)
    last = relay_numbers(tmp_path)[-1]
    relay_path(tmp_path, last - 1).unlink()
    index_path(tmp_path, last - 1).unlink()
    index_path(tmp_path, last).unlink()
    kept = [n for n in relay_numbers(tmp_path) if n < last - 1]
    recovered = recover(tmp_path)
    assert relay_numbers(tmp_path) == kept
    assert recovered.next_file == kept[-1] + 1


def test_a_hole_that_somebody_made_is_refused_and_nothing_is_touched(tmp_path: Path) -> None:
    make(tmp_path, max_file_bytes=500)
    names = {path.name for path in tmp_path.glob("relay.0*")}
    assert len(relay_numbers(tmp_path)) > 2
    relay_path(tmp_path, 2).unlink()
    with pytest.raises(RelayError, match=r"relay\.000002 is missing .* relay\.000003 has been read, move"):
        RelayWriter.open(tmp_path)
    assert {path.name for path in tmp_path.glob("relay.0*")} >= names - {"relay.000002", "relay.000002.idx"}
    for path in tmp_path.glob("relay.000001*"):
        path.unlink()
    with RelayWriter.open(tmp_path):
        assert relay_numbers(tmp_path)[0] == 3


def test_the_sidecar_is_made_again(tmp_path: Path) -> None:
    primary = Primary.dump()
    for seq in range(1, 400):
        primary.transaction(Gtid(seq % 3, 1, seq), (seq * 7 % 3000,))
    with RelayWriter.open(tmp_path) as relay:
        receive(relay, primary.wire(), [9999])
    made = index_path(tmp_path, 1).read_bytes()
    assert len(FileIndexOf(tmp_path).entries) > 5
    index_path(tmp_path, 1).unlink()
    RelayWriter.open(tmp_path).close()
    assert index_path(tmp_path, 1).read_bytes() == made


def FileIndexOf(directory: Path) -> FileIndex:  # noqa: N802
    index = FileIndex(index_path(directory, 1))
    index.refresh()
    return index


@pytest.mark.parametrize("length", [0, 5, INDEX_HEADER.size, INDEX_HEADER.size + 9])
def test_a_torn_sidecar_is_made_again(tmp_path: Path, length: int) -> None:
    ends = make(tmp_path)
    path = index_path(tmp_path, 1)
    made = path.read_bytes()
    path.write_bytes(made[:length])
    with RelayWriter.open(tmp_path) as relay:
        assert relay.position == ends[-1][1]
    assert path.read_bytes() == made


def test_the_sidecar_of_an_early_file_is_made_again(tmp_path: Path) -> None:
    make(tmp_path, max_file_bytes=500)
    made = index_path(tmp_path, 1).read_bytes()
    index_path(tmp_path, 1).unlink()
    RelayWriter.open(tmp_path).close()
    assert index_path(tmp_path, 1).read_bytes() == made


def test_damage_in_an_early_file_is_not_cut_away(tmp_path: Path) -> None:
    make(tmp_path, max_file_bytes=500)
    index_path(tmp_path, 1).unlink()
    path = relay_path(tmp_path, 1)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(RelayError, match=r"relay\.000001"):
        RelayWriter.open(tmp_path)


def test_left_overs_are_removed(tmp_path: Path) -> None:
    make(tmp_path)
    index_path(tmp_path, 9).write_bytes(b"of a purged file")
    (tmp_path / "relay.000001.new").write_bytes(b"half a sidecar")
    RelayWriter.open(tmp_path).close()
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "readers",
        "relay.000001",
        "relay.000001.idx",
        "relay.head",
        "relay.lock",
    ]
