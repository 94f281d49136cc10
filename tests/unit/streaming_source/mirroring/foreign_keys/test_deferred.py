from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import TYPE_CHECKING

from replica.protocol.gtid import GtidPosition
from replica.snapshot.check.facts import Cascade
from streaming_source.mirroring.batch.manifest import DELETES, INSERTS
from streaming_source.mirroring.control.control_table import READING, ControlRow, DeferredCascade
from streaming_source.mirroring.foreign_keys import cascades as module
from streaming_source.mirroring.foreign_keys.cascades import (
    ancestors_of,
    defer_cascades,
    deferral_from,
    due,
    followed,
    lowest,
    reached,
)
from streaming_source.mirroring.foreign_keys.keys import links_by_parent
from streaming_source.offsets.offset import SourceOffset

if TYPE_CHECKING:
    from collections.abc import Collection

    import pytest

    from replica.schema.known_tables import TableName

P, Q, R = (("d", name) for name in "pqr")
ABOVE = ancestors_of(
    [P, Q, R],
    links_by_parent({name: [Cascade("k", over, ("ON DELETE CASCADE",))] for name, over in ((Q, P), (R, Q))}),
)
SINCE = DeferredCascade("0-1-5", "0-1-7", lost=False)


def control(name: TableName, put: DeferredCascade | None = None, mode: str = "current") -> ControlRow:
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    row = ControlRow(
        *("m", *name, "t", mode, READING, ("id",), "0-1-9", 1, 5, None, None, now, None, "{}", "0-1-1", None, None)
    )
    return row._replace(deferred_cascade=put)


def after(
    rows: dict[TableName, ControlRow],
    coming: set[TableName],
    touched: dict[TableName, int],
    read: Collection[TableName] = (),
) -> dict[TableName, DeferredCascade | None]:
    defer_cascades(rows, {name: ABOVE[name] for name in rows}, coming, read, touched, lambda: SINCE)
    return {name: row.deferred_cascade for name, row in rows.items()}


def rows(**put: DeferredCascade) -> dict[TableName, ControlRow]:
    return {name: control(name, put.get(name[1])) for name in (P, Q, R)}


def test_what_goes_into_a_table_that_is_read_waits_and_a_table_above_all_has_nothing_to_wait_for() -> None:
    assert after(rows(), {P, Q}, {}) == {P: None, Q: SINCE, R: None}
    lost = SINCE._replace(lost=True)
    assert after(rows(), {P, Q}, {P: DELETES}) == {P: None, Q: lost, R: lost}


def test_it_waits_in_whole_tables_below_one_that_is_read_only_where_rows_went_above_them() -> None:
    assert after(rows(), {P}, {P: INSERTS, R: DELETES}) == {P: None, Q: None, R: None}
    assert after(rows(), {P}, {P: DELETES})[R] == SINCE._replace(lost=True)


def test_what_waits_goes_on_waiting_from_where_it_began_and_makes_what_goes_through_it_wait() -> None:
    first = DeferredCascade("0-1-2", "0-1-3", lost=False)
    assert after(rows(q=first), set(), {}) == {P: None, Q: first, R: None}
    told = after(rows(q=first), set(), {P: DELETES})
    assert told == {P: None, Q: first._replace(lost=True), R: SINCE._replace(lost=True)}


def test_rows_that_go_from_a_table_that_the_mirror_does_not_have_are_told_apart() -> None:
    waiting = rows(r=SINCE)
    assert after({R: waiting[R]}, set(), {Q: DELETES})[R] == DeferredCascade("0-1-5", "0-1-7", lost=True, foreign=True)
    assert after(waiting, set(), {Q: DELETES})[R] == SINCE._replace(lost=True)


def test_a_table_that_is_set_aside_and_one_that_keeps_changes_alone_wait_for_nothing() -> None:
    aside = rows(q=SINCE)
    aside[Q] = aside[Q]._replace(state="failed")
    assert after(aside, {Q}, {P: DELETES})[Q] is None
    assert after({**rows(), R: control(R, mode="append_log")}, {Q, R}, {P: DELETES})[R] is None


