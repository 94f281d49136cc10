from __future__ import annotations

import random
import shutil
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from replica.errors import DataLossError
from replica.protocol.gtid import BinlogPosition, Gtid, GtidPosition
from replica.relay_log.files import lookup
from replica.relay_log.files.index import FileIndex
from replica.relay_log.files.scan import group_ends
from replica.relay_log.location import RelayLocation, index_path, relay_numbers, relay_path
from replica.relay_log.log import RelayLog
from replica.relay_log.walks.last_event import fingerprint_at, last_event
from replica.relay_writer.writer import RelayWriter
from tests.kit.binlog.primary import FILE, Primary
from tests.kit.relay.driving import feed, receive, stored
from tests.kit.some import some

START = GtidPosition.parse("0-1-10,5-1-3")


class Place(NamedTuple):
    location: RelayLocation
    position: GtidPosition
    primary: int


def fill(directory: Path, seed: int = 1, groups: int = 1500, max_file_bytes: int = 400_000) -> list[Place]:
    """A log of several files; groups from 100 bytes to 200 KB in three domains; every group end."""
    chance = random.Random(seed)
    primary, seqs = Primary(zero_positions=True), {0: 10, 5: 3, 9: 0}
    primary.open_file()
    for _ in range(groups):
        domain = chance.choice([0, 0, 0, 5, 9])
        seqs[domain] += chance.choice([1, 1, 1, 7])
        size = 150_000 if chance.random() < 0.01 else chance.randrange(1500)
        primary.transaction(Gtid(domain, 1, seqs[domain]), (size,))
    with RelayWriter.open(directory, start=START, max_file_bytes=max_file_bytes) as relay:
        receive(relay, primary.wire(), [65_536])
    position, places = START, []
    for number, ends in zip(relay_numbers(directory), stored(directory)[1], strict=True):
        data_start = relay_path(directory, number).stat().st_size - ends[-1][0]
        for end, gtid, _, primary_position in ends:
            position = position.advance(gtid)
            places.append(Place(RelayLocation(number, data_start + end), position, primary_position))
    return places


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[RelayLog, list[Place]]:
    directory = tmp_path_factory.mktemp("relay")
    places = fill(directory)
    assert len(relay_numbers(directory)) > 3
    return RelayLog(directory), places


def test_every_position_is_located_where_its_groups_end(filled: tuple[RelayLog, list[Place]]) -> None:
    log, places = filled
    for place in some(places):
        found = log.locate(place.position)
        assert found is not None
        # The end of one file and the start of the next are one place.
        assert found == place.location or (found.file == place.location.file + 1 and found.offset < 1000)


def test_the_last_group_before_the_start_of_a_file_is_in_the_one_before(filled: tuple[RelayLog, list[Place]]) -> None:
    log, places = filled
    crossed = 0
    for (begin, end), after in zip(pairwise(places), places[2:], strict=False):
        same = log.last_group(end.location)
        assert log.group_end(end.location) == end.location
        assert same == begin.location or same.file == end.location.file > begin.location.file
        if after.location.file > end.location.file:
            start = log.ranges(RelayLocation(after.location.file, 0), after.location, 1 << 40)[0].start
            assert log.group_end(RelayLocation(after.location.file, start)) == end.location
            assert log.last_group(RelayLocation(after.location.file, start)) == same
            assert last_event(log, RelayLocation(after.location.file, start)) == last_event(log, end.location)
            crossed += 1
    assert crossed > 2
    first = log.locate(START)
    assert first is not None
    assert log.group_end(first) is None
    assert last_event(log, first) is None


def test_a_file_that_is_removed_while_its_last_group_is_read_is_named(
    filled: tuple[RelayLog, list[Place]], tmp_path: Path
) -> None:
    log, places = filled
    copy, end = RelayLog(Path(shutil.copytree(log.directory, tmp_path / "copy"))), places[-1].location
    assert fingerprint_at(copy, end) is not None
    relay_path(copy.directory, end.file).unlink()
    for read in (fingerprint_at, last_event):
        with pytest.raises(DataLossError, match=rf"relay\.{end.file:06d} is no longer"):
            read(copy, end)


