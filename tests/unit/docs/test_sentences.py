"""Check the language of docstrings, comments and messages: words of the field, none of a dialect.

CONTRIBUTING.md has the rules. ruff checks the form of docstrings (D400, D401, D404, D415), codespell the spelling.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kit.tree import files

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
PACKAGES = ("pyspark_mariadb_binlog", "replica", "streaming_source", "demo")
SOURCES = sorted(path for folder in PACKAGES for path in files(ROOT / folder, "**/*.py"))

PLAIN = {
    "albeit": "although",
    "amongst": "among",
    "anew": "again",
    "anybody": "anyone",
    "aright": "right",
    "everybody": "everyone",
    "forthwith": "at once",
    "hereby": "so",
    "herein": "here",
    "heretofore": "until now",
    "hitherto": "until now",
    "lest": "so that … not",
    "naught": "nothing",
    "nobody": "no one",
    "nought": "nothing",
    "oft": "often",
    "ought": "has to",
    "shall": "will, has to",
    "somebody": "someone",
    "thence": "from there",
    "thereby": "so",
    "therein": "in it",
    "thereof": "of it",
    "thereupon": "then",
    "till": "until",
    "unto": "to",
    "upon": "on",
    "whence": "from where",
    "whereby": "by which",
    "wherefore": "why",
    "wherein": "in which",
    "whereupon": "then",
    "whilst": "while",
    "whither": "where",
    "whoever": "a reader that …, the caller that …",
    "whomever": "the reader that …",
    "whosoever": "the reader that …",
}
"""Word -> what to write in its place, in all texts."""

DIALECT = {
    "brings? in|brought in|bringing in": "apply",
    "set aside|sets aside": "suspend",
    "put off": "defer",
    "names? none": "orphan, or has none",
    "goes in|came so far": "is applied, was applied so far",
    "what is there|what came|what comes|what is known of": "a noun",
    "in front of": "before",
    "takes? along": "changes too",
    "(?-i:untold)": "unknown",
    "behind the (?:batch|statement|event|position|last|first|end|others)": "after the …",
}
"""Pattern -> what to write in its place, in docstrings and comments."""

_PLAIN = re.compile(rf"\b({'|'.join(PLAIN)})\b", re.IGNORECASE)
_DIALECT = {re.compile(rf"\b(?:{pattern})\b(?!`)", re.IGNORECASE): better for pattern, better in DIALECT.items()}


def strings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the comments and strings of a module, with their lines."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)):
            yield token.start[0], token.string


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of a module, of whatever it defines, and its comments, with their lines."""
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else []:
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield statement.lineno, " ".join(text.split())
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def test_both_kinds_of_words_are_found() -> None:
    assert _PLAIN.search("once and anew")
    assert [better for pattern, better in _DIALECT.items() if pattern.search("rows behind the batch are set aside")]
    assert [text for _, text in prose('"""Rows\n  of it."""\nx = 1  # why')] == ["Rows of it.", "# why"]


def test_words_are_looked_for_in_comments_and_strings_and_not_in_names() -> None:
    assert [text for _, text in strings("nobody = 1  # a name\nraise E('no one')")] == ["# a name", "'no one'"]
    assert _PLAIN.search("# Nobody reads it")
    assert not _PLAIN.search("# no one reads it")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_words_are_those_of_the_field(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    wrong = [
        f"line {line}: {word[0]!r}: write {PLAIN[word[0].lower()]!r}"
        for line, text in strings(source)
        for word in _PLAIN.finditer(text)
    ]
    wrong += [
        f"line {line}: {word[0]!r}: write {better}"
        for line, text in prose(source)
        for pattern, better in _DIALECT.items()
        for word in pattern.finditer(text)
    ]
    assert not wrong, "\n".join(wrong)
