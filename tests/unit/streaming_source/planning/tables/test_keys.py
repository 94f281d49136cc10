"""Tables whose key is changed while a part of them is delivered: they are asked for again, from their first row on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from replica.errors import KeyChangedError
from replica.snapshot.frontier import NOTHING
from streaming_source.offsets.reading_requests import RequestFolder
from streaming_source.options.reading_options import ResnapshotOption
from tests.unit.streaming_source.feeds.row_feed import again, small
from tests.unit.streaming_source.feeds.table_feed import (
    FakeTables,
    Sink,
    T,
    TableFeed,
    U,
    alter,
    insert_wide,
    read,
    reading_planner,
)

if TYPE_CHECKING:
    from pathlib import Path

    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.planning.planner import ChangePlanner


class Begun(NamedTuple):
    """A query that has delivered a part of d.t: up to `offset`, which `sink` holds."""

    feed: TableFeed
    tables: FakeTables
    requests: RequestFolder
    planner: ChangePlanner
    offset: SourceOffset
    sink: Sink


@pytest.fixture
def begun(tmp_path: Path) -> Begun:
    feed = TableFeed(tmp_path / "feed")
    feed.insert(*small(1, 3, rows=2))
    tables, requests, sink = FakeTables(feed), RequestFolder(tmp_path / "requests"), Sink()
    planner = reading_planner(feed, tables, requests=requests)
    start = planner.latest_offset(again(planner.initial_offset()), bounded=True)
    while start.snapshot is None or start.snapshot.reached(T) in (None, NOTHING):
        end = planner.latest_offset(again(start), bounded=True)
        sink.apply(planner.partitions(again(start), again(end)))
        start = end
    assert sink.rows[T]
    return Begun(feed, tables, requests, planner, start, sink)


def goes_on(begun: Begun, planner: ChangePlanner, start: SourceOffset) -> SourceOffset:
    """Batches to the end, into a sink that empties what is read again, as its offsets tell; returns the first one's
    end.
    """
    first = None
    while (end := planner.latest_offset(again(start), bounded=True)) != start:
        for name in end.asked.tables if end.asked is not None else ():
            begun.sink.rows[name] = set()
            begun.sink.seen = set()
        begun.sink.apply(planner.partitions(again(start), again(end)))
        begun.sink.check(begun.feed, end)
        start, first = end, first or end
    assert first is not None
    assert start.snapshot is not None
    assert start.snapshot.finished
    assert begun.requests.waiting() == []
    return first


def test_a_statement_changes_it(begun: Begun) -> None:
    begun.feed.insert(*small(4, 4))
    begun.tables.other_keys = (T,)
    alter(begun.feed, "0-1-5")
    begun.feed.insert(*small(6, 6))
    first = goes_on(begun, begun.planner, begun.offset)
    assert first.asked is not None
    assert first.asked.tables == (T,)
    assert first.begin is not None
    assert first.begin.snapshot is not None
    assert first.begin.snapshot.reached(T) == NOTHING


def test_what_reads_it_finds_out_before_the_statement_arrives(begun: Begun) -> None:
    begun.tables.rekeyed = (T,)
    assert goes_on(begun, begun.planner, begun.offset).asked is not None


def test_a_statement_that_leaves_the_key_alone_has_nothing_read_again(begun: Begun) -> None:
    alter(begun.feed, "0-1-4", "ALTER TABLE d.t ADD COLUMN c INT")
    read = begun.sink.reads
    assert goes_on(begun, begun.planner, begun.offset).asked is None
    assert begun.sink.reads > read


def test_a_batch_that_was_planned_before_comes_to_its_end_in_another_life(begun: Begun) -> None:
    begun.feed.insert(*small(4, 5))
    end = begun.planner.latest_offset(again(begun.offset), bounded=True)
    tables = FakeTables(begun.feed)
    tables.other_keys = (T,)
    restarted = reading_planner(begun.feed, tables, requests=begun.requests)
    restarted.partitions(again(begun.offset), again(end))
    (request,) = begun.requests.waiting()
    assert request.tables == (T,)
    restarted.partitions(again(begun.offset), again(end))
    assert begun.requests.waiting() == [request], "a batch that comes again asks once"
    tables = FakeTables(begun.feed)  # killed behind that batch: by now the request is all that is known
    first = goes_on(begun, reading_planner(begun.feed, tables, requests=begun.requests), end)
    assert first.asked is not None


TO_BIGINT, TO_INT = "ALTER TABLE d.t MODIFY a BIGINT", "ALTER TABLE d.t MODIFY a INT"


@pytest.mark.parametrize("limits", [{}, {"max_rows": 1}], ids=["statements in the batch", "in others"])
@pytest.mark.parametrize("commit", [None, "0-1-6"], ids=["a transaction", "XA"])
def test_a_key_that_is_in_the_end_what_it_was(begun: Begun, commit: str | None, limits: dict[str, int]) -> None:
    """The catalog says nothing of it then: rows of another key are in the log. They are left out of their batch, and
    the next one reads the table.
    """
    planner = reading_planner(begun.feed, requests=begun.requests, **limits)
    alter(begun.feed, "0-1-4", TO_BIGINT)
    insert_wide(begun.feed, "0-1-5", 7, 3950, commit=commit)
    alter(begun.feed, "0-1-7", TO_INT)
    begun.feed.insert(*small(8, 9))
    start, waiting = begun.offset, []
    while not waiting:
        end = planner.latest_offset(again(start), bounded=True)
        for _ in range(2):  # a batch that comes again is the same, and asks once
            partitions = planner.partitions(again(start), again(end))
        begun.sink.apply(partitions)
        start, waiting = end, begun.requests.waiting()
    assert [request.tables for request in waiting] == [(T,)]
    assert goes_on(begun, planner, start).asked is not None


def test_a_query_without_requests_says_so_of_a_key_that_was_changed_and_back(begun: Begun) -> None:
    insert_wide(begun.feed, "0-1-4", 7)
    end = begun.planner.latest_offset(again(begun.offset), bounded=True)
    partitions = reading_planner(begun.feed).partitions(again(begun.offset), again(end))
    with pytest.raises(KeyChangedError, match=r"d\.t"):
        read(partitions, "variant")


def test_a_table_that_cannot_be_read_any_more_is_left_out_and_the_offset_says_why(begun: Begun) -> None:
    begun.tables.refused = {T: "it has no key"}
    start, ends = begun.offset, []
    while (end := begun.planner.latest_offset(again(start), bounded=True)) != start:
        for name, _ in end.refused:
            begun.sink.rows[name] = set()
        for planner in (reading_planner(begun.feed, requests=begun.requests), begun.planner):
            partitions = planner.partitions(again(start), again(end))
        begun.sink.apply(partitions)
        ends.append(end)
        start = end
    assert [end.refused for end in ends if end.refused] == [((T, "it has no key"),)]
    assert again(ends[0]).refused == ends[0].refused
    assert start.snapshot is not None
    assert start.snapshot.finished
    assert (begun.sink.rows[T], begun.sink.rows[U]) == (set(), {1, 2, 3})


def test_a_query_without_requests_ends_and_goes_on_with_the_option(begun: Begun) -> None:
    begun.feed.insert(*small(4, 5))
    end = begun.planner.latest_offset(again(begun.offset), bounded=True)
    tables = FakeTables(begun.feed)
    tables.other_keys = (T,)
    with pytest.raises(KeyChangedError):
        reading_planner(begun.feed, tables).partitions(again(begun.offset), again(end))
    planner = reading_planner(begun.feed, tables, again=ResnapshotOption(("d.t",), "monday"))
    planner.partitions(again(begun.offset), again(end))
    following = planner.latest_offset(again(end), bounded=True)
    assert following.again == "monday"
    assert following.begin is not None
    assert following.begin.snapshot is not None
    assert following.begin.snapshot.reached(T) == NOTHING