def test_it_is_followed_when_all_rows_of_the_table_and_of_those_above_are_there() -> None:
    waiting = rows(q=SINCE, r=SINCE)
    assert due(waiting, ABOVE, {R}.__contains__) == {Q}
    assert due(waiting, ABOVE, {P}.__contains__) == set()
    assert due(waiting, ABOVE, set().__contains__) == {Q, R}


def test_a_snapshot_ends_at_the_position_after_its_last_rows_and_later_rows_move_it() -> None:
    ended = control(Q, SINCE)._replace(snapshot_end="0-1-12,1-1-3")
    positions = ("0-1-11,1-1-3", "0-1-12", "0-1-12,1-1-3", "0-1-13,1-1-4,2-1-1")
    assert [reached(ended, GtidPosition.parse(one)) for one in positions] == [False, False, True, True]
    assert not reached(control(Q, SINCE), GtidPosition.parse("0-1-99")), "the server was not asked yet"
    assert followed(ended) == control(Q)
    for read, kept in (((), "0-1-12,1-1-3"), ((P,), None), ((Q,), None), ((R,), "0-1-12,1-1-3")):
        there = {**rows(), Q: ended}
        after(there, {Q}, {}, read)
        assert there[Q].snapshot_end == kept, read
    again = {**rows(), Q: ended._replace(deferred_cascade=None)}
    after(again, {Q}, {})
    assert (again[Q].deferred_cascade, again[Q].snapshot_end) == (SINCE, None), "of a snapshot before"


def test_the_lowest_position_lies_behind_none() -> None:
    assert lowest(["0-1-5"]) == "0-1-5"
    assert lowest(["0-1-5,1-1-9", "0-2-4,1-1-11"]) == "0-2-4,1-1-9"
    assert lowest(["0-1-5,1-1-9", "0-1-6"]) == "0-1-5", "no number of domain 1 is behind none"
    assert lowest(["0-1-5", ""]) == ""


def test_what_is_put_off_goes_back_behind_a_batch_that_was_planned_long_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: dict[str, str] = {}
    monkeypatch.setattr(
        "streaming_source.mirroring.control.continuation.hadoop_text", lambda _, path: written.get(path)
    )

    def log(number: int, seconds: int, offset: SourceOffset) -> None:
        told = json.dumps({"batchTimestampMs": 1_000 * seconds})
        written[str(Path("/c/offsets") / str(number))] = f"v1\n{told}\n{json.dumps(offset.json())}"

    def at(number: int) -> SourceOffset:
        position = GtidPosition.parse(f"0-1-{number}")
        return SourceOffset(position, GtidPosition.parse(f"0-1-{number - 1}"))

    log(0, 0, at(10))
    assert deferral_from(None, "/c", 0) == DeferredCascade("0-1-9", "0-1-9", lost=False)  # type: ignore[arg-type]
    for number, seconds in enumerate((0, 50, 100, 105, 161)):
        log(number, seconds, at(10 * number + 10))
    # Batch 4 began its reading at 105 at the earliest, so 0-1-9 is of a batch that was planned a minute before.
    assert deferral_from(None, "/c", 4) == DeferredCascade("0-1-9", "0-1-40", lost=True)  # type: ignore[arg-type]
    assert deferral_from(None, "/c", 5) == DeferredCascade("0-1-29", "0-1-50", lost=True)  # type: ignore[arg-type]
    del written["/c/offsets/1"]
    assert deferral_from(None, "/c", 4).since == "0-1-29", "as far back as Spark's log goes"  # type: ignore[arg-type]
    log(0, 0, at(10).__class__(at(20).position, at(20).resume, begin=at(8)))
    assert deferral_from(None, "/c", 0).since == "0-1-7", "Trigger.Once has no batch before the rows"  # type: ignore[arg-type]
    assert module.MARGIN_MS == 60_000
