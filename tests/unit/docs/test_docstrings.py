"""Docstrings as far as a tool can read them: none of a class or function that others use begins as half a sentence."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

from tests.kit.tree import files

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).resolve().parents[3]
FRAGMENT = re.compile(r"(Of|For|In|On|At|By|From|To|With|Without|As|Per|And|Or|But|Also|The same)\b")
"""What only goes on from a name or from the docstring before: a reader who meets it alone cannot tell of what."""


def docstrings() -> Iterator[tuple[str, str]]:
    """The place and the docstring of every class and function whose name is not private, but those of kernels."""
    for root in ("replica", "streaming_source"):
        for path in files(PROJECT / root, "**/*.py"):
            if path.name.startswith("kernel_"):
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
                    yield f"{path.relative_to(PROJECT)}:{node.lineno} {node.name}", ast.get_docstring(node) or ""


def test_no_docstring_begins_as_half_a_sentence() -> None:
    every = list(docstrings())
    assert len(every) > 1000
    assert [f"{place}: {text}" for place, text in every if FRAGMENT.match(text)] == []
