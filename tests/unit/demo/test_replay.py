"""The replay of change rows, and that it notices every way in which a stream can be wrong."""

from __future__ import annotations

import datetime as dt
from typing import Any

from demo.replay import Change, Rebuilt, canonical, canonical_row

KEYS = {"orders": ("id",)}
ORDER = {"id": 1, "status": "new"}
PAID = {"id": 1, "status": "paid"}


def change(ordinal: int, op: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> Change:
    return Change((0, 1, 7, ordinal), "orders", op, before, after)


INSERT, UPDATE, DELETE = (
    change(0, "insert", None, ORDER),
    change(1, "update", ORDER, PAID),
    change(2, "delete", PAID, None),
)


def test_a_row_lives_and_dies() -> None:
    rebuilt = Rebuilt(KEYS)
    rebuilt.apply([INSERT])
    assert rebuilt.tables["orders"] == {(1,): ORDER}
    rebuilt.apply([UPDATE])
    assert rebuilt.tables["orders"] == {(1,): PAID}
    rebuilt.apply([DELETE])
    assert rebuilt.tables["orders"] == {}
    assert rebuilt.changes["orders"] == 3
    assert rebuilt.faults == []


def test_order_within_a_batch_is_the_commit_order() -> None:
    rebuilt = Rebuilt(KEYS)
    rebuilt.apply([DELETE, UPDATE, INSERT])
    assert rebuilt.tables["orders"] == {}
    assert rebuilt.faults == []


def test_an_update_may_move_the_key() -> None:
    rebuilt = Rebuilt(KEYS)
    rebuilt.apply([INSERT, change(1, "update", ORDER, {"id": 9, "status": "new"})])
    assert list(rebuilt.tables["orders"]) == [(9,)]


def test_a_change_that_arrives_twice_is_a_fault_and_counts_once() -> None:
    rebuilt = Rebuilt(KEYS)
    rebuilt.apply([INSERT])
    rebuilt.apply([INSERT])
    assert rebuilt.changes["orders"] == 1
    assert rebuilt.faults == ["insert in orders, 0-1-7-0: arrived twice"]


def test_a_lost_insert_is_a_fault() -> None:
    rebuilt = Rebuilt(KEYS)
    rebuilt.apply([UPDATE])
    assert "before image" in rebuilt.faults[0]


def test_a_lost_update_is_a_fault() -> None:
    rebuilt = Rebuilt(KEYS)
    rebuilt.apply([INSERT, DELETE])
    assert "before image" in rebuilt.faults[0]


def test_a_lost_delete_is_a_fault() -> None:
    rebuilt = Rebuilt(KEYS)
    rebuilt.apply([INSERT, change(5, "insert", None, PAID)])
    assert "there already" in rebuilt.faults[0]


def test_values_meet_in_one_form() -> None:
    oslo = dt.timezone(dt.timedelta(hours=2))
    assert canonical(dt.datetime(2026, 1, 1, 14, tzinfo=oslo)) == dt.datetime(2026, 1, 1, 12)  # noqa: DTZ001
    assert canonical(bytearray(b"\0\1")) == b"\0\1"
    assert canonical_row({"id": 1, "added_later": None}) == {"id": 1}
