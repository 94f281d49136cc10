"""Parsers of values that only the Spark source has: whole numbers, tables, columns, paths, names of readers.

Each parser takes the text of one option and returns its typed value. It raises ValueError with the end of a sentence,
such as "is outside 1 to 9", and the caller (row_options.py) adds the option's name. Sizes, durations, switches, words,
patterns and places have parsers in replica/options/values.py and replica/options/places.py, which the command line
shares.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from replica.schema.patterns import table_pattern

_READER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")  # it becomes a file name
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")  # at least two letters, because C:/ is a path

Parser = Callable[[str], Any]


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


def reader_name(value: str) -> str:
    name = value.strip()
    if not _READER.fullmatch(name):
        raise ValueError("is not a name of up to 100 letters, digits, dots, hyphens and underscores")
    return name


def table(value: str) -> tuple[str, str]:
    name = table_pattern(value).name
    if name is None:
        raise ValueError("holds a pattern; table takes one table, tables takes patterns")
    return name


def columns(value: str) -> tuple[str, ...]:
    """Read names of columns. `*` matches any text."""
    names = tuple(name.strip().strip("`") for name in value.split(","))
    if not all(names):
        raise ValueError("names an empty column")
    return names


def words(known: tuple[str, ...]) -> Parser:
    """Make a parser for some of these words, separated by commas. It returns them in the order of `known`."""

    def parse(value: str) -> tuple[str, ...]:
        given = [word.strip().lower() for word in value.split(",")]
        for word in given:
            if word not in known:
                raise ValueError(f"holds {word!r}, which is not one of {', '.join(known)}")
        return tuple(word for word in known if word in given)

    return parse


def paths(value: str) -> tuple[str, ...]:
    """Read paths and globs of the local file system, separated by commas."""
    found = tuple(local_path(part.strip()) for part in value.split(","))
    if not all(found):
        raise ValueError("names an empty path")
    return found


def folder(value: str) -> Path:
    """Read the path of a folder, which need not exist."""
    return Path(file(value))


def file(value: str) -> str:
    path = local_path(value.strip().removeprefix("FILE:"))  # as file_key_management_filekey is written
    if not path:
        raise ValueError("names an empty path")
    return path


def local_path(text: str) -> str:
    """Read a local path, or that of a URL file:///var/log/bin.000001. Other schemes are errors."""
    scheme = _SCHEME.match(text)
    if scheme is None:
        path = text
    elif scheme[1].lower() == "file":
        path = "/" + text[scheme.end() :].lstrip("/")
    else:
        raise ValueError(f"is on {scheme[1]}://, but only paths that the nodes can open themselves are read")
    if "\0" in path:
        raise ValueError("holds a zero byte")
    return path
