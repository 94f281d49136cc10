"""scripts/docs: the site builds, has every page, is searched, loads nothing from elsewhere, and refuses a dead link.

The first run installs the builder into .cache; all others need no network.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PAGES = [path.stem for folder in (PROJECT, PROJECT / "docs") for path in folder.glob("*.md")]

ANSWERS = {
    "PositionPurgedError": "source-at-night",
    "DATA_SOURCE_NOT_FOUND": "faq",
    "rpl_semi_sync_master_timeout": "daemon",
    "binlog_legacy_event_pos": "faq",
    "splitLargeTransactions": "spark",
    "mirror_resnapshot": "mirror",
    "NoSuchMethodError": "faq",
}
"""What people in need type into the search, and a page that has the answer."""

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the pages, so that no site is left in this tree, and the tools that are there already."""
    copy = tmp_path_factory.mktemp("site")
    for name in ("docs", "scripts", "constraints"):
        shutil.copytree(PROJECT / name, copy / name)
    for path in [*PROJECT.glob("*.md"), PROJECT / "mkdocs.yml"]:
        shutil.copy(path, copy)
    for name in (".venv", ".cache"):
        (copy / name).symlink_to((PROJECT / name).resolve())
    return copy


def build(tree: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([tree / "scripts" / "docs"], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tree: Path) -> Path:
    done = build(tree)
    assert done.returncode == 0, done.stdout + done.stderr
    return tree / "site"


def test_every_page_is_there_and_can_be_searched(site: Path) -> None:
    found = {path.stem for path in site.glob("*.html")} - {"404"}
    assert found == {"index" if page == "README" else page for page in PAGES}
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert {entry["location"].partition("#")[0].removesuffix(".html") or "index" for entry in index["docs"]} == found


@pytest.mark.parametrize("words", ANSWERS)
def test_the_search_finds_the_page_with_the_answer(site: Path, words: str) -> None:
    """As the program in the reader's browser does it: by the index's rule of what a word is, and by how words begin."""
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    separator = re.compile(index["config"]["separator"])

    def said(text: str) -> set[str]:
        return {re.sub(r"^\W+|\W+$", "", word) for word in separator.split(text.lower())}

    found = set()
    for entry in index["docs"]:
        there = said(re.sub(r"<[^>]*>", " ", f"{entry['title']} {entry['text']}"))
        if all(any(word.startswith(asked) for word in there) for asked in said(words)):
            found.add(entry["location"].partition(".html")[0])
    assert ANSWERS[words] in found


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r'<(?:script|link|img)[^>]* (?:src|href)="(https?:)?//')
    assert [page.name for page in site.glob("*.html") if loaded.search(page.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    "link", [pytest.param("[gone](gone.md)", marks=pytest.mark.slow), "[gone](spark.md#no-such-section)"]
)
def test_a_link_that_leads_nowhere_is_refused(tree: Path, site: Path, link: str) -> None:
    page = tree / "docs" / "faq.md"
    kept = page.read_text(encoding="utf-8")
    page.write_text(f"{kept}\n{link}\n", encoding="utf-8")
    try:
        done = build(tree)
    finally:
        page.write_text(kept, encoding="utf-8")
    assert done.returncode != 0
    assert "gone.md" in done.stderr or "no-such-section" in done.stderr
