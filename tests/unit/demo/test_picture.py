"""The moving picture of the demo: screens of a terminal in, one SVG out; and the one that the README shows."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

from demo.picture import FRAMES, Piece, pieces, svg, thinned, without_spinners

PROJECT = Path(__file__).resolve().parents[3]
SVG = "{http://www.w3.org/2000/svg}"
SCREEN = "\x1b[1m$ run  1\x1b[0m\n\n\x1b[34m│\x1b[39m a <b> & c   \x1b[34m│\n└─┘\x1b[0m"


def test_a_colour_goes_on_in_the_next_line_and_columns_stay_where_they_are() -> None:
    assert pieces(SCREEN) == [
        (Piece(0, "$ run", ' font-weight="bold"'), Piece(7, "1", ' font-weight="bold"')),
        (),
        (Piece(0, "│", ' fill="#79c0ff"'), Piece(2, "a <b> & c", ""), Piece(14, "│", ' fill="#79c0ff"')),
        (Piece(0, "└─┘", ' fill="#79c0ff"'),),
    ]


def test_a_line_of_two_frames_is_in_the_picture_once() -> None:
    root = ET.fromstring(svg([SCREEN, SCREEN + "\nend"], "a title"))  # noqa: S314 (our own)
    assert [text.text for text in root.iter(f"{SVG}text")] == ["$ run", "1", "│", "a <b> & c", "│", "└─┘", "end"]
    frames = [group for group in root.iter(f"{SVG}g") if group.get("class") == "f"]
    assert [len(frame) for frame in frames] == [3, 4]


def test_only_the_last_frame_is_seen_without_motion() -> None:
    style = re.search(r"<style>(.*)</style>", svg(["one", "two", "three"], ""))
    assert style is not None
    still = style[1].partition("@keyframes")[0]
    assert still == ".f{visibility:hidden}#f2{visibility:visible}"


def test_screens_are_thinned_evenly_and_a_spinner_is_no_news() -> None:
    assert without_spinners(["⠋ x", "⠙ x", "⠙ y"]) == ["⠙ x", "⠙ y"]
    few = thinned([str(number) for number in range(1000)])
    assert (len(few), few[0], few[-1]) == (FRAMES, "0", "999")
    assert thinned(["a", "b"]) == ["a", "b"]


def test_the_picture_of_the_pages_is_one_of_these_and_light() -> None:
    path = PROJECT / "docs" / "demo.svg"
    root = ET.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314 (our own)
    shown = " ".join(text.text or "" for text in root.iter(f"{SVG}text"))
    assert "EQUAL" in shown
    assert path.stat().st_size < 200_000
    assert "http" not in shown
