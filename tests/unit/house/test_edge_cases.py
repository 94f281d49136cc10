"""Every edge case of tests/integration/edges/README.md has a test that carries its number."""

from __future__ import annotations

import re
from pathlib import Path

from tests.kit.tree import files

TESTS = Path(__file__).resolve().parents[2]
LISTED = re.compile(r"^\| (\d+) \|", re.MULTILINE)
MARKED = re.compile(r"^ *@pytest\.mark\.edge\((\d+)\)$", re.MULTILINE)
EDGE_CASES = 82


def test_every_edge_case_has_a_test() -> None:
    listed = [int(number) for number in LISTED.findall((TESTS / "integration/edges/README.md").read_text("utf-8"))]
    assert sorted(listed) == list(range(1, EDGE_CASES + 1))
    marked = {
        int(number)
        for path in files(TESTS, "**/test_*.py")
        for number in MARKED.findall(path.read_text(encoding="utf-8"))
    }
    assert sorted(set(listed) - marked) == []
    assert sorted(marked - set(listed)) == []
