"""XA groups in the relay log: marked while they are received, found again by reading the marked parts alone."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import pytest

from replica.errors import DataLossError, ProtocolError, RelayError
from replica.protocol.gtid import Gtid, GtidPosition
from replica.relay_log.files.index import FileIndex, IndexEntry
from replica.relay_log.location import RelayLocation, index_path, relay_numbers
from replica.relay_log.log import RelayLog
from replica.relay_log.walks import xa as relay_xa
from replica.relay_log.walks.xa import follow
from replica.relay_writer.writer import RelayWriter
from tests.kit.binlog.primary import Primary
from tests.kit.relay.driving import receive

if TYPE_CHECKING:
    from pathlib import Path

START = RelayLocation(1, 0)


def filled(directory: Path, primary: Primary, *, max_file_bytes: int = 1 << 20) -> tuple[RelayLog, RelayLocation]:
    with RelayWriter.open(directory, max_file_bytes=max_file_bytes) as relay:
        receive(relay, primary.wire(), [9999])
        return RelayLog(directory), relay.head.location


def rare(groups: int = 800) -> Primary:
    """Long stretches without XA; x is prepared in one and committed in another, y never ended."""
    primary = Primary.dump()
    for seq in range(1, groups):
        match seq:
            case 100:
                primary.xa_prepare("x", Gtid(0, 1, seq), (5000,))
            case 101 | 500:
                primary.xa_prepare("y", Gtid(0, 1, seq))
            case 600:
                primary.xa_end("x", gtid=Gtid(0, 1, seq))
            case _:
                primary.transaction(Gtid(0, 1, seq), (1000,))
    return primary


def test_only_the_marked_parts_are_read(tmp_path: Path) -> None:
    log, end = filled(tmp_path, rare())
    marked = [(part.start, part.end) for _, part in log.xa_stretches(START, end)]
    assert 3 <= len(marked) <= 4
    assert sum(stop - start for start, stop in marked) < 6 * (64 << 10)
    assert all(one[1] <= two[0] for one, two in itertools.pairwise(marked))


@pytest.mark.parametrize("odd", [(), (40,), (3, 17, 18), (200,)])
@pytest.mark.parametrize("restarts", [False, True])
def test_files_without_xa_are_passed_by_and_none_with_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: tuple[int, ...], *, restarts: bool
) -> None:
    primary = Primary()
    position = GtidPosition()
    for first in range(1, 300, 100 if restarts else 300):  # each start recovers, and goes on behind what it finds
        primary.events.clear()
        primary.open_file(f"bin.{first:06d}")
        for seq in range(first, first + (100 if restarts else 300)):
            if seq in odd:
                primary.xa_prepare(f"x{seq}", Gtid(0, 1, seq))
            else:
                primary.transaction(Gtid(0, 1, seq), (1000,))
        with RelayWriter.open(tmp_path, max_file_bytes=5000) as relay:
            receive(relay, primary.wire())
            end, position = relay.head.location, relay.position
    assert end.file > 30
    opened: list[Path] = []
    real = FileIndex.refresh
    monkeypatch.setattr(FileIndex, "refresh", lambda index: (opened.append(index.path), real(index))[1])
    log = RelayLog(tmp_path)
    (needs,), still_open = follow(log, [(START, end)], ())
    assert [group.gtid.seq_no for group in still_open] == list(odd)
    assert len(set(opened)) <= 2 + len(odd), "the first, the last, and those with XA groups"
    assert str(position) == "0-1-300"
    assert needs.unknown == ()


def test_what_is_open_and_what_a_range_needs(tmp_path: Path) -> None:
    log, end = filled(tmp_path, rare())
    places = {seq: log.locate(GtidPosition((Gtid(0, 1, seq),))) for seq in (99, 100, 300, 499, 599, 600)}
    at = {seq: place for seq, place in places.items() if place is not None}
    assert len(at) == 6
    (first, second), prepared = follow(log, [(START, at[300]), (at[300], end)], ())
    assert first.carried == first.unknown == second.unknown == ()
    (x,) = second.carried
    assert (x.location, x.bytes.end, x.bytes.start) == (at[99], at[100].offset, at[99].offset)
    # y was prepared again: only the later one counts.
    (y,) = prepared
    assert (y.xid.gtrid, y.location) == (b"y", at[499])
    (whole,), _ = follow(log, [(START, end)], ())
    assert whole.carried == ()
    (alone,), _ = follow(log, [(at[300], end)], ())
    assert [group.gtid for group in alone.unknown] == [Gtid(0, 1, 600)]
    assert log.at(x.location).position == GtidPosition((Gtid(0, 1, 99),))


def test_positions_at_every_group_end_and_at_the_start_of_a_file(tmp_path: Path) -> None:
    primary = Primary.dump()
    for seq in range(1, 30):
        primary.transaction(Gtid(0, 1, seq), (300,))
    log, _ = filled(tmp_path, primary, max_file_bytes=2000)
    assert len(relay_numbers(tmp_path)) > 3
    for seq in range(30):
        position = GtidPosition((Gtid(0, 1, seq),)) if seq else GtidPosition()
        place = log.locate(position)
        assert place is not None
        assert log.at(place).position == position
    log.purge_before(RelayLocation(3, 0))
    with pytest.raises(DataLossError):
        log.at(RelayLocation(1, 4))


@pytest.mark.parametrize("seed", range(8))
def test_random_logs_against_plain_bookkeeping(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    primary = Primary.dump()
    opened: dict[str, int] = {}
    commits: list[tuple[int, int]] = []  # sequence numbers of prepare and commit
    for seq in range(1, 300):
        kind, name = chance.random(), chance.choice("abcdefgh")
        if kind < 0.5:
            primary.transaction(Gtid(0, 1, seq), (chance.randrange(1, 4000),))
        elif name in opened:
            verb = chance.choice(("COMMIT", "ROLLBACK"))
            primary.xa_end(name, verb, Gtid(0, 1, seq))
            before = opened.pop(name)
            if verb == "COMMIT":
                commits.append((before, seq))
        else:
            primary.xa_prepare(name, Gtid(0, 1, seq), (chance.randrange(1, 4000),))
            opened[name] = seq
    log, end = filled(tmp_path, primary, max_file_bytes=chance.choice((20_000, 1 << 20)))
    places = [START]
    cuts = sorted(chance.sample(range(1, 299), 5))
    for seq in cuts:
        place = log.locate(GtidPosition((Gtid(0, 1, seq),)))
        assert place is not None
        places.append(place)
    places.append(end)
    needs, prepared = follow(log, list(itertools.pairwise(places)), ())
    assert [log.at(RelayLocation(p.location.file, p.bytes.end)).position for p in prepared] == [
        GtidPosition((Gtid(0, 1, seq),)) for seq in opened.values()
    ]
    borders = [0, *cuts, 299]
    for need, low, high in zip(needs, borders, borders[1:], strict=False):
        ends = [log.at(RelayLocation(p.location.file, p.bytes.end)).position[0].seq_no for p in need.carried]
        assert ends == sorted(before for before, commit in commits if before <= low < commit <= high)
        assert need.unknown == ()


def test_marks_are_made_again_by_recovery(tmp_path: Path) -> None:
    log, end = filled(tmp_path, rare(), max_file_bytes=300_000)
    marked = list(log.xa_stretches(START, end))
    made = {number: index_path(tmp_path, number).read_bytes() for number in relay_numbers(tmp_path)}
    assert any(entry.has_xa for number in made for entry in _entries(tmp_path, number))
    for number in made:
        index_path(tmp_path, number).unlink()
    RelayWriter.open(tmp_path).close()
    assert {number: index_path(tmp_path, number).read_bytes() for number in made} == made
    assert list(RelayLog(tmp_path).xa_stretches(START, end)) == marked


def test_sidecars_without_marks_are_replaced(tmp_path: Path) -> None:
    # As an older version of the program has left them.
    filled(tmp_path, rare(), max_file_bytes=300_000)
    made = {number: index_path(tmp_path, number).read_bytes() for number in relay_numbers(tmp_path)}
    for number, content in made.items():
        index_path(tmp_path, number).write_bytes(content[:8] + (1).to_bytes(4, "little") + content[12:])
    with pytest.raises(RelayError, match="version 2"):
        _entries(tmp_path, 1)
    RelayWriter.open(tmp_path).close()
    assert {number: index_path(tmp_path, number).read_bytes() for number in made} == made


def test_more_open_transactions_than_any_server_has_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_xa, "MAX_OPEN", 3)
    primary = Primary.dump()
    for seq, name in enumerate("abcd", 1):
        primary.xa_prepare(name, Gtid(0, 1, seq))
    log, end = filled(tmp_path, primary)
    with pytest.raises(ProtocolError, match=r"more than 3 XA transactions .* X'61',X'',1\. .*XA RECOVER"):
        follow(log, [(START, end)], ())


def _entries(directory: Path, number: int) -> list[IndexEntry]:
    index = FileIndex(index_path(directory, number))
    index.refresh()
    return index.entries
