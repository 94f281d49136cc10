from __future__ import annotations

import errno
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from replica.errors import DiskFullError, RelayError
from replica.protocol.gtid import BinlogPosition, Gtid, GtidPosition
from replica.relay_log.files.index import FileIndex
from replica.relay_log.files.lookup import read_file_head
from replica.relay_log.kernels.stream_record import Cell
from replica.relay_log.location import RelayLocation, index_path, relay_numbers, relay_path
from replica.relay_log.log import RelayLog
from replica.relay_writer.receiver import Receiver
from replica.relay_writer.writer import RelayWriter
from tests.kit.binlog.primary import FILE, Primary, format_description
from tests.kit.relay.driving import feed, receive, stored
from tests.kit.relay.plain_reading import read_plainly
from tests.kit.some import some

if TYPE_CHECKING:
    from pathlib import Path


def primary_of(groups: int, size: int = 1000) -> Primary:
    primary = Primary.dump()
    for seq in range(1, groups + 1):
        primary.transaction(Gtid(seq % 2, 1, seq), (size,))
    return primary


def test_a_fresh_directory_stands_at_its_start(tmp_path: Path) -> None:
    start = GtidPosition.parse("0-1-5,3-1-7")
    with RelayWriter.open(tmp_path / "new", start=start) as relay:
        assert relay.position == start
        assert relay.head.location == RelayLocation(1, 0)
        assert RelayLog(tmp_path / "new").locate(start) == RelayLocation(1, 0)


def test_head_of_a_relay_file(tmp_path: Path) -> None:
    start = GtidPosition.parse("0-1-5")
    with RelayWriter.open(tmp_path, start=start) as relay:
        receive(relay, primary_of(2).wire())
    head = read_file_head(relay_path(tmp_path, 1))
    assert head.position == start
    assert head.primary.file == FILE
    assert head.checksum
    assert head.format == format_description(Primary().checksum)


def test_a_new_file_at_the_size_limit_starts_at_a_group_end(tmp_path: Path) -> None:
    primary = primary_of(50)
    with RelayWriter.open(tmp_path, max_file_bytes=10_000) as relay:
        receive(relay, primary.wire(), [7000])
        numbers = relay_numbers(tmp_path)
        assert len(numbers) > 4
        files, ends = stored(tmp_path)
        plain = read_plainly(primary.wire())
        assert b"".join(files) == plain.files[0]
        assert [gtid for of in ends for _, gtid, _, _ in of] == [gtid for _, gtid, _, _ in plain.ends[0]]
        for number, before in zip(numbers[1:], ends, strict=False):
            head = read_file_head(relay_path(tmp_path, number))
            assert head.primary == BinlogPosition(FILE, before[-1][3])
        assert all(relay_path(tmp_path, n).stat().st_size < 13_000 for n in numbers)


def test_complete_files_are_sealed(tmp_path: Path) -> None:
    with RelayWriter.open(tmp_path, max_file_bytes=10_000) as relay:
        receive(relay, primary_of(30).wire())
    for number in some(relay_numbers(tmp_path)):
        index = FileIndex(index_path(tmp_path, number))
        index.refresh()
        assert index.entries[-1].sealed
        assert index.entries[-1].end == relay_path(tmp_path, number).stat().st_size


def test_reopening_goes_on_where_it_ended(tmp_path: Path) -> None:
    first, second = primary_of(3), Primary(sequence=3)
    with RelayWriter.open(tmp_path) as relay:
        receive(relay, first.wire())
        head = relay.head
    with RelayWriter.open(tmp_path, start=GtidPosition.parse("9-9-9")) as relay:
        assert relay.head == head
        second.open_file("bin.000008")
        second.transaction(Gtid(0, 1, 4))
        receive(relay, second.wire())
        assert relay.position == GtidPosition.parse("0-1-4,1-1-3")
        assert relay.committed > head.location


def test_a_file_without_a_group_leaves_no_gap_in_the_numbers(tmp_path: Path) -> None:
    primary = primary_of(1)
    for name in ("bin.000008", "bin.000009", "bin.000010"):
        primary.rotate(name)
    primary.transaction(Gtid(0, 1, 9))
    with RelayWriter.open(tmp_path) as relay:
        receive(relay, primary.wire())
        assert relay_numbers(tmp_path) == [1, 2]
        assert read_file_head(relay_path(tmp_path, 2)).primary.file == "bin.000010"


