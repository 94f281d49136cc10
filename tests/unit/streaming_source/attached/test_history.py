"""The same GTID at another place of a server's binlog is another transaction; what cannot be compared is believed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.errors import DataLossError
from replica.protocol.gtid import BinlogPosition, GtidPosition
from replica.relay_log.location import RelayLocation, index_path, relay_path
from replica.relay_log.log import RelayLog
from streaming_source.attached.history import check_history, end_of_group
from streaming_source.offsets.offset import SourceOffset
from tests.unit.streaming_source.feeds.relay_feed import RelayFeed

if TYPE_CHECKING:
    from pathlib import Path

PLACE = BinlogPosition("bin.000001", 752)


@pytest.fixture
def log(tmp_path: Path) -> RelayLog:
    """Two groups in the first file, one in the second."""
    feed = RelayFeed(tmp_path)
    for file, groups in ((1, ["0-1-1", "0-1-2"]), (2, ["0-1-3"])):
        feed.primary.file = f"bin.{file:06d}"
        feed.arrive(*groups)
    feed.close()
    return RelayLog(tmp_path)


def _offset(gtid: str, place: BinlogPosition | None, server: int | None = 9) -> SourceOffset:
    position = GtidPosition.parse(gtid)
    return SourceOffset(position, position, place, server)


def _place(log: RelayLog, gtid: str) -> BinlogPosition:
    """Where the log has the end of a group."""
    location = log.locate(GtidPosition.parse(gtid))
    assert location is not None
    end = end_of_group(log, location)
    assert end is not None
    return log.at(end).primary


@pytest.mark.parametrize("gtid", ["0-1-1", "0-1-2", "0-1-3"])
def test_the_place_of_a_group_is_recognised_and_no_other(log: RelayLog, gtid: str) -> None:
    place = _place(log, gtid)
    check_history(log, _offset(gtid, place))
    check_history(log, _offset(gtid, place._replace(position=place.position + (1 << 32))))
    for other in (place._replace(position=place.position + 1), place._replace(file="bin.000009")):
        with pytest.raises(
            DataLossError, match=rf"{gtid} is at bin.*this query read it at {other.file}:{other.position}.*was reset"
        ):
            check_history(log, _offset(gtid, other))


def test_what_cannot_be_compared_is_believed(log: RelayLog) -> None:
    other = BinlogPosition("bin.000009", 4)
    check_history(log, _offset("0-1-2", other, server=78))  # read from another server
    check_history(log, _offset("0-1-2", None, server=None))
    check_history(log, _offset("0-1-9", other))  # not in the log: somebody else says so


def test_the_end_of_a_file_is_the_beginning_of_the_next(log: RelayLog) -> None:
    location = log.locate(GtidPosition.parse("0-1-2"))
    assert location is not None
    assert location.file == 2
    assert end_of_group(log, location) == RelayLocation(1, relay_path(log.directory, 1).stat().st_size)
    for path in (relay_path(log.directory, 1), index_path(log.directory, 1)):
        path.unlink()
    assert end_of_group(log, location) is None
    check_history(log, _offset("0-1-2", BinlogPosition("bin.000009", 4)))
