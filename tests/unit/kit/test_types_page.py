from __future__ import annotations

from pathlib import Path

from replica.rows.types.types import TYPES
from tools.pages.types import page

PAGE = Path(__file__).resolve().parents[3] / "docs" / "types.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tools.pages.types > docs/types.md"


def test_every_type_has_a_line() -> None:
    lines = page().splitlines()
    for row in TYPES:
        assert row.wide is None or any(line.startswith(f"| {row.wide.declared} |") for line in lines)
        assert any(line.startswith(f"| {row.declared} |") for line in lines)
        assert (row.unsigned is None) == (f"| {row.declared.split(',')[0]} UNSIGNED |" not in page())
