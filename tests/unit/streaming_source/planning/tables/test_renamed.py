"""Tables that take a passed name while tables are read: the batch ends behind their RENAME, and they are read again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.errors import SchemaError
from replica.protocol.gtid import Gtid
from replica.snapshot.frontier import NOTHING, Frontier
from streaming_source.planning.planner import MOST
from streaming_source.planning.tables.keys import first_rename
from streaming_source.selection.resolver import SelectedTables
from tests.kit.relay.driving import receive
from tests.unit.streaming_source.feeds.relay_feed import RelayFeed
from tests.unit.streaming_source.feeds.row_feed import again, small
from tests.unit.streaming_source.feeds.table_feed import FakeTables, T, TableFeed, U, reading_planner

if TYPE_CHECKING:
    from pathlib import Path

    from replica.relay_log.location import RelayHead
    from replica.snapshot.chunks.schedule import ReadLimit
    from replica.snapshot.snapshot import Advance
    from streaming_source.offsets.offset import SourceOffset

PASSED = Frontier().begin([("d", "m")]).advance(("d", "m"), None, 3)
TABLES = SelectedTables(("d.*",), {})


def execute(feed: RelayFeed, gtid: str, sql: str) -> None:
    feed.primary.connect()
    feed.primary.statement(Gtid.parse(gtid), text=sql.encode())
    receive(feed._writer, feed.primary.wire())


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("RENAME TABLE d.z TO d.b", ["b"]),
        ("ALTER TABLE d.z RENAME TO d.b", ["b"]),
        ("RENAME TABLE d.z TO d.b, d.y TO d.c, d.x TO d.n", ["b", "c"]),
        ("RENAME TABLE d.a TO d.x, d.b TO d.a, d.x TO d.b", ["a", "b"]),
        ("RENAME TABLE d.z TO d.n", []),  # it is read when its turn comes
        ("RENAME TABLE d.z TO e.b", []),  # no one asks for it there
        ("RENAME TABLE d.a TO d._a_del, d._a_gho TO d.a", []),
        ("RENAME TABLE d.a TO d._a_old, d._a_new TO d.a", []),
        ("ALTER TABLE d.a ADD x INT", []),
    ],
)
def test_what_has_to_be_read_again_and_where(tmp_path: Path, sql: str, names: list[str]) -> None:
    feed = RelayFeed(tmp_path, ["0-1-1"])
    execute(feed, "0-1-2", sql)
    feed.arrive("0-1-3")
    found = first_rename(feed.log, feed.log.oldest(), feed.head(), PASSED, TABLES.selects)
    if not names:
        assert found is None
        return
    assert found is not None
    assert [table for _, table in found.names] == names
    assert str(found.head.position) == "0-1-2"


def test_the_batch_ends_behind_the_statement_and_the_table_is_read_from_there(tmp_path: Path) -> None:
    feed = TableFeed(tmp_path)
    feed.insert(*small(1, 2))
    planner = reading_planner(feed, FakeTables(feed, chunk=1000))
    start = planner.latest_offset(again(planner.initial_offset()), bounded=True)
    read = planner.latest_offset(again(start), bounded=True)  # d.a, which is empty
    read = planner.latest_offset(again(read), bounded=True)
    assert read.snapshot is not None
    assert read.snapshot.reached(T) is None
    execute(feed, "0-1-3", "RENAME TABLE d.t TO d.x, d.u TO d.t")
    feed.insert(*small(4, 5))
    end = planner.latest_offset(again(read), bounded=True)
    assert str(end.position) == "0-1-3"
    assert end.snapshot is not None
    assert (end.snapshot.reached(T), end.snapshot.rows) == (NOTHING, read.snapshot.rows)
    following = planner.latest_offset(again(end), bounded=True)
    assert following.snapshot is not None
    assert following.snapshot.reached(T) is None
    assert following.snapshot.rows > read.snapshot.rows


class Swapped(FakeTables):
    """The table d.u is never to be had as of the position that is asked for: another one takes its name each time."""

    def __init__(self, feed: TableFeed, *, times: int) -> None:
        super().__init__(feed, chunk=1000)
        self.times = times
        self.swaps = 0

    def advance(self, frontier: Frontier, v: RelayHead, limit: ReadLimit) -> Advance | None:
        self.blocked_tables = ()
        if [name for name in self.names if frontier.reached(name) is not None] != [U] or self.swaps >= self.times:
            return super().advance(frontier, v, limit)
        self.blocked_tables = (U,)
        self.swaps += 1
        number = 2 * self.swaps + 2
        execute(self._feed, f"0-1-{number}", "RENAME TABLE d.u TO d.x, d.y TO d.u")
        self._feed.insert(*small(number + 1, number + 1))
        return None


@pytest.mark.parametrize("times", [1, 100])
def test_a_run_that_ends_by_itself_leaves_a_table_for_the_next_one_that_is_swapped_all_the_time(
    tmp_path: Path, times: int
) -> None:
    feed = TableFeed(tmp_path)
    feed.insert(*small(1, 3))
    reading = Swapped(feed, times=times)
    planner = reading_planner(feed, reading)
    start = planner.latest_offset(again(planner.initial_offset()), bounded=True)
    planner.prepare_available_now()
    while (end := planner.latest_offset(again(start), bounded=True)) != start:
        start = end
    assert start.snapshot is not None
    assert start.snapshot.finished == (times == 1)
    assert reading.swaps <= 3 * MOST
    reading.times = 0
    planner.prepare_available_now()  # as the next run does
    while (end := planner.latest_offset(again(start), bounded=True)) != start:
        start = end
    assert start.snapshot is None or start.snapshot.finished


def test_a_run_never_ends_before_its_end_whatever_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = TableFeed(tmp_path)
    feed.insert(*small(1, 3))
    reading = Waiting(feed, chunk=1000)
    planner = reading_planner(feed, reading)
    start = planner.latest_offset(again(planner.initial_offset()), bounded=True)
    while start.position != feed.head().position or start.snapshot is None or start.snapshot.reached(T) is not None:
        start = planner.latest_offset(again(start), bounded=True)
    feed.insert(*small(4, 4))
    planner.prepare_available_now()
    arrived = planner._next_end
    answers = [None] * (3 * MOST)  # the log does not have it yet

    def late(begin: SourceOffset) -> SourceOffset | None:
        return answers.pop() if answers else arrived(begin)

    monkeypatch.setattr(planner, "_next_end", late)
    end = planner.latest_offset(again(start), bounded=True)
    assert str(end.position) == "0-1-4"
    assert answers == []


class Waiting(FakeTables):
    """The table d.u waits for a later position, always."""

    def advance(self, frontier: Frontier, v: RelayHead, limit: ReadLimit) -> Advance | None:
        left = [name for name in self.names if frontier.reached(name) is not None]
        self.blocked_tables = (U,) if left == [U] else ()
        return None if self.blocked_tables else super().advance(frontier, v, limit)


def test_a_statement_that_is_not_understood_ends_no_query_that_follows_each_table(tmp_path: Path) -> None:
    feed = RelayFeed(tmp_path, ["0-1-1"])
    execute(feed, "0-1-2", "RENAME TABLE d.z TO d.b,")
    execute(feed, "0-1-3", "RENAME TABLE d.y TO d.c")
    with pytest.raises(SchemaError, match="is not understood"):
        first_rename(feed.log, feed.log.oldest(), feed.head(), PASSED, TABLES.selects)
    found = first_rename(feed.log, feed.log.oldest(), feed.head(), PASSED, TABLES.selects, lenient=True)
    assert found is not None
    assert [table for _, table in found.names] == ["c"]
