"""docs/questions.md: a row of ARCHITECTURE.md, and a name in a file that the row leads to, answer every question."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]
PAGE = PROJECT / "docs" / "questions.md"
ROW = re.compile(r'^1\. ARCHITECTURE\.md, row "([^"]+)"$', re.MULTILINE)
STEP = re.compile(r"^2\. (.+)$", re.MULTILINE)
NAME = re.compile(r"\[`([\w.]+)`\]\(([^)]+\.py)\)")
ASKED = (
    *("CRC", "MINIMAL", "ACK", "column type", "event type", "purged", "zero dates", "server ids", "character sets"),
    "micro-batch",
)


def _sections() -> dict[str, str]:
    _, *sections = PAGE.read_text(encoding="utf-8").split("\n## ")
    return {title: text for title, _, text in (section.partition("\n") for section in sections)}


def _rows() -> dict[str, str]:
    """The rows of the table Where do I change …?: left cell -> right cell."""
    _, _, table = (PROJECT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("## Where do I change …?")
    return dict(re.findall(r"^\| ([^|]+) \| (.+) \|$", table, re.MULTILINE))


@cache
def _defined(path: Path) -> set[str]:
    """The classes, functions and methods of a file, methods with their class."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            members = (one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{node.name}.{one.name}" for one in members}
    return found


def _leads_to(row: str, path: Path) -> bool:
    """Tell whether a row names the file, or its folder; a row leaves out `replica/`, and folders that it has named."""
    inside = str(path.relative_to(PROJECT)).removeprefix("replica/")
    return path.name in re.findall(r"[\w.]+\.py", row) or f"`{inside.rpartition('/')[0]}/`" in row


def test_the_ten_questions_are_there() -> None:
    titles = list(_sections())
    assert len(titles) == len(ASKED)
    for title, word in zip(titles, ASKED, strict=True):
        assert word in title


@pytest.mark.parametrize("title", _sections())
def test_an_answer_takes_two_steps(title: str) -> None:
    text = _sections()[title]
    assert not re.search(r"^3\. ", text, re.MULTILINE)
    (row,), (step,) = ROW.findall(text), STEP.findall(text)
    assert row in _rows(), f"ARCHITECTURE.md has no row {row!r}"
    ((name, link),) = NAME.findall(step)
    path = (PAGE.parent / link).resolve()
    assert _leads_to(_rows()[row], path), f"the row {row!r} of ARCHITECTURE.md does not lead to {link}"
    assert name in _defined(path)


@pytest.mark.parametrize(("name", "link"), sorted(set(NAME.findall(PAGE.read_text(encoding="utf-8")))))
def test_a_name_stands_in_its_file(name: str, link: str) -> None:
    assert name in _defined((PAGE.parent / link).resolve()), f"{link} has no {name}"
