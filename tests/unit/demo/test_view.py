"""What the screen says about changes and figures."""

from __future__ import annotations

import datetime as dt
import io
from collections import Counter

from rich.console import Console

from demo.replay import Change
from demo.shop import Written
from demo.stream import Arrived
from demo.view import Meter, Screen, describe, key_of, short


def test_an_update_tells_only_what_changed() -> None:
    change = Change((0, 1, 7, 0), "orders", "update", {"id": 1, "status": "new"}, {"id": 1, "status": "paid"})
    assert describe(change) == "status new → paid"


def test_an_insert_and_a_delete_tell_the_row_without_nulls() -> None:
    row = {"id": 1, "note": None, "image": b"x" * 17_000_000}
    assert describe(Change((0, 1, 7, 0), "orders", "insert", None, row)) == "image 17.0 MB"
    assert describe(Change((0, 1, 7, 0), "orders", "delete", row, None)) == "image 17.0 MB"


def test_the_key_is_told_apart() -> None:
    row = {"order_id": 17, "line": 2, "price": 5}
    change = Change((0, 1, 7, 0), "order_items", "delete", row, None)
    assert (key_of(change), describe(change)) == ("17-2", "price 5")


def test_long_values_are_cut() -> None:
    assert short("x" * 100) == "x" * 27 + "…"
    assert short(b"x" * 2_000) == "2 kB"
    assert short(dt.datetime(2026, 1, 2, 3, 4, 5, 678901, dt.UTC)) == "2026-01-02 03:04:05.678"


def test_the_curve_has_one_mark_a_step_and_starts_empty() -> None:
    meter = Meter()
    assert (meter.curve, meter.rate) == ("", 0.0)
    for rows in (0, 0, 5, 10):
        meter.sample(rows)
    assert len(meter.curve) == 3
    assert meter.curve[0] == "▁"
    assert meter.curve[1] == meter.curve[2] == "▇"


def test_the_live_screen_shows_figures_and_changes() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120, height=30)
    arrived = Arrived(rows=1234, batches=3, operations=Counter(insert=1234), delays=[0.5])
    arrived.newest.append(Change((0, 1, 7, 0), "orders", "insert", None, {"id": 42, "status": "new"}))
    with Screen(console, Written(rows=2000), arrived, title="here → there", seconds=60) as screen:
        screen.update()
        console.print(screen._render())
    text = console.file.getvalue()
    for part in ("here → there", "1 234", "2 000", "766 rows", "0-1-7", "orders", "status new"):
        assert part in text, part
