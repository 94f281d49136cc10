"""Text of one option -> typed value. Each parser raises ValueError with the end of a sentence: "is outside 1 to 9".

The option's name is added by the caller (source_options.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from replica.errors import ConfigError
from replica.option_values import instant, shown_instant
from replica.protocol.foreign_position import foreign_position
from replica.protocol.gtid import GtidPosition

STARTING_WORDS = ("latest", "earliest")

_SIZE = re.compile(r"(\d+)\s*([kmgt]?)b?", re.IGNORECASE)
_SIZE_SHIFT = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?", re.IGNORECASE)
_DURATION_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_READER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")  # it becomes the name of a file
_QUALIFIED = re.compile(r"[^.]+\.[^.]+")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")  # two letters at least: C:/ is a path
_DATE = re.compile(r"(19|20|21)\d\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")
_TIME = re.compile(r"\d{4}-?\d\d-?\d\d[Tt]")
_YES, _NO = {"true", "1", "yes", "on"}, {"false", "0", "no", "off"}

Parser = Callable[[str], Any]


def boolean(value: str) -> bool:
    word = value.strip().lower()
    if word not in _YES | _NO:
        raise ValueError("is neither true nor false")
    return word in _YES


def integer(low: int, high: int) -> Parser:
    def parse(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            raise ValueError("is not a whole number") from None
        if not low <= number <= high:
            raise ValueError(f"is outside {low} to {high}")
        return number

    return parse


def size(value: str) -> int:
    """Bytes; k, m, g and t are powers of 1024."""
    match = _SIZE.fullmatch(value.strip())
    if match is None or int(match[1]) == 0:
        raise ValueError("is not a size such as 500k, 64m or 2g")
    return int(match[1]) << _SIZE_SHIFT[match[2].lower()]


def seconds(value: str) -> float:
    """A bare number is seconds."""
    match = _DURATION.fullmatch(value.strip())
    if match is None or not float(match[1]):
        raise ValueError("is not a time such as 500ms, 10s, 5m or 2d")
    return float(match[1]) * _DURATION_S[(match[2] or "s").lower()]


def reader_name(value: str) -> str:
    name = value.strip()
    if not _READER.fullmatch(name):
        raise ValueError("is not a name of up to 100 letters, digits, dots, hyphens and underscores")
    return name


def choice(words: Any) -> Parser:
    """One of the words of a Literal type."""

    def parse(value: str) -> str:
        word = value.strip().lower()
        if word not in get_args(words):
            raise ValueError(f"is not one of {', '.join(get_args(words))}")
        return word

    return parse


def table(value: str) -> tuple[str, str]:
    name = value.strip()
    if "*" in name:
        raise ValueError("holds a pattern; table takes one table, tables takes patterns")
    if not _QUALIFIED.fullmatch(name):
        raise ValueError("is not of the form database.table")
    database, _, unqualified = name.partition(".")
    return database, unqualified


def tables(value: str) -> tuple[str, ...]:
    patterns = tuple(p.strip() for p in value.split(","))
    for pattern in patterns:
        if not _QUALIFIED.fullmatch(pattern):
            raise ValueError(f"holds {pattern!r}, which is not of the form database.table (* stands for any text)")
    return patterns


def columns(value: str) -> tuple[str, ...]:
    """Names of columns, `*` stands for any text."""
    names = tuple(name.strip().strip("`") for name in value.split(","))
    if not all(names):
        raise ValueError("names an empty column")
    return names


def words(known: tuple[str, ...]) -> Parser:
    """Some of these words, with commas between them; they come back in the order of `known`."""

    def parse(value: str) -> tuple[str, ...]:
        given = [word.strip().lower() for word in value.split(",")]
        for word in given:
            if word not in known:
                raise ValueError(f"holds {word!r}, which is not one of {', '.join(known)}")
        return tuple(word for word in known if word in given)

    return parse


def paths(value: str) -> tuple[str, ...]:
    """Paths and globs of this machine's file system, with commas between them."""
    found = tuple(local_path(part.strip()) for part in value.split(","))
    if not all(found):
        raise ValueError("names an empty path")
    return found


def folder(value: str) -> Path:
    """The path of a folder, which need not be there yet."""
    return Path(file(value))


def file(value: str) -> str:
    """The path of one file."""
    path = local_path(value.strip().removeprefix("FILE:"))  # file_key_management_filekey is written so
    if not path:
        raise ValueError("names an empty path")
    return path


def local_path(text: str) -> str:
    """A path as it is, or that of a URL file:///var/log/bin.000001; no other scheme can be opened."""
    scheme = _SCHEME.match(text)
    if scheme is None:
        path = text
    elif scheme[1].lower() == "file":
        path = "/" + text[scheme.end() :].lstrip("/")
    else:
        raise ValueError(f"is on {scheme[1]}://, and only paths that the nodes can open themselves are read")
    if "\0" in path:
        raise ValueError("holds a zero byte")
    return path


def position(value: str) -> str:
    """latest, earliest, a GTID position or a time, in its canonical text (`positions.py` reads that)."""
    word = value.strip()
    if word.lower() in STARTING_WORDS:
        return word.lower()
    return _place(word, "is neither latest nor earliest nor a time nor a GTID position such as 0-1-4711,1-2-9")


def end_position(value: str) -> str:
    """latest, a GTID position or a time."""
    word = value.strip()
    if word.lower() == "latest":
        return word.lower()
    return _place(word, "is neither latest nor a time nor a GTID position such as 0-1-4711,1-2-9")


def _place(word: str, expected: str) -> str:
    if not word:
        raise ValueError("is empty; earliest starts at the oldest binlog")
    if foreign := foreign_position(word):
        raise ValueError(foreign)
    if ":" in word or _TIME.match(word):
        return shown_instant(instant(word))
    if _DATE.fullmatch(word):
        raise ValueError(f"may be a date or a GTID; write {word}T00:00:00Z for the date")
    try:
        return str(GtidPosition.parse(word))
    except ConfigError as error:
        raise ValueError(f"{expected} ({error.message})") from None
