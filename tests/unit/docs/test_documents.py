"""The documents against the tree: files they name exist, links lead somewhere, the README's commands are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kit.tree import files

PROJECT = Path(__file__).resolve().parents[3]
DOCUMENTS = sorted([*files(PROJECT, "*.md"), *files(PROJECT / "docs", "*.md")])
NAMED = re.compile(r"`((?:[\w.-]+/)+[\w.-]*)`")  # a path with a folder in it; `*` makes it a pattern, not a name
SOURCES = ("replica", "streaming_source", "tests")
FILE = re.compile(r"(?<![\w/*{<.-])([a-z][a-z_0-9]+\.py)\b")
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
# Documents leave out the package they are about: ARCHITECTURE.md replica/, docs/protocol.md replica/protocol/.
ROOTS = (PROJECT, PROJECT / "replica", PROJECT / "replica" / "protocol")
GENERATED = (".cache/",)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_named_files_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    named = [name for name in NAMED.findall(text) if not name.startswith(GENERATED)]
    assert [name for name in named if not any((root / name).exists() for root in ROOTS)] == []


def test_files_that_comments_name_exist() -> None:
    ours = {path.name for folder in SOURCES for path in files(PROJECT / folder, "**/*.py")}
    named = {
        (str(path.relative_to(PROJECT)), name)
        for folder in SOURCES[:2]
        for path in files(PROJECT / folder, "**/*.py")
        for name in FILE.findall(path.read_text(encoding="utf-8"))
    }
    assert named
    assert {(path, name) for path, name in named if name not in ours} == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    links = LINK.findall(document.read_text(encoding="utf-8"))
    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("pattern", [NAMED, LINK], ids=["names", "links"])
def test_the_patterns_find_what_they_check(pattern: re.Pattern[str]) -> None:
    """Some documents name no file: the tests above check nothing if a pattern fits nowhere."""
    assert len([path for path in DOCUMENTS if pattern.search(path.read_text(encoding="utf-8"))]) > 5


def test_the_readme_names_both_commands() -> None:
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    for command in ("scripts/demo", "scripts/test"):
        assert command in text
        assert (PROJECT / command).exists()
