"""docs/source-at-night.md: every error has its row, and the options, columns and sections that it names are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from replica import errors
from streaming_source.options.source_options import OPTIONS
from tests.kit.some import some
from tests.kit.tree import files

LINK = re.compile(r"\]\(([\w./-]*)#([^)]+)\)")
DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "source-at-night.md").read_text(encoding="utf-8")
OF_SPARK = {"addBatch", "latestOffset", "batchId"}
"""Names of Spark's progress, written as options are."""


def sections(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_every_error_has_a_row() -> None:
    known = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.ReplicaError) and kind is not errors.ReplicaError
    }
    told = {
        name for row in re.findall(r"^\| (`\w+Error`.*?) \|", PAGE, re.MULTILINE) for name in re.findall(r"\w+", row)
    }
    assert told == known


@pytest.mark.parametrize("page", ["source-at-night.md", "faq.md"])
def test_options_that_are_named_are_options(page: str) -> None:
    named = set(re.findall(r"`([a-z]+[A-Z]\w+)", (DOCS / page).read_text(encoding="utf-8")))
    assert set(some(named - OF_SPARK)) <= {option.name for option in OPTIONS}


@pytest.mark.parametrize("page", files(DOCS, "*.md"), ids=lambda page: page.name)
def test_links_to_sections_lead_to_one(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    targets = [(page.parent / name if name else page, section) for name, section in links]
    assert [
        (target.name, section)
        for target, section in targets
        if target.suffix == ".md" and section not in sections(target)
    ] == []


def test_links_to_sections_are_found() -> None:
    """Many pages have none: the test above checks nothing if the pattern fits nowhere."""
    assert len([page for page in files(DOCS, "*.md") if LINK.search(page.read_text(encoding="utf-8"))]) > 5
