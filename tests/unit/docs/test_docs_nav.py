"""The site's menu (mkdocs.yml) has every page once. That it builds is tested in tests/system/test_docs_site.py."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3]


def test_every_page_is_in_the_menu_once() -> None:
    named = re.findall(r": (\S+\.md)$", (PROJECT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(named) == sorted(path.name for folder in (PROJECT, PROJECT / "docs") for path in folder.glob("*.md"))
