"""Single groups of a relay log by time, by place and by GTID, against a plain walk over what was put into it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from replica.protocol.gtid import BinlogPosition, Gtid, GtidPosition
from replica.relay_log.directory.head import HeadFile, Snapshot
from replica.relay_log.groups.groups import DISORDER_S, GtidSearch, RelayGroups
from replica.relay_log.location import RelayLocation, index_path, relay_numbers, relay_path
from replica.relay_log.log import RelayLog
from replica.relay_writer.writer import RelayWriter
from tests.kit.binlog.primary import Primary
from tests.kit.relay.driving import receive

if TYPE_CHECKING:
    from pathlib import Path

T0 = 1_700_000_000
START = GtidPosition.parse("0-1-10,5-1-3")


class Put(NamedTuple):
    """A group as it was put in: the position before it and its bytes in the primary's file."""

    gtid: Gtid
    time_s: int
    before: GtidPosition
    file: str
    begin: int
    end: int


def fill(directory: Path, times: list[int], max_file_bytes: int = 300_000) -> list[Put]:
    """Groups of these times in two domains and three files of the primary, in relay files of a few; some are large."""
    chance = random.Random(5)
    primary, position, sequences, groups = Primary(zero_positions=True), START, {0: 10, 5: 3}, []
    primary.open_file("bin.000001")
    for number, time_s in enumerate(times):
        if number and number % (len(times) // 3 + 1) == 0:
            primary.checkpoint()
            primary.rotate(f"bin.{2 * number // len(times) + 2:06d}")
        domain = chance.choice([0, 0, 5])
        sequences[domain] += 1
        gtid, begin = Gtid(domain, 1, sequences[domain]), primary.position
        primary.timestamp = time_s
        primary.transaction(gtid, (chance.choice([50, 50, 400, 90_000]),))
        groups.append(Put(gtid, time_s, position, primary.file, begin, primary.position))
        position = position.advance(gtid)
    with RelayWriter.open(directory, start=START, max_file_bytes=max_file_bytes) as relay:
        receive(relay, primary.wire(), [65_536])
    return groups


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Put]]:
    """Times that grow by 0 to 9 s a group and go back by up to 20 s now and then."""
    chance, now, times = random.Random(7), T0, []
    for _ in range(150):
        now += chance.choice([0, 1, 1, 9])
        times.append(now - (chance.randrange(20) if chance.random() < 0.2 else 0))
    directory = tmp_path_factory.mktemp("log") / "relay"
    groups = fill(directory, times)
    assert len(relay_numbers(directory)) > 5
    return directory, groups


def test_every_time_stands_for_the_first_group_that_late(log: tuple[Path, list[Put]]) -> None:
    directory, groups = log
    looked = RelayGroups(directory)
    for time_s in range(T0 - 2, groups[-1].time_s + 30):
        wanted = next((group for group in groups if group.time_s >= time_s), None)
        found = looked.first_at(time_s)
        if wanted is None:
            assert found is None
        else:
            assert found is not None
            assert (found.gtid, found.after.timestamp) == (wanted.gtid, wanted.time_s)
            assert found.before.position == wanted.before


def test_a_search_goes_on_from_where_the_last_one_ended(log: tuple[Path, list[Put]]) -> None:
    directory, groups = log
    looked = RelayGroups(directory)
    middle = looked.find(GtidSearch(groups[70].gtid))
    assert middle is not None
    found = looked.first_at(T0, middle.after.location)
    assert found is not None
    assert found.gtid == groups[71].gtid


def test_groups_that_lie_early_by_less_than_the_disorder_are_found_before_a_late_entry(tmp_path: Path) -> None:
    times = [T0] * 40 + [T0 + 1000] * 3 + [T0 + 1000 - DISORDER_S + 1] * 40 + [T0 + 1000] * 40
    groups = fill(tmp_path / "relay", times)
    found = RelayGroups(tmp_path / "relay").first_at(T0 + 1000)
    assert found is not None
    assert found.gtid == groups[40].gtid


def test_one_group_with_an_odd_time_does_not_hide_the_others(tmp_path: Path) -> None:
    times = [T0 + at for at in range(150)]
    times[60], times[100] = 5, 6  # SET timestamp in some session
    groups = fill(tmp_path / "relay", times)
    looked = RelayGroups(tmp_path / "relay")
    for at in (59, 61, 99, 101, 149):
        found = looked.first_at(T0 + at)
        assert found is not None
        assert found.gtid == groups[at].gtid


