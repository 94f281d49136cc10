"""Check the language of docstrings, comments and messages: how docstrings begin, and which words are plain.

The rules stand in CONTRIBUTING.md. What a function does begins with a verb; what a class, module or property is, with a
name. What is not in the list of verbs is refused as none: put a new verb into it.
"""

from __future__ import annotations

import ast
import io
import itertools
import re
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kit.tree import files

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for folder in ("replica", "streaming_source", "demo") for path in files(ROOT / folder, "**/*.py"))

_VERBS = """
    Abort Accept Acknowledge Add Admit Adopt Align Allow Announce Answer Append Apply Ask Attach Authenticate Begin
    Bind Bring Build Call Cancel Change Check Choose Clear Close Collect Compare Compile Compute Connect Consume
    Convert Copy Count Create Cut Decide Declare Decode Decrypt Delete Describe Divide Do Drop Empty Encode Encrypt
    End Enter Escape Exempt Expect Explain Extend Fetch Fill Filter Find Flush Fold Follow Forget Format Give Go
    Group Guard Handle Hash Hide Hold Ignore Inflate Insert Join Judge Keep Lay Leave Let Limit List Load Lock Log
    Look Make Map Mark Match Measure Merge Move Name Narrow Note Notice Number Offer Open Order Pack Parse Pass
    Perform Plan Prepare Print Prove Publish Pump Push Put Quote Raise Read Receive Recognise Record Recover Reduce
    Refuse Register Release Remember Remove Rename Repeat Replace Replicate Report Reserve Reset Resolve Resume
    Return Reverse Rewrite Round Run Save Say Scan Seal Search See Send Serve Set Shorten Show Shut Skip Sleep Sort
    Split Start Step Stop Store Stream Sum Survey Swap Switch Take Tell Test Translate Treat Trim Try Turn Undo
    Unlock Unpack Update Use Verify Wait Walk Warn Watch Widen Work Wrap Write Yield
"""
VERBS = frozenset(_VERBS.split())
"""The verbs that the docstring of a function or method may begin with, in the imperative."""

_CLAUSES = "How What When Where Whether Which Who Whose Why"
CLAUSES = frozenset(_CLAUSES.split())
"""The words that begin a clause: it may say what a constant or a field is, but name no class and no module."""

_FRAGMENTS = """
    After Also And As At Because Before Behind But By Can For From If In Into Is It Of On Once Or Per So They
    To Under Until Up While With Without
"""
FRAGMENTS = frozenset(_FRAGMENTS.split())
"""The words that begin a fragment: neither a name nor a verb."""

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
"""Word -> what to write in its place."""

_WORD = re.compile(rf"\b({'|'.join(PLAIN)})\b", re.IGNORECASE)

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def documented(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield what has a docstring, with it: constants and fields have theirs in the statement behind them."""
    for node in ast.walk(tree):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            yield node, text
        body = getattr(node, "body", None)
        for one, behind in itertools.pairwise(body if isinstance(body, list) else []):
            if isinstance(one, ast.Assign | ast.AnnAssign) and isinstance(behind, ast.Expr):
                match behind.value:
                    case ast.Constant(value=str(text)):
                        yield one, text


def is_property(node: ast.AST) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in getattr(node, "decorator_list", []))


def beginning(node: ast.AST, text: str) -> str | None:
    """Say what is wrong with the first word of a docstring; None for nothing."""
    first = re.split(r"[\s,.:;]", text, maxsplit=1)[0]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_property(node):
        return None if first in VERBS else f"{first!r} is no verb in the imperative"
    if isinstance(node, ast.ClassDef) and re.match(r"`\w+`(:| is | are )", text):
        return f"{first!r} is a field: say first what the class is"
    if is_property(node) or isinstance(node, ast.Assign | ast.AnnAssign):
        return f"{first!r} begins a fragment" if first in FRAGMENTS else None
    return f"{first!r} begins a fragment" if first in FRAGMENTS | CLAUSES else None


def written(source: str) -> Iterator[tuple[int, str]]:
    """Yield the texts of a module that are meant for people: its comments and strings, with their lines."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)):
            yield token.start[0], token.string


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_docstrings_begin_with_a_verb_or_a_name_and_words_are_plain(path: Path) -> None:
    source = path.read_text()
    wrong = [
        f"line {getattr(node, 'lineno', 1)}: {what}: {text.splitlines()[0]}"
        for node, text in documented(ast.parse(source))
        if (what := beginning(node, text))
    ]
    wrong += [
        f"line {line}: {word[0]!r}: write {PLAIN[word[0].lower()]!r}"
        for line, text in written(source)
        for word in _WORD.finditer(text)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("def f():\n    '''Of one range; nothing is removed.'''", "no verb"),
        ("def f():\n    '''The position.'''", "no verb"),
        ("def f():\n    '''Reads the file.'''", "no verb"),
        ("async def f():\n    '''`value` as text.'''", "no verb"),
        ("class C:\n    def f(self):\n        '''Whether it is full.'''", "no verb"),
        ("class C:\n    '''For who asks no names.'''", "fragment"),
        ("class C:\n    '''`tables`: the wanted ones.'''", "is a field"),
        ("class C:\n    @property\n    def f(self):\n        '''Of the last group.'''", "fragment"),
        ("LIMIT = 3\n'''Of includes.'''", "fragment"),
        ("'''Which tables are wanted.'''", "fragment"),
        ("def f():\n    '''Return the position.'''", None),
        ("class C:\n    @property\n    def f(self):\n        '''Whether it is full.'''", None),
        ("class C:\n    '''A `TableResolver` for a dump. `tables`: the wanted ones.'''", None),
        ("PAUSE_S = 3\n'''How often it is looked at.'''", None),
        ("'''`mariadb-replica run`: the daemon.'''", None),
    ],
)
def test_a_beginning_is_judged_by_what_it_belongs_to(source: str, what: str | None) -> None:
    found = [beginning(node, text) for node, text in documented(ast.parse(source))]
    assert len(found) == 1
    assert (what in (found[0] or "")) if what else found == [None]


def test_words_are_looked_for_in_comments_and_strings_and_not_in_names() -> None:
    assert [text for _, text in written("nobody = 1  # a name\nraise E('no one')")] == ["# a name", "'no one'"]
    assert _WORD.search("# Nobody reads it")
    assert not _WORD.search("# no one reads it")