def test_another_server_with_the_same_file_name_gets_its_own_relay_file(tmp_path: Path) -> None:
    first, other = primary_of(1), Primary()
    other.open_file()
    other.events[1] = format_description(other.checksum, timestamp=1_800_000_000)
    other.transaction(Gtid(0, 2, 3))
    with RelayWriter.open(tmp_path) as relay:
        receive(relay, first.wire())
        receive(relay, other.wire())
        assert relay_numbers(tmp_path) == [1, 2]


def test_what_a_dump_changes_in_the_format_description_makes_no_new_file(tmp_path: Path) -> None:
    first, again = primary_of(1), Primary()
    again.open_file()
    again.events[1] = format_description(again.checksum, created=1_700_000_000)
    again.transaction(Gtid(0, 1, 3))
    with RelayWriter.open(tmp_path) as relay:
        receive(relay, first.wire())
        receive(relay, again.wire())
        assert relay_numbers(tmp_path) == [1]


def test_the_open_group_is_never_published_and_rollback_removes_it(tmp_path: Path) -> None:
    primary = primary_of(2)
    count = len(primary.events)
    primary.transaction(Gtid(0, 1, 3), (50_000,), end="")
    with RelayWriter.open(tmp_path) as relay:
        receive(relay, primary.wire(), [10_000])
        path, committed = relay_path(tmp_path, 1), relay.committed
        assert path.stat().st_size > committed.offset + 50_000
        head = RelayLog(tmp_path).head()
        assert head is not None
        assert head.location == committed
        relay.rollback()
        assert path.stat().st_size == committed.offset
    assert count


def test_restart_forgets_everything_but_the_numbers(tmp_path: Path) -> None:
    primary = primary_of(3)
    with RelayWriter.open(tmp_path) as relay:
        receive(relay, primary.wire())
        relay.restart(GtidPosition.parse("0-1-100"))
        assert relay.position == GtidPosition.parse("0-1-100")
        assert relay_numbers(tmp_path) == []
        later = Primary.dump(Gtid(0, 1, 101))
        receive(relay, later.wire())
        assert relay.committed.file == 2
        assert RelayLog(tmp_path).locate(GtidPosition.parse("0-1-100")) is not None


def test_a_second_writer_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    with RelayWriter.open(tmp_path), pytest.raises(RelayError, match=str(os.getpid())):
        RelayWriter.open(tmp_path)
    RelayWriter.open(tmp_path).close()


def test_a_failed_write_is_an_error_and_opening_again_recovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    primary = primary_of(20)
    wire = primary.wire()
    relay = RelayWriter.open(tmp_path)
    receiver = Receiver(relay, semi_sync=False)
    feed(receiver, wire[:5000])
    position = relay.position
    real, room = os.pwrite, [100]

    def full_disk(descriptor: int, data: memoryview, offset: int) -> int:
        if room:
            return real(descriptor, data[: room.pop()], offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full_disk)
    with pytest.raises(DiskFullError, match="No space left"):
        feed(receiver, wire[5000:])
    monkeypatch.undo()
    with pytest.raises(DiskFullError, match="No space left"):
        relay.sync()
    relay.close()
    with RelayWriter.open(tmp_path) as again:
        assert again.position == position


def test_sync_covers_files_that_are_still_being_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fdatasync
    monkeypatch.setattr(
        os, "fdatasync", lambda descriptor: (synced.append(os.fstat(descriptor).st_ino), real(descriptor))
    )
    with RelayWriter.open(tmp_path, max_file_bytes=5000) as relay:
        receive(relay, primary_of(20).wire())
        relay.sync()
        files = [relay_path(tmp_path, n).stat().st_ino for n in relay_numbers(tmp_path)]
        assert len(files) > 2
        assert set(files) <= set(synced)


def test_a_position_in_the_middle_of_the_primarys_file(tmp_path: Path) -> None:
    primary = primary_of(2)
    with RelayWriter.open(tmp_path) as relay:
        receive(relay, primary.wire())
        assert relay.head.primary == BinlogPosition(FILE, primary.position)
        assert relay.head.timestamp == primary.timestamp
        assert relay.state[Cell.groups] == 2


def test_a_writer_that_was_killed_leaves_a_directory_that_opens(tmp_path: Path) -> None:
    # What a kill leaves is what lies there now: no close, no seal, an open group at the end.
    primary = primary_of(10)
    primary.transaction(Gtid(0, 1, 11), (5000,), end="")
    with RelayWriter.open(tmp_path / "live", max_file_bytes=4000) as relay:
        receive(relay, primary.wire())
        position = relay.position
        shutil.copytree(tmp_path / "live", tmp_path / "crashed")
    with RelayWriter.open(tmp_path / "crashed") as again:
        assert again.position == position
        assert again.recovered_cut_bytes > 5000
    assert stored(tmp_path / "crashed") == stored(tmp_path / "live")