def test_every_gtid_is_found_with_the_place_and_the_position_before_it(log: tuple[Path, list[Put]]) -> None:
    directory, groups = log
    looked = RelayGroups(directory)
    for group in groups:
        found = looked.find(GtidSearch(group.gtid))
        assert found is not None
        assert (found.before.position, found.begins, found.after.primary.position) == group[2:3] + group[4:6]
    assert looked.find(GtidSearch(Gtid(0, 2, 15))) is None
    assert looked.find(GtidSearch(Gtid(7, 1, 1))) is None


def test_every_place_of_the_primary_is_between_two_groups_or_inside_of_one(log: tuple[Path, list[Put]]) -> None:
    directory, groups = log
    looked = RelayGroups(directory)
    for before, group in zip([None, *groups], groups, strict=False):
        at_once = before is not None and before.end == group.begin and before.file == group.file
        for place, inside in ((group.begin, not at_once and before is not None), (group.begin + 1, True)):
            found = looked.around(BinlogPosition(group.file, place))
            assert found is not None
            assert found.group is not None
            assert (found.before.position, found.group.gtid) == (group.before, group.gtid)
            first = before is None or before.file != group.file
            assert found.inside is (inside if not first else place > group.begin)
    last = groups[-1]
    end = looked.around(BinlogPosition(last.file, last.end))
    assert end is not None
    assert end.group is None
    assert end.before.position == last.before.advance(last.gtid)
    assert looked.around(BinlogPosition(last.file, last.end + 1)) is None
    assert looked.around(BinlogPosition("bin.000009", 4)) is None


def test_the_end_of_a_file_of_the_primary_is_before_the_first_group_of_the_next(log: tuple[Path, list[Put]]) -> None:
    directory, groups = log
    looked = RelayGroups(directory)
    border = next(at for at, group in enumerate(groups) if group.file != groups[0].file)
    for place in (BinlogPosition(groups[0].file, groups[border - 1].end), BinlogPosition(groups[border].file, 4)):
        found = looked.around(place)
        assert found is not None
        assert found.group is not None
        assert (found.before.position, found.group.gtid) == (groups[border].before, groups[border].gtid)
        assert not found.inside


def test_groups_follow_each_other(log: tuple[Path, list[Put]]) -> None:
    directory, groups = log
    looked, at, seen = RelayGroups(directory), RelayLocation(1, 0), []
    while (found := looked.next_to(at)) is not None:
        seen.append(found.gtid)
        at = found.after.location
    assert seen == [group.gtid for group in groups]


def test_a_log_whose_oldest_files_are_gone_begins_with_the_next(tmp_path: Path) -> None:
    groups = fill(tmp_path / "relay", [T0 + 100 * at for at in range(60)])
    looked = RelayGroups(tmp_path / "relay")
    first = next(
        found for group in groups if (found := looked.find(GtidSearch(group.gtid))) and found.after.location.file == 3
    )
    for number in (1, 2):
        relay_path(tmp_path / "relay", number).unlink()
        index_path(tmp_path / "relay", number).unlink()
    assert looked.first_at(T0) == RelayGroups(tmp_path / "relay").first_at(T0) == first
    assert looked.find(GtidSearch(groups[0].gtid)) is None
    assert looked.around(BinlogPosition(groups[0].file, groups[0].begin)) is None


def test_groups_that_are_written_and_not_published_yet_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer gives a sidecar its entries before it publishes the end that they are up to."""
    log, looked = RelayLog(tmp_path), RelayGroups(tmp_path)
    publish, looks = HeadFile.publish, 0

    def look_and_publish(file: HeadFile, snapshot: Snapshot) -> None:
        nonlocal looks
        head, coming = log.head(), snapshot.head
        if head is not None and coming.location.offset:
            for place in (coming.primary, BinlogPosition(coming.primary.file, coming.primary.position + 1)):
                around = looked.around(place)
                assert around is None or around.before.location <= head.location
            assert log.locate(coming.position) is None
            for gtid in set(coming.position) - set(head.position):
                assert looked.find(GtidSearch(gtid)) is None
            assert looked.first_at(coming.timestamp + 1) is None
            looks += 1
        publish(file, snapshot)

    monkeypatch.setattr(HeadFile, "publish", look_and_publish)
    fill(tmp_path, list(range(T0, T0 + 150)))
    assert looks > 20
