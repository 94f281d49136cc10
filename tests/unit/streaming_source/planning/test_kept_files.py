"""No query removes a relay file that it needs itself, in whatever order it plans, commits, is asked and restarted.

Real planner, real reading of tables, real relay log with files of a few transactions; threads and watch do a step when
the test says. A file that was removed too early ends a call with DataLossError, as it ended a query.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from replica.relay_log.location import relay_numbers
from streaming_source.offsets.reading_requests import RequestFolder, ResnapshotRequest
from streaming_source.planning import planner
from streaming_source.planning.tables import table_rows
from tests.unit.streaming_source.feeds.row_feed import Group, again
from tests.unit.streaming_source.feeds.scripted_tables import ScriptedTables
from tests.unit.streaming_source.feeds.table_feed import A, T, TableFeed, U, alter, read, reading_planner

if TYPE_CHECKING:
    from replica.relay_log.location import RelayHead
    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.planning.planner import ChangePlanner

FILE_BYTES = 1024
"""A file of a relay log, of some transactions."""
SWAP = "RENAME TABLE {0} TO d.x, d.y TO {0}, d.x TO d.y"


class KeptFiles(RuleBasedStateMachine):
    """One query over all its lives, with a sink that keeps a row by its key."""

    @initialize()
    def begin(self) -> None:
        memory = Path("/dev/shm")  # noqa: S108  (each batch is made durable)
        self.folder = tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(table_rows, "READY_POLL_S", 0.0)
        self.patch.setattr(planner, "GATHER_S", 0.0)
        path = Path(self.folder.name)
        self.feed = TableFeed(path, file_bytes=FILE_BYTES)
        self.feed.value = 10_000  # above all rows that tables have by themselves
        self.numbers = itertools.count(1)
        self.words = itertools.count()
        self.requests = RequestFolder(path / "requests")
        self.prepared: list[str] = []
        self.heads: list[RelayHead] = []
        self.running: tuple[SourceOffset, SourceOffset] | None = None
        self.last: SourceOffset | None = None
        self.rows: dict[tuple[str, str], set[int]] = {A: set(), T: set(), U: set()}
        self.insert(1, 2)
        self.restart()
        first = self.planner.initial_offset()
        self.start = self.planner.latest_offset(again(first), bounded=True)
        assert self.start.anchor

    def teardown(self) -> None:
        if hasattr(self, "feed"):
            self.feed.arriving = lambda: None
            self.finish()
            self.planner.close()
            self.folder.cleanup()
            self.patch.undo()

    # -- the server --------------------------------------------------------------------------------------------------

    @rule(groups=st.integers(1, 6), rows=st.integers(1, 20))
    def insert(self, groups: int, rows: int) -> None:
        for _ in range(groups):
            self.feed.insert(Group(f"0-1-{next(self.numbers)}", (("t", rows),)))
        self._note()

    @rule(rows=st.integers(20, 200))
    def fill(self, rows: int) -> None:
        """Changes of a table that no one asks for: no batch is full of them."""
        self.feed.insert(Group(f"0-1-{next(self.numbers)}", (("other", rows),)))
        self._note()

    @rule(name=st.sampled_from([A, T, U]))
    def swap(self, name: tuple[str, str]) -> None:
        alter(self.feed, f"0-1-{next(self.numbers)}", SWAP.format(".".join(name)))
        self._note()

    @rule()
    def prepare(self) -> None:
        name = f"x{next(self.numbers)}"
        self.feed.insert(Group(f"0-1-{name[1:]} prepare {name}", (("other", 1),)))
        self.prepared.append(name)
        self._note()

    @precondition(lambda self: self.prepared)
    @rule()
    def end_prepared(self) -> None:
        self.feed.insert(Group(f"0-1-{next(self.numbers)} commit {self.prepared.pop(0)}"))
        self._note()

    def _note(self) -> None:
        self.heads.append(self.feed.head())

    # -- what reads tables -------------------------------------------------------------------------------------------

    @rule(back=st.integers(0, 3))
    def see(self, back: int) -> None:
        """The lower position goes on, to the end of the log or to somewhat before it."""
        found = self.heads[max(len(self.heads) - 1 - back, 0)]
        seen = self.tables.watch.seen
        if found.location >= self.tables.begun and (seen is None or found.location >= seen.low.location):
            self.tables.watch.see(found)

    @rule()
    def take(self) -> None:
        self.tables.take()

    @rule()
    def put(self) -> None:
        self.tables.put()

    @rule()
    def lose_the_host(self) -> None:
        self.tables.watch.see(None)

    @rule(names=st.sets(st.sampled_from([A, T, U]), min_size=1))
    def request_resnapshot(self, names: set[tuple[str, str]]) -> None:
        self.requests.put(ResnapshotRequest(f"w{next(self.words)}", tuple(sorted(names))))

    # -- the query ---------------------------------------------------------------------------------------------------

    @rule()
    def restart(self) -> None:
        """The process is killed: a batch that was being written is planned again."""
        self.made: list[Tables] = []

        def opened() -> Tables:
            self.made.append(Tables(self.feed))
            return self.made[-1]

        self.spare = Tables(self.feed)
        self.planner: ChangePlanner = reading_planner(
            self.feed, self.spare, opened=opened, requests=self.requests, max_rows=self.limit
        )
        if getattr(self, "running", None):
            self._read(*self.running)

    limit = 40

    @property
    def tables(self) -> Tables:
        return self.made[-1] if self.made else self.spare

    @rule()
    def batch(self) -> None:
        """Plan a batch and read it; the one before is committed behind the planning, as Spark does it."""
        self.running = None  # it was written, or the next one would not be planned
        end = self._latest()
        if end != self.start:
            if self.last is not None:
                self.planner.commit(again(self.last))
            self.running = self.start, end
            self._read(self.start, end)
            self.start = self.last = end

    def _latest(self) -> SourceOffset:
        turns = itertools.count()

        def work() -> None:
            if next(turns) % 3 == 2:
                self.see(0)
            self.tables.take()
            self.tables.put()
            assert next(turns) < 5000, "nothing comes any more"

        self.feed.arriving = work
        try:
            return self.planner.latest_offset(again(self.start), bounded=True)
        finally:
            self.feed.arriving = lambda: None

    def _read(self, start: SourceOffset, end: SourceOffset) -> None:
        for name in {} if end.asked is None else end.asked.tables:
            self.rows[name].clear()
        for row in read(self.planner.partitions(again(start), again(end))):
            if row["table"] != "other":
                self.rows[row["database"], row["table"]].add(row["after"]["a"])

    def finish(self) -> None:
        """Go on until nothing is left: then the sink has all rows."""
        for name in self.prepared:
            self.feed.insert(Group(f"0-1-{next(self.numbers)} commit {name}"))
        self._note()
        for _ in range(2000):
            before = self.start
            self.batch()
            if self.start == before and not self.requests.waiting():
                break
        last = self.start.position.get(0)
        for name, rows in self.rows.items():
            assert sorted(rows) == self.feed.state(name, last.seq_no if last else 0), name
        assert not self.feed.reopened, "a file was missing"

    @invariant()
    def the_end_of_the_log_is_there(self) -> None:
        if hasattr(self, "feed"):
            assert relay_numbers(self.feed.folder)


class Tables(ScriptedTables):
    """Remembers where the log ended when it began to read: no lower position is before it."""

    def __init__(self, feed: TableFeed) -> None:
        super().__init__(feed)
        self.begun = feed.head().location


class TestKeptFiles(KeptFiles.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(max_examples=8, stateful_step_count=30, deadline=None)


@pytest.mark.slow
class TestKeptFilesAtLength(KeptFiles.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(max_examples=200, stateful_step_count=50, deadline=None)


def test_names_of_tables_are_followed_from_where_they_were_known_though_batches_end_at_renames() -> None:
    """A batch that ends at a RENAME delivers no row of a table, and follows no name. Several of them, each in a relay
    file of its own, let the file go from which on names had to be followed.
    """
    query = KeptFiles()
    query.begin()
    while query.start.snapshot is None or query.start.snapshot.rows < 12:
        query.see(0)
        query.batch()
    for name in (A, U, T):
        query.fill(200)
        query.swap(name)
    query.fill(200)
    query.see(0)
    for _ in range(8):
        query.batch()
    query.teardown()
