"""A checkpoint that goes on with other tables: said once, with the place, taken over; another table is refused."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from replica.errors import ConfigError
from streaming_source.offsets.offset import SourceOffset
from streaming_source.selection.resolver import SelectedTables
from tests.unit.streaming_source.feeds.relay_feed import RelayFeed, plan

if TYPE_CHECKING:
    from pathlib import Path

    from replica.schema.table import TableSchema

GROUPS = [f"0-1-{n}" for n in range(1, 7)]


def again(offset: SourceOffset) -> SourceOffset:
    """What comes back from Spark's checkpoint."""
    return SourceOffset.parse(json.loads(json.dumps(offset.json())))


def tables(*patterns: str, there: tuple[str, ...] = ()) -> SelectedTables:
    catalog: dict[tuple[str, str], TableSchema] = {("d", name): None for name in there}  # type: ignore[misc]
    return SelectedTables(patterns, catalog)


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.WARNING)
    return lambda: [record.getMessage() for record in caplog.records]


def test_tables_that_came_and_went_are_named_once_and_are_the_remembered_ones_then(
    tmp_path: Path, warnings: Any
) -> None:
    feed = RelayFeed(tmp_path, GROUPS[:3])
    first = plan(feed, tables=tables("d.a", "d.b"))
    start = first.initial_offset()
    assert first.latest_offset(again(start), bounded=True) == start
    feed.arrive(*GROUPS[3:4])
    end = first.latest_offset(again(start), bounded=True)
    assert "selectionChanged" not in (first.report() or {})
    assert warnings() == []

    feed.arrive(*GROUPS[4:5])
    second = plan(feed, tables=tables("d.b*", "d.c", there=("b", "b2", "c")))
    later = second.latest_offset(again(end), bounded=True)
    (message,) = warnings()
    assert "added d.b*, d.c, without the changes up to 0-1-4; removed d.a" in message
    assert "exist now: d.b2, d.c." in message
    report = second.report() or {}
    assert report["selectionChanged"] == {"behind": "0-1-4", "added": ["d.b*", "d.c"], "removed": ["d.a"]}

    feed.arrive(*GROUPS[5:])
    second.latest_offset(again(later), bounded=True)
    third = plan(feed, tables=tables("d.c", "d.b*"))  # in another order
    third.latest_offset(again(later), bounded=True)
    assert len(warnings()) == 1
    assert "selectionChanged" not in (third.report() or {})


def test_an_idle_restart_with_other_tables_makes_no_offset(tmp_path: Path, warnings: Any) -> None:
    feed = RelayFeed(tmp_path, GROUPS)
    end = plan(feed, tables=tables("d.a")).latest_offset(
        SourceOffset.parse({"v": 1, "gtid": "0-1-1", "resume": "0-1-1", "server": {}}), bounded=True
    )
    other = plan(feed, tables=tables("d.b"))
    assert other.latest_offset(again(end), bounded=True) == end
    assert len(warnings()) == 1


def test_a_replayed_batch_is_where_added_tables_begin(tmp_path: Path, warnings: Any) -> None:
    feed = RelayFeed(tmp_path, GROUPS)
    before = SourceOffset.parse({"v": 1, "gtid": "0-1-2", "resume": "0-1-2", "server": {}})
    end = plan(feed, tables=tables("d.a")).latest_offset(before, bounded=True)
    planner = plan(feed, tables=tables("d.a", "d.b"))
    assert planner.partitions(before, again(end))
    planner.latest_offset(again(end), bounded=True)
    (message,) = warnings()
    assert "added d.b, without the changes up to 0-1-2." in message


def test_an_empty_first_batch_that_is_replayed_says_where_it_is(tmp_path: Path, warnings: Any) -> None:
    feed = RelayFeed(tmp_path, GROUPS[:2])
    logged = plan(feed, tables=tables("d.a")).initial_offset()
    feed.arrive(*GROUPS[2:])
    planner = plan(feed, tables=tables("d.a", "d.b"))
    assert planner.partitions(again(planner.initial_offset()), again(logged)) == []
    (message,) = warnings()
    assert "added d.b, without the changes up to 0-1-2." in message


def test_an_offset_of_an_earlier_release_takes_the_selection_over(tmp_path: Path, warnings: Any) -> None:
    feed = RelayFeed(tmp_path, GROUPS)
    old = SourceOffset.parse({"v": 1, "gtid": "0-1-2", "resume": "0-1-2", "server": {}})
    end = plan(feed, tables=tables("d.a")).latest_offset(old, bounded=True)
    assert warnings() == []
    assert end.json()["selection"] == {"shape": "variant", "tables": ["d.a"]}


@pytest.mark.parametrize("call", ["latest_offset", "partitions"])
def test_another_table_or_shape_is_refused_before_the_replica_starts(tmp_path: Path, call: str) -> None:
    feed = RelayFeed(tmp_path, GROUPS)
    start = SourceOffset.parse({"v": 1, "gtid": "0-1-2", "resume": "0-1-2", "server": {}})
    end = plan(feed, tables=tables("d.a"), shape="flat").latest_offset(start, bounded=True)
    feed.started = False
    for other in (plan(feed, tables=tables("d.b"), shape="flat"), plan(feed, tables=tables("d.a"), shape="envelope")):
        offsets = (start, again(end)) if call == "partitions" else (again(end),)
        more = {} if call == "partitions" else {"bounded": True}
        with pytest.raises(ConfigError, match=r"the checkpoint belongs to a query (of table d\.a|with table=d\.a)"):
            getattr(other, call)(*offsets, **more)
    assert not feed.starts
