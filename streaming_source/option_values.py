"""Text of one option -> typed value. Each parser raises ValueError with the end of a sentence: "is outside 1 to 9".

The option's name is added by the caller (options.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, get_args

from replica.errors import ConfigError
from replica.protocol.gtid import GtidPosition

STARTING_WORDS = ("latest", "earliest")

_SIZE = re.compile(r"(\d+)\s*([kmgt]?)b?", re.IGNORECASE)
_SIZE_SHIFT = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?", re.IGNORECASE)
_DURATION_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_READER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")  # it becomes the name of a file
_QUALIFIED = re.compile(r"[^.]+\.[^.]+")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")  # two letters at least: C:/ is a path
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


def paths(value: str) -> tuple[str, ...]:
    """Paths and globs of this machine's file system, with commas between them."""
    found = tuple(local_path(part.strip()) for part in value.split(","))
    if not all(found):
        raise ValueError("names an empty path")
    return found


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
    """latest, earliest, or a GTID position in its canonical text."""
    word = value.strip()
    if word.lower() in STARTING_WORDS:
        return word.lower()
    if not word:
        raise ValueError("is empty; earliest starts at the oldest binlog")
    try:
        return str(GtidPosition.parse(word))
    except ConfigError as error:
        expected = "is neither latest nor earliest nor a GTID position such as 0-1-4711,1-2-9"
        raise ValueError(f"{expected} ({error.message})") from None
