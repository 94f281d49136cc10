"""What the screen says about figures, tables and what the mirror has followed."""

from __future__ import annotations

import io
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from rich.console import Console

from demo.view import LoadBar, Meter, Screen
from demo.written import Written

if TYPE_CHECKING:
    from demo.lake import Lake

ROW = SimpleNamespace(
    source_database="shop",
    source_table="orders",
    target="`lake`.`orders`",
    state="current",
    rows=100_000,
    position="0-1-7",
)


def lake(position: str, *, whole: bool = True) -> Lake:
    """What a screen reads of a lake."""
    return cast("Lake", SimpleNamespace(position=position, batches=3, tables=[ROW], whole=whole, ended=time.time()))


def written() -> Written:
    """Two round trips of the shop, the second one told by name."""
    shop = Written()
    shop.add("0-1-7", time.time() - 3, rows=1234, transactions=600)
    shop.add("0-1-9", time.time() - 2, rows=766, transactions=400, told="TRUNCATE TABLE visits")
    return shop


def test_the_curve_has_marks_and_starts_empty() -> None:
    meter = Meter()
    assert (meter.curve, meter.rate) == ("", 0.0)
    for rows in range(17):
        meter.sample(5 * rows)
    assert meter.curve == "██"


def test_the_live_screen_shows_figures_and_tables() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120, height=30)
    with Screen(console, written(), lake("0-1-7"), title="here → there", seconds=60) as screen:
        screen.update()
        console.print(screen._render())
    text = console.file.getvalue()
    for part in ("here → there", "1 234", "2 000", "766 rows", "0-1-7", "shop.orders", "lake.orders", "100 000"):
        assert part in text, part
    assert "TRUNCATE" not in text


def test_what_the_mirror_has_followed_is_told_once_and_only_where_all_tables_are_current() -> None:
    console = Console(file=io.StringIO(), width=120)
    for seen in (lake("0-1-9", whole=False), lake("0-1-8")):
        Screen(console, written(), seen, title="", seconds=60).update()
    assert console.file.getvalue() == ""
    screen = Screen(console, written(), lake("0-1-9"), title="", seconds=60)
    screen.update()
    screen.update()
    assert console.file.getvalue().startswith("✓ TRUNCATE TABLE visits: in the lake 2.")
    assert console.file.getvalue().count("\n") == 1


def test_the_bar_of_the_first_rows_tells_how_many_are_there() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120, _environ={"TERM": "xterm"})
    with LoadBar(console, 380_000) as bar:
        bar.show(0)
        bar._bar.refresh()
        bar.show(95_000)
        bar._bar.refresh()
    text = console.file.getvalue()
    for part in ("Spark makes the tables", "95 000 of 380 000 rows", "25%"):
        assert part in text, part
