"""Tests that walk over files of the project find some, or fail."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kit.some import some
from tests.kit.tree import files

PROJECT = Path(__file__).resolve().parents[3]
CONSTANT = r"[A-Z][A-Z_]+"
WALK = re.compile(rf"(?<!/ )\b{CONSTANT}\b(?: / (?:\"[^\"]*\"|\w+))*\)*\.r?glob\(")
"""A walk that begins at a folder that does not change: PROJECT / "docs", HERE / version."""
OF_OTHER_PLACES = ("CACHE",)
"""Folders that may be empty: what the tests keep."""


def test_each_pattern_has_to_find_a_file(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("a/one.py", "a/b/two.py", "three.md"):
        (tmp_path / name).touch()
    assert files(tmp_path, "*.md", "a/*.py", "**/*.py") == sorted(
        tmp_path / name for name in ("a/one.py", "a/b/two.py", "three.md")
    )
    for folder, pattern in ((tmp_path, "*.toml"), (tmp_path / "gone", "*.py"), (tmp_path, "a/b")):
        with pytest.raises(AssertionError, match="would check nothing"):
            files(folder, "**/*.py" if folder == tmp_path else pattern, pattern)


def test_there_has_to_be_a_value() -> None:
    assert some(number for number in (1, 2)) == [1, 2]
    with pytest.raises(AssertionError, match="nothing to check"):
        some({}.items())


def test_no_test_walks_over_the_project_by_itself() -> None:
    found = []
    for folder in ("unit", "kit", "vectors", "integration"):
        for path in files(PROJECT / "tests" / folder, "**/*.py"):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
                if (walk := WALK.search(line)) and not walk[0].startswith(OF_OTHER_PLACES):
                    found.append(f"{path.relative_to(PROJECT)}:{number}: {line.strip()}")
    assert found == [], "use tests/kit/tree.py"
