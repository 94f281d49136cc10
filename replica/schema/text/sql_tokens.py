"""Lexer of SQL text: words, names, strings and symbols, as the server's own lexer finds them.

`tokenize` needs the session's sql_mode (for double quotes and backslashes) and the server's version (for executable
comments). It yields tokens one at a time and does not interpret statements. A quote or comment without an end is a
SchemaError.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from replica.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator

ANSI_QUOTES: Final = 4
NO_BACKSLASH_ESCAPES: Final = 1 << 20
ANY_VERSION: Final = 999_998  # below 999999: mariadb-dump writes /*M!999999 for text that no server may execute
# Version numbers of MySQL 5.7 and later, whose executable comments MariaDB ignores.
_MYSQL_ONLY: Final = range(50_700, 100_000)

_ESCAPE = {quote: re.compile(rf"\\(.)|{quote}{quote}", re.DOTALL) for quote in "'\""}
_CONTROL: Final = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_GRAMMAR: Final = r"""
    (?P<space>  \s++ | \#[^\n]*+ | --(?=[\s\x00-\x1f]|\Z)[^\n]*+ )
  | (?P<open>   /\*M?!(?P<version>\d{{5,6}})? )
  | (?P<comment>/\*.*?\*/ )
  | (?P<close>  \*/ )
  | `(?P<name>  (?>(?:[^`]|``)*) )`
  | '(?P<string>(?>(?:[^'{backslash}]|''{escaped})*) )'
  | "(?P<double>(?>(?:[^"{in_double}]|""{escaped_in_double})*) )"
  | (?P<word>   [\w$]++ )
  | (?P<symbol> . )
"""


def _lexer(*, backslash: bool, ansi_quotes: bool) -> re.Pattern[str]:
    escapes = (r"\\", r"|\\.")
    none = ("", "")
    string, double = escapes if backslash else none, escapes if backslash and not ansi_quotes else none
    named = {"backslash": string[0], "escaped": string[1], "in_double": double[0], "escaped_in_double": double[1]}
    return re.compile(_GRAMMAR.format(**named), re.VERBOSE | re.DOTALL)


_LEXERS: Final = {(b, a): _lexer(backslash=b, ansi_quotes=a) for b in (True, False) for a in (True, False)}


@dataclass(frozen=True, slots=True)
class Token:
    """One token. `text` has no quotes or escapes; `upper` is the unquoted word in capitals, '' for other tokens."""

    kind: Literal["word", "name", "string", "double", "symbol"]  # double: "…", a string that may stand for a name
    text: str
    upper: str = ""


def tokenize(text: str, *, sql_mode: int = 0, server_version: int = ANY_VERSION) -> Iterator[Token]:
    """Yield the tokens of a text, including executable comments that a server of `server_version` (101118) executes."""
    backslash = not sql_mode & NO_BACKSLASH_ESCAPES
    ansi_quotes = bool(sql_mode & ANSI_QUOTES)
    match_at = _LEXERS[backslash, ansi_quotes].match
    at, inside = 0, False
    while at < len(text):
        found = match_at(text, at)
        assert found is not None, "the last alternative takes any character"  # noqa: S101
        kind, at = found.lastgroup, found.end()
        if kind in ("open", "version"):
            if _executed(found["open"], found["version"], server_version):
                inside = True
            else:
                at = _comment_end(text, at)
        elif kind == "close":
            if not inside:  # a multiplication: 2*/*comment*/3
                at -= 1
                yield Token("symbol", "*")
            inside = False
        elif kind not in ("space", "comment"):
            yield _token(found, text, backslash=backslash, ansi_quotes=ansi_quotes)


def _token(found: re.Match[str], text: str, *, backslash: bool, ansi_quotes: bool) -> Token:
    end = found.end()
    match found.lastgroup:
        case "word":
            return Token("word", found["word"], found["word"].upper())
        case "name":
            return Token("name", found["name"].replace("``", "`"))
        case "double" if ansi_quotes:
            return Token("name", found["double"].replace('""', '"'))
        case "string":
            return Token("string", _unescape(found["string"], "'", backslash=backslash))
        case "double":
            return Token("double", _unescape(found["double"], '"', backslash=backslash))
    if found["symbol"] in "'\"`" or text.startswith("/*", end - 1):
        raise SchemaError(f"A quote or comment that starts at character {end} does not end.")
    return Token("symbol", found["symbol"])


def _unescape(text: str, quote: str, *, backslash: bool) -> str:
    """Resolve all escapes in one pass: a doubled quote after a backslash is not a doubled quote."""
    if backslash and "\\" in text:
        return _ESCAPE[quote].sub(lambda m: _CONTROL.get(m[1], m[1]) if m[1] else quote, text)
    return text.replace(quote * 2, quote)


def _executed(opening: str, version: str | None, server_version: int) -> bool:
    number = int(version or 0)
    return number <= server_version and ("M" in opening or number not in _MYSQL_ONLY)


def _comment_end(text: str, at: int) -> int:
    """Return the end of a comment that may contain plain comments."""
    while True:
        end, inner = text.find("*/", at), text.find("/*", at)
        if end < 0:
            raise SchemaError("A comment does not end.")
        if not 0 <= inner < end:
            return end + 2
        at = text.find("*/", inner) + 2
