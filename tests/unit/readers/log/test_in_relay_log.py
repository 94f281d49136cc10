from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.protocol.gtid import Gtid, GtidPosition
from replica.readers.log.in_relay_log import RelayLogReader
from replica.readers.log.reader import NextGroup
from replica.relay_log.groups.groups import GtidSearch
from replica.relay_log.location import relay_numbers
from replica.relay_log.log import RelayLog
from replica.relay_writer.writer import RelayWriter
from tests.kit.binlog.primary import Primary
from tests.kit.relay.driving import receive
from tests.unit.commands.tail.relay_logs import recorded_log

if TYPE_CHECKING:
    from pathlib import Path

    from replica.relay_log.groups.groups import LogGroup


def gtids_of(text: str) -> list[Gtid]:
    return [Gtid.parse(part) for part in text.split()]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> RelayLog:
    return recorded_log(tmp_path_factory.mktemp("relay"), "11.8", "transactions", max_file_bytes=700)


def begins_with(log: RelayLog, gtid: Gtid) -> bool:
    reader = RelayLogReader(log)
    found = reader.find_group(GtidSearch(gtid))
    assert found is not None, gtid
    part = reader.part_of(found)
    first = next(part.walk())
    event = part.read(first)
    assert first.offset == found.before.location.offset
    assert part.piece.end == found.after.location.offset
    assert log.at(found.after.location).position.get(gtid.domain_id) == gtid
    return getattr(event, "gtid", None) == gtid


def test_every_group_is_found(log: RelayLog) -> None:
    assert len(relay_numbers(log.directory)) > 4
    head = log.head()
    assert head is not None
    wanted = [*(Gtid(0, 1, n) for n in range(1, 17)), *gtids_of("7-1-1 7-99-2 7-99-1000")]
    assert all(begins_with(log, gtid) for gtid in wanted)


@pytest.mark.parametrize(
    ("gtid", "before", "after"), [("7-99-500", "7-99-2", "7-99-1000"), ("7-1-999", "7-99-2", "7-99-1000")]
)
def test_a_hole_has_neighbours(log: RelayLog, gtid: str, before: str, after: str) -> None:
    search = GtidSearch(Gtid.parse(gtid))
    assert RelayLogReader(log).find(search) is None
    assert (str(search.before), str(search.after)) == (before, after)


def test_another_servers_number(log: RelayLog) -> None:
    search = GtidSearch(Gtid(0, 5, 4))
    assert RelayLogReader(log).find(search) is None
    assert str(search.other) == "0-1-4"


def test_numbers_that_went_back_are_found_by_a_walk(tmp_path: Path) -> None:
    primary = Primary.dump()
    order = [*range(50, 80), *range(1, 30), *range(80, 100)]
    for number in order:
        primary.statement(Gtid(0, 1, number), text=b"CREATE TABLE t (a INT)" + b" " * 300)
    with RelayWriter.open(tmp_path, start=GtidPosition(), max_file_bytes=4000) as relay:
        receive(relay, primary.wire(), [500])
    log = RelayLog(tmp_path)
    assert len(relay_numbers(tmp_path)) > 3
    assert all(begins_with_number(log, number) for number in order)
    reader = RelayLogReader(log)
    for before, number in zip([None, *order], order, strict=False):
        behind = reader.after_group(Gtid(0, 1, number))
        assert behind.position == GtidPosition((Gtid(0, 1, number),))
        assert before is None or reader.after_group(Gtid(0, 1, before)).next == NextGroup.of(group_of(reader, number))
    search = GtidSearch(Gtid(0, 1, 40))
    assert reader.find(search) is None
    assert (search.before, search.after) == (Gtid(0, 1, 29), Gtid(0, 1, 50))


def group_of(reader: RelayLogReader, number: int) -> LogGroup:
    found = reader.find_group(GtidSearch(Gtid(0, 1, number)))
    assert found is not None
    return found


def begins_with_number(log: RelayLog, number: int) -> bool:
    found = RelayLogReader(log).find(GtidSearch(Gtid(0, 1, number)))
    return found is not None and len(found.piece.data) > 300


def test_an_empty_log_has_nothing(tmp_path: Path) -> None:
    assert RelayLogReader(RelayLog(tmp_path)).find(GtidSearch(Gtid(0, 1, 1))) is None
    with RelayWriter.open(tmp_path, start=GtidPosition()):
        assert RelayLogReader(RelayLog(tmp_path)).find(GtidSearch(Gtid(0, 1, 1))) is None
