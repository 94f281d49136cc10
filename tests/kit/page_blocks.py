"""The fenced blocks of the documents, each with the mark in front of it.

A mark is a comment of one line, directly before the block: `<!-- run: NAME -->` names it for the test that asks for it
with `block(page, NAME)`, `<!-- run by: FILE -->` names the test that finds the block by itself, `<!-- not run: WHY -->`
says why nothing can run it. Some pages have a word of their own instead of `run`, and their own test.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.fixtures.installation import PROJECT
from tests.kit.tree import files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BLOCK: Final = re.compile(
    r"(?:^<!-- (?P<word>[\w ]+): (?P<value>[^\n]+?) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block; `word` and `value` are those of its mark, empty without one."""

    page: str
    language: str
    word: str
    value: str
    code: str


def documents() -> list[Path]:
    """The pages that users and developers read."""
    return sorted([*files(PROJECT, "*.md"), *files(PROJECT / "docs", "*.md")])


def blocks(page: Path) -> Iterator[Block]:
    """Yield a page's blocks, in order."""
    for found in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        name = str(page.relative_to(PROJECT))
        yield Block(name, found["language"], found["word"] or "", found["value"] or "", found["code"])


def block(page: str, name: str) -> str:
    """Return the text of the block that is called so."""
    (code,) = (one.code for one in blocks(PROJECT / page) if (one.word, one.value) == ("run", name))
    return code
