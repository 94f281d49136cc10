from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.errors import ConfigError, DataLossError
from replica.protocol.gtid import GtidPosition
from replica.readers.log.following import Beginning, earliest, last_transactions, start_after
from replica.readers.log.in_relay_log import RelayLogReader
from replica.relay_log.location import RelayLocation
from replica.relay_log.log import RelayLog
from replica.rows.scan.scan import scan
from tests.unit.commands.tail.relay_logs import recorded_log
from tests.unit.relay_log.test_log import START, Place, fill

if TYPE_CHECKING:
    from pathlib import Path

    from replica.relay_log.location import RelayHead


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> RelayLog:
    return recorded_log(tmp_path_factory.mktemp("relay"), "11.8", "transactions", max_file_bytes=700)


@pytest.fixture(scope="module")
def head(log: RelayLog) -> RelayHead:
    found = log.head()
    assert found is not None
    return found


def groups_behind(log: RelayLog, start: RelayLocation) -> int:
    head = log.head()
    assert head is not None
    parts = RelayLogReader(log).parts(start, head.location)
    return sum(len(scan(part.piece.data, checksum=part.piece.checksum).groups) for part in parts)


def test_so_many_transactions_follow(log: RelayLog, head: RelayHead) -> None:
    every = groups_behind(log, RelayLocation(1, 0))
    assert every > 20
    for count in range(every + 3):
        begin = last_transactions(log, head, count)
        assert groups_behind(log, begin.place.location) == min(count, every)
        assert begin.place.position == log.at(begin.place.location).position


def test_the_last_ones_between_far_entries_of_the_sidecar(tmp_path: Path) -> None:
    places: list[Place] = fill(tmp_path, groups=400)
    log = RelayLog(tmp_path)
    head = log.head()
    assert head is not None
    for count in (1, 2, 17, 100, 399):
        assert last_transactions(log, head, count).place.position == places[-1 - count].position


def test_earliest_is_before_the_first(log: RelayLog, head: RelayHead) -> None:
    begin = earliest(log, head)
    assert begin.place.position == GtidPosition()
    assert groups_behind(log, begin.place.location) == groups_behind(log, RelayLocation(1, 0))


def test_behind_a_position_of_all_domains(log: RelayLog, head: RelayHead) -> None:
    begin = start_after(log, head, head.position)
    assert begin == Beginning(head)


def test_behind_a_gtid_of_one_domain_the_rest_is_stepped_over(log: RelayLog, head: RelayHead) -> None:
    wanted = GtidPosition.parse("0-1-5,7-99-2")
    begin = start_after(log, head, wanted)
    assert begin.skip == wanted
    assert begin.place.position == GtidPosition.parse("0-1-5")


def test_a_hole_begins_where_its_domain_does(log: RelayLog, head: RelayHead) -> None:
    begin = start_after(log, head, GtidPosition.parse("7-99-500"))
    assert begin.skip == GtidPosition.parse("7-99-500")
    assert groups_behind(log, begin.place.location) == groups_behind(log, RelayLocation(1, 0))


def test_what_is_still_to_come_is_waited_for(log: RelayLog, head: RelayHead) -> None:
    assert start_after(log, head, GtidPosition.parse("0-1-900")) == Beginning(head, GtidPosition.parse("0-1-900"))


def test_a_domain_nobody_knows(log: RelayLog, head: RelayHead) -> None:
    with pytest.raises(ConfigError, match="no transaction of domain 3"):
        start_after(log, head, GtidPosition.parse("3-1-1"))


def test_what_was_purged(tmp_path: Path) -> None:
    fill(tmp_path, groups=20)
    log = RelayLog(tmp_path)
    head = log.head()
    assert head is not None
    assert start_after(log, head, START).place.location.offset
    with pytest.raises(DataLossError, match="the transactions after 0-1-9 were purged"):
        start_after(log, head, GtidPosition.parse("0-1-9"))
