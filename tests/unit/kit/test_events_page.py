from __future__ import annotations

from pathlib import Path

from replica.protocol.constants import EventType
from tools.pages.events import page

PAGE = Path(__file__).resolve().parents[3] / "docs" / "events.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tools.pages.events > docs/events.md"


def test_every_type_has_a_line() -> None:
    lines = page().splitlines()
    for row in EventType:
        assert sum(line.startswith(f"| {row.name} | {int(row)} |") for line in lines) == 1
