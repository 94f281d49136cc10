"""scripts/docs: the site builds, has every page and a search, loads nothing from elsewhere, and refuses a dead link.

Slow: the first run installs the builder.
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

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the pages, so that no site is left in this tree, and the tools that are there already."""
    copy = tmp_path_factory.mktemp("site")
    for name in ("docs", "scripts", "constraints"):
        shutil.copytree(PROJECT / name, copy / name)
    for path in [*PROJECT.glob("*.md"), PROJECT / "mkdocs.yml"]:
        shutil.copy(path, copy)
    (copy / ".venv").symlink_to((PROJECT / ".venv").resolve())
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


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r'<(?:script|link|img)[^>]* (?:src|href)="(https?:)?//')
    assert [page.name for page in site.glob("*.html") if loaded.search(page.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("link", ["[gone](gone.md)", "[gone](spark.md#no-such-section)"])
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
