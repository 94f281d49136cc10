"""One log, asked in files and in a relay log: the answers are the same, whichever source is asked."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

from replica.protocol.events.decode import GtidEvent
from replica.protocol.gtid import Gtid
from replica.readers.log.in_files import FilesReader
from replica.readers.log.in_relay_log import RelayLogReader
from replica.readers.log.reader import LogReader, StoredLog
from replica.readers.primary import PrimaryReader
from replica.relay_log.groups.groups import GtidSearch
from tests.kit.some import some
from tests.unit.commands.dump.files import vector
from tests.unit.commands.tail.relay_logs import recorded_log

if TYPE_CHECKING:
    from pathlib import Path

    from replica.readers.log.reader import Part

VECTOR = vector("11.8/transactions")


def questions(protocol: type) -> list[str]:
    return [name for name, member in inspect.getmembers(protocol, inspect.isfunction) if not name.startswith("_")]


@pytest.mark.parametrize(
    ("source", "protocol"), [(FilesReader, StoredLog), (RelayLogReader, StoredLog), (PrimaryReader, LogReader)]
)
def test_every_source_answers_every_question(source: type, protocol: type) -> None:
    for name in some(questions(protocol)):
        asked = list(inspect.signature(getattr(protocol, name)).parameters)
        takes = inspect.signature(getattr(source, name)).parameters
        assert list(takes)[: len(asked)] == asked, name
        assert all(more.default is not more.empty for more in list(takes.values())[len(asked) :]), name


def gtids(part: Part) -> list[Gtid]:
    events = (part.read(found) for found in part.walk())
    return [event.gtid for event in events if isinstance(event, GtidEvent)]


def test_files_and_a_relay_log_of_them_give_the_same_answers(tmp_path: Path) -> None:
    files = FilesReader([str(VECTOR)])
    relay = RelayLogReader(recorded_log(tmp_path, "11.8", "transactions", max_file_bytes=700))
    sources: list[StoredLog] = [files, relay]
    wanted = [gtid for part in files.parts() for gtid in gtids(part)]
    assert len(wanted) > 15
    for gtid in wanted:
        one, other = (source.after_group(gtid) for source in sources)
        assert one.position == other.position
        assert (one.next and (one.next.gtid, one.next.time_s)) == (other.next and (other.next.gtid, other.next.time_s))
        assert [gtids(part) for source in sources if (part := source.find(GtidSearch(gtid)))] == [[gtid], [gtid]]
    last = files.after_group(wanted[-1])
    assert [source.at_time(1).position for source in sources] == [files.at_time(1).position] * 2
    assert last.next is None
    assert all(set(wanted) >= {gtid for part in source.xa_parts() for gtid in gtids(part)} for source in sources)


@pytest.mark.parametrize("gtid", ["7-99-500", "0-5-4", "9-1-1"])
def test_what_is_not_there_has_the_same_neighbours(tmp_path: Path, gtid: str) -> None:
    relay = RelayLogReader(recorded_log(tmp_path, "11.8", "transactions", max_file_bytes=700))
    told = []
    for source in (FilesReader([str(VECTOR)]), relay):
        search = GtidSearch(Gtid.parse(gtid))
        assert source.find(search) is None
        told.append((search.before, search.after, search.other))
    assert told[0] == told[1]


def test_a_search_tells_how_far_it_has_come() -> None:
    ends: list[int] = []
    files = FilesReader([str(VECTOR)] * 2, on_progress=lambda _binlog, end: ends.append(end))
    assert files.find(GtidSearch(Gtid.parse("9-1-1"))) is None
    assert ends.count(VECTOR.stat().st_size) == 2
    ends.clear()
    list(files.xa_parts())
    assert ends == [], "the other half of an XA transaction is looked for in the same bytes again"
