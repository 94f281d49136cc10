"""The table of states in a notebook: order, numbers, and text of a server that stays text."""

from __future__ import annotations

import datetime as dt
from html.parser import HTMLParser

import pytest

from streaming_source.mirroring.control.control_table import FAILED, READING
from streaming_source.mirroring.control.status_table import (
    MOST_ROWS,
    LastAudit,
    seconds_text,
    shown_name,
    status_table,
    text,
)
from tests.unit.streaming_source.mirroring.control.status_rows import HOSTILE, NOW, control_row


class Page(HTMLParser):
    """Tags, attributes and text of a page; a tag that is not closed is an error of the test."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_what_needs_attention_comes_first() -> None:
    rows = [
        control_row("a"),
        control_row("b", state=FAILED, error="the key is gone", lag=None),
        control_row("c", state=READING),
        control_row("d", state=READING, waits_for="r"),
        control_row("e", state=FAILED, waits_for="r"),
    ]
    page = Page(status_table(rows, {}, NOW, title="lake.mirror_control"))
    names = [one for one in page.texts if one.startswith("shop.")]
    assert names == ["shop.b", "shop.e", "shop.d", "shop.c", "shop.a"]
    assert "the key is gone" in page.texts
    assert {"5 tables", "1 suspended", "1 retried", "1 waiting", "1 reading", "1 current"} <= set(page.texts)


def test_text_of_a_server_is_neither_a_tag_nor_an_attribute() -> None:
    rows = [control_row(HOSTILE, error=HOSTILE, target=HOSTILE, position=HOSTILE, state=FAILED)]
    made = status_table(rows, {("shop", HOSTILE): LastAudit(NOW, HOSTILE)}, NOW, title=HOSTILE)
    page = Page(made)
    assert page.tags == {"div", "style", "b", "span", "i", "table", "thead", "tbody", "tr", "th", "td"}
    assert {name for name, _ in page.attributes} == {"class", "style", "title", "colspan"}
    assert "\u202e" not in made
    assert "\x1b" not in made
    assert any("<img src=x onerror=alert(1)>" in one for one in page.texts)


def test_nothing_is_loaded_from_anywhere() -> None:
    made = status_table([control_row("a")], {}, NOW, title="")
    assert "//" not in made
    assert "url(" not in made
    assert "@import" not in made


def test_more_tables_than_a_notebook_should_hold_are_counted() -> None:
    made = status_table([control_row(f"t{n}") for n in range(MOST_ROWS + 3)], {}, NOW, title="")
    assert made.count("<td class='mb-name'") == MOST_ROWS
    assert "3 more tables are not shown." in made


def test_a_mirror_without_tables_says_so() -> None:
    assert "its first micro-batch has not ended" in status_table([], {}, NOW, title="x")


def test_a_bar_is_relative_to_the_largest_table() -> None:
    made = status_table([control_row("a", rows=50), control_row("b", rows=200)], {}, NOW, title="")
    assert "width:25%" in made
    assert "width:100%" in made


def test_an_audit_that_found_a_difference_stands_out() -> None:
    audits = {("shop", "a"): LastAudit(NOW - dt.timedelta(hours=3), "not equal")}
    page = Page(status_table([control_row("a"), control_row("b")], audits, NOW, title=""))
    assert ("class", "mb-wrong") in page.attributes
    assert {"not equal", "never"} <= set(page.texts)
    assert " ".join(page.texts).count("3 h ago") == 1


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [(None, "–"), (0.04, "0.0 s"), (119.0, "119.0 s"), (180.0, "3 min"), (7200.0, "2 h"), (200_000.0, "2 d")],  # noqa: RUF001
)
def test_durations_are_in_the_unit_that_people_choose(seconds: float | None, wanted: str) -> None:
    assert seconds_text(seconds) == wanted


def test_long_text_is_shortened_and_a_folder_is_its_path() -> None:
    assert text("x" * 20, 10) == "x" * 9 + "…"
    assert shown_name("`delta`.`/lake/mirror_control`") == "/lake/mirror_control"
    assert shown_name("`lake`.`mirror_control`") == "lake.mirror_control"