def test_a_lookup_reads_64_kb_however_long_the_log_is(
    filled: tuple[RelayLog, list[Place]], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, places = filled[0].directory, filled[1]
    read: list[int] = []

    def counted(path: Path, begin: int, end: int, **more: object) -> object:
        read.append(end - begin)
        return group_ends(path, begin, end, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("replica.relay_log.log.group_ends", counted)
    heads: list[Path] = []
    real = lookup.read_file_head
    monkeypatch.setattr(lookup, "read_file_head", lambda path: (heads.append(path), real(path))[1])
    log = RelayLog(directory)
    for place in places[::37]:
        read.clear()
        assert log.locate(place.position) is not None
        assert sum(read) <= 65_536
    assert len(heads) == len(set(heads)), "each file's start is read once"


def test_the_start_is_located_before_the_first_group(filled: tuple[RelayLog, list[Place]]) -> None:
    log, places = filled
    found = log.locate(START)
    assert found is not None
    assert found < places[0].location
    assert log.first_position() == START


def test_positions_that_are_no_place_of_the_log(filled: tuple[RelayLog, list[Place]]) -> None:
    log, places = filled
    last = places[-1].position
    assert log.locate(GtidPosition()) is None
    assert log.locate(last.advance(Gtid(0, 1, 10**9))) is None
    assert log.locate(last.advance(Gtid(0, 1, 10))) is None, "domain 0 is far behind the others"
    assert log.locate(last.advance(Gtid(0, 2, last[0].seq_no))) is None, "another server's group"
    middle = places[len(places) // 2].position
    assert log.locate(middle.advance(Gtid(77, 1, 1))) is None, "a domain this log has never seen"


def test_a_cut_is_the_last_group_end_within_the_limit(filled: tuple[RelayLog, list[Place]]) -> None:
    log, places = filled
    chance = random.Random(5)
    sizes = {n: relay_path(log.directory, n).stat().st_size for n in relay_numbers(log.directory)}
    data_starts = {n: log.ranges(RelayLocation(n, 0), RelayLocation(n, sizes[n]), 1 << 40)[0].start for n in sizes}

    def distance(a: RelayLocation, b: RelayLocation) -> int:
        if a.file == b.file:
            return b.offset - max(a.offset, data_starts[a.file])
        between = sum(sizes[n] - data_starts[n] for n in range(a.file + 1, b.file))
        return sizes[a.file] - max(a.offset, data_starts[a.file]) + between + b.offset - data_starts[b.file]

    for _ in range(300):
        i = chance.randrange(len(places) - 1)
        j = chance.randrange(i + 1, len(places))
        limit = chance.choice([1, 100, 3000, 65_536, 70_000, 300_000, 1 << 30])
        start, end = places[i].location, places[j].location
        cut = log.cut(start, end, limit)
        expected = [p for p in places[i + 1 : j + 1] if distance(start, p.location) <= limit] or [places[i + 1]]
        assert cut.location == expected[-1].location
        assert cut.position == expected[-1].position
        assert cut.primary == BinlogPosition(FILE, expected[-1].primary)
        assert cut.timestamp == 1_700_000_000


def test_a_cut_of_nothing_is_its_end(filled: tuple[RelayLog, list[Place]]) -> None:
    log, places = filled
    for place in (places[0], places[700], places[-1]):
        cut = log.cut(place.location, place.location, 1000)
        assert (cut.location, cut.position) == (place.location, place.position)


def test_ranges_are_the_bytes_between_in_whole_groups(filled: tuple[RelayLog, list[Place]]) -> None:
    log, places = filled
    ends = {p.location for p in places}
    files, _ = stored(log.directory)
    whole = b"".join(files)
    before = log.locate(START)
    assert before is not None
    for target in (1, 10_000, 200_000, 1 << 30):
        ranges = log.ranges(before, places[-1].location, target)
        data = b""
        for one in ranges:
            assert RelayLocation(int(one.path[-6:]), one.end) in ends
            assert one.checksum
            with open(one.path, "rb") as file:  # noqa: PTH123
                file.seek(one.start)
                data += file.read(one.end - one.start)
        assert data == whole
        if target == 10_000:
            assert len(ranges) > len(relay_numbers(log.directory)) + 10


def test_a_range_inside_one_stretch(filled: tuple[RelayLog, list[Place]]) -> None:
    log, places = filled
    start, end = places[10], places[14]
    [one] = log.ranges(start.location, end.location, 1 << 20)
    assert (one.start, one.end) == (start.location.offset, end.location.offset)
    assert log.ranges(end.location, end.location, 1 << 20) == []


def test_purging(tmp_path: Path) -> None:
    places = fill(tmp_path, groups=600, max_file_bytes=100_000)
    log = RelayLog(tmp_path)
    before = log.total_bytes()
    numbers = relay_numbers(tmp_path)
    keep = next(p for p in places if p.location.file == numbers[2])
    assert log.purge_before(keep.location) == 2
    assert log.purge_before(keep.location) == 0
    assert relay_numbers(tmp_path) == numbers[2:]
    assert log.total_bytes() < before
    assert not index_path(tmp_path, numbers[0]).exists()
    assert log.locate(START) is None
    assert log.locate(keep.position) == keep.location
    with pytest.raises(DataLossError, match=r"relay\.000001"):
        log.cut(RelayLocation(1, 0), keep.location, 1000)
    with pytest.raises(DataLossError, match=r"relay\.000001"):
        log.ranges(places[0].location, keep.location, 1000)
    last = places[-1].location
    log.purge_before(RelayLocation(last.file + 5, 0))
    assert log.locate(places[-1].position) == last


def test_a_reader_beside_the_writer_sees_each_commit(tmp_path: Path) -> None:
    log = RelayLog(tmp_path)
    assert log.head() is None
    assert log.locate(GtidPosition()) is None
    primary = Primary.dump()
    with RelayWriter.open(tmp_path, max_file_bytes=200_000) as relay:
        assert log.locate(GtidPosition()) == RelayLocation(1, 0)
        assert log.ranges(RelayLocation(1, 0), RelayLocation(1, 0), 100) == []
        assert not relay_path(tmp_path, 1).exists()
        assert log.at(RelayLocation(1, 0)) == relay.head
        with pytest.raises(DataLossError, match=r"relay\.000002"):
            log.at(RelayLocation(2, 0))
        start = RelayLocation(1, 0)
        receiver = receive(relay, primary.wire())
        for seq in range(1, 300):
            primary.events.clear()
            primary.transaction(Gtid(0, 1, seq), (seq * 17 % 4000,))
            feed(receiver, primary.wire())
            head = log.head()
            assert head == relay.head
            assert log.locate(head.position) == head.location
            cut = log.cut(start, head.location, 1)
            assert cut.position == GtidPosition((Gtid(0, 1, seq),))
            start = cut.location
        assert log.head() == relay.head


def test_sequence_numbers_that_go_back(tmp_path: Path) -> None:
    # Without gtid_strict_mode a server may write 0-2-5 behind 0-1-900.
    chance = random.Random(3)
    primary = Primary.dump()
    gtids = [Gtid(0, chance.choice([1, 2]), seq) for seq in chance.sample(range(1, 100_000), 900)]
    for gtid in gtids:
        primary.transaction(gtid, (chance.randrange(800),))
    with RelayWriter.open(tmp_path, max_file_bytes=300_000) as relay:
        receive(relay, primary.wire())
    log = RelayLog(tmp_path)
    ends = [end for of in stored(tmp_path)[1] for end in of]
    for index in range(0, len(gtids), 50):
        found = log.locate(GtidPosition((gtids[index],)))
        assert found is not None
        following = log.cut(found, RelayLocation(1 << 40, 0), 1) if index + 1 < len(gtids) else None
        assert following is None or following.position == GtidPosition((gtids[index + 1],))
    assert len(ends) == len(gtids)
    assert log.locate(GtidPosition((Gtid(0, 3, 5),))) is None


def test_the_index_has_an_entry_at_least_every_64_kb(filled: tuple[RelayLog, list[Place]]) -> None:
    log, places = filled
    positions = {p.location: p for p in places}
    for number in some(relay_numbers(log.directory)):
        index = FileIndex(index_path(log.directory, number))
        index.refresh()
        previous = 0
        for entry in index.entries:
            place = positions[RelayLocation(number, entry.end)]
            assert entry.position == place.position
            assert entry.primary_position == place.primary
            strictly_between = [
                p.location.offset
                for p in places
                if p.location.file == number and max(previous, 1) < p.location.offset < entry.end
            ]
            assert all(offset - previous < 66_000 for offset in strictly_between)
            previous = entry.end
        assert index.entries[-1].sealed
