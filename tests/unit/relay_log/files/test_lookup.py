from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from replica.errors import AmbiguousPositionError, DataLossError
from replica.protocol.gtid import BinlogPosition, Gtid, GtidPosition
from replica.relay_log.files import lookup
from replica.relay_log.files.lookup import RelayFiles
from replica.relay_log.location import RelayLocation, relay_path
from replica.relay_log.log import RelayLog
from replica.relay_writer.writer import RelayWriter
from tests.kit.binlog.primary import Primary
from tests.kit.relay.driving import receive
from tests.unit.relay_writer.test_writer import primary_of


def fill(directory: Path, groups: int, *, size: int = 1000, file_bytes: int = 3000) -> GtidPosition:
    with RelayWriter.open(directory, max_file_bytes=file_bytes) as relay:
        receive(relay, primary_of(groups, size).wire())
        return relay.position


def test_numbers_follow_the_writer_and_the_purge_without_listing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = RelayFiles(tmp_path)
    assert files.numbers() == range(0)
    with RelayWriter.open(tmp_path, max_file_bytes=3000) as relay:
        assert files.numbers() == range(0)
        receive(relay, primary_of(20).wire())
        last = relay.committed.file
        assert files.numbers() == range(1, last + 1)
        listed: list[object] = []
        monkeypatch.setattr(Path, "iterdir", lambda folder: listed.append(folder) or iter(()))
        relay.roll()
        assert files.numbers() == range(1, last + 1), "the new file has no group yet"
        more = Primary(sequence=20, timestamp=1_700_000_001)
        more.open_file("bin.000008")
        more.transaction(Gtid(0, 1, 22))
        receive(relay, more.wire())
        assert files.numbers() == range(1, last + 2)
        RelayLog(tmp_path).purge_before(RelayLocation(4, 0))
        assert files.numbers() == range(4, last + 2)
        assert files.numbers() == range(4, last + 2)
        assert RelayFiles(tmp_path).numbers() == range(4, last + 2)
        assert not listed


def test_a_log_that_was_made_anew_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    directory = tmp_path / "relay"
    log = RelayLog(directory)
    fill(directory, 20)
    old = log.locate(GtidPosition.parse("0-1-4,1-1-5"))
    assert old is not None
    shutil.rmtree(directory)
    position = fill(directory, 30, size=50, file_bytes=600)
    assert log.locate(position) is not None
    new = log.locate(GtidPosition.parse("0-1-4,1-1-5"))
    assert new is not None
    assert new != old
    assert new == RelayLog(directory).locate(GtidPosition.parse("0-1-4,1-1-5"))


def test_what_is_kept_in_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "HEADS_IN_MEMORY", 5)
    monkeypatch.setattr(lookup, "INDEXES_IN_MEMORY", 3)
    fill(tmp_path, 60)
    log = RelayLog(tmp_path)
    head = log.head()
    assert head is not None
    assert len(log.ranges(RelayLocation(1, 0), head.location, 1)) > 15
    assert len(log._files._heads) == 5
    assert len(log._files._indexes) == 3


@pytest.mark.parametrize("call", ["locate", "cut", "ranges", "at", "total_bytes"])
def test_a_file_that_goes_while_it_is_looked_for_is_data_loss_or_nothing(tmp_path: Path, call: str) -> None:
    position = fill(tmp_path, 30)
    log = RelayLog(tmp_path)
    head = log.head()
    assert head is not None
    log.locate(position)
    relay_path(tmp_path, 3).unlink()  # in the middle: nobody does that but by hand
    start = RelayLocation(2, 0)
    calls = {
        "locate": lambda: log.locate(GtidPosition.parse("0-1-4,1-1-7")),
        "cut": lambda: log.cut(start, head.location, 1 << 30),
        "ranges": lambda: log.ranges(start, head.location, 1000),
        "at": lambda: log.at(RelayLocation(3, 2000)),
        "total_bytes": log.total_bytes,
    }
    if call == "total_bytes":
        assert calls[call]() > 0
        return
    with pytest.raises(DataLossError, match=r"relay\.000003"):
        calls[call]()


def test_positions_are_found_where_sequence_numbers_went_back(tmp_path: Path) -> None:
    chance = random.Random(3)
    primary, positions, position = Primary(), [], GtidPosition()
    primary.open_file()
    for number in range(120):
        seq = number + 1 if number < 70 else chance.randrange(1, 60) + (number - 70)
        primary.transaction(Gtid(0, 1 + number // 70, seq), (500,))
        position = position.advance(Gtid(0, 1 + number // 70, seq))
        positions.append(position)
    with RelayWriter.open(tmp_path, max_file_bytes=3000) as relay:
        receive(relay, primary.wire())
    log = RelayLog(tmp_path)
    start = RelayLocation(1, 0)
    for position in positions:
        here = log.cut(start, RelayLocation(1 << 40, 0), 1)
        assert here.position == position
        assert log.locate(position, here.primary) == here.location, "told apart by its place"
        if positions.count(position) == 1:
            assert log.locate(position) == here.location
        else:
            with pytest.raises(AmbiguousPositionError, match=f"matches {positions.count(position)} places"):
                log.locate(position)
        start = here.location
    assert len(set(positions)) < len(positions)
    assert log.locate(GtidPosition.parse("0-9-30")) is None
    assert log.locate(positions[70], BinlogPosition("bin.000007", 5)) is None, "another place of the primary"


def test_a_lookup_that_fails_looks_at_each_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, 60)
    log, nowhere = RelayLog(tmp_path), GtidPosition.parse("0-1-3,1-1-4000")
    assert log.locate(nowhere) is None
    entries: list[object] = []
    last = lookup.last_entry
    monkeypatch.setattr(lookup, "last_entry", lambda path: (entries.append(path), last(path))[1])
    assert log.locate(nowhere) is None
    assert len(entries) <= 1
