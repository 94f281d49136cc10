"""Each picture of a page was drawn from the source that is beside it."""

from __future__ import annotations

from tests.kit.tree import files
from tools.pages.diagrams import DOCS, digest, drawn_from, picture_of, sources


def test_each_picture_is_drawn_from_its_source() -> None:
    assert sources()
    stale = [source.name for source in sources() if drawn_from(picture_of(source)) != digest(source)]
    assert stale == [], "run: python -m tools.pages.diagrams MERMAID.min.js"


def test_each_picture_is_on_a_page() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in files(DOCS, "*.md"))
    assert [source.stem for source in sources() if f"]({source.stem}.svg)" not in pages] == []
