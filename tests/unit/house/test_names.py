"""One name a notion: no two classes are called the same, and the glossary names classes that there are."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.kit.tree import files

PROJECT = Path(__file__).resolve().parents[3]
TERM = re.compile(r"^\| (?P<term>[^|]+) \| `(?P<name>\w+)` \| [^|]+ \|$", re.MULTILINE)
GLOSSARIES = {"Glossary": (20, 40), "Terms of the mirror": (6, 12)}
"""Sections of ARCHITECTURE.md, and how many terms each has: a newcomer has to keep them all in mind."""


def classes() -> dict[str, list[str]]:
    """The files of every class, by its name."""
    found: dict[str, list[str]] = defaultdict(list)
    for root in ("replica", "streaming_source"):
        for path in files(PROJECT / root, "**/*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(str(path.relative_to(PROJECT)))
    return found


def terms(section: str) -> list[tuple[str, str]]:
    """The terms of a glossary, each with its class."""
    text = (PROJECT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    glossary = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    lines = [line for line in glossary.splitlines() if line.startswith("| ")][2:]
    found = [(match["term"], match["name"]) for match in TERM.finditer("\n".join(lines))]
    assert len(found) == len(lines), "a line of the glossary has no term, class and meaning"
    return found


def test_no_two_classes_share_a_name() -> None:
    assert {name: files for name, files in classes().items() if len(files) > 1} == {}


def test_each_term_has_a_class_of_its_own() -> None:
    known, found = classes(), [term for section in GLOSSARIES for term in terms(section)]
    assert [name for _, name in found if name not in known] == []
    assert len({term for term, _ in found}) == len({name for _, name in found}) == len(found)


@pytest.mark.parametrize("section", GLOSSARIES)
def test_a_glossary_is_short_enough_to_keep_in_mind(section: str) -> None:
    fewest, most = GLOSSARIES[section]
    assert fewest <= len(terms(section)) <= most
