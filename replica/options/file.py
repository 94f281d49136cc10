"""Parser of MariaDB's option files (`my.cnf`). The meaning of the options is in `options/client.py`.

In: the path of a file. Out: its settings in order, with those of an included file at the place of the include. Quotes,
escapes, comments and includes follow mysys/my_default.c, which Python's configparser does not support.

Refused: a file that every user of the machine may write, and a file that cannot be read or is not UTF-8. An option
outside of a group and includes deeper than MAX_DEPTH are refused too. A relative include is resolved against the folder
of the including file.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from replica.errors import MAY_READ, ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_DEPTH: Final = 10
"""Maximum depth of nested includes, as in my_default.c."""
MAX_FILE_BYTES: Final = 1 << 20
"""Maximum size of an option file. Real option files have a few hundred lines; a larger file is named by mistake."""
_COMMENTS: Final = ("#", ";")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "s": " ", '"': '"', "'": "'", "\\": "\\"}
_SPACE: Final = " \t\n\v\f\r"


@dataclass(frozen=True, slots=True)
class Setting:
    """One line `name=value`. A missing value (None) differs from an empty one."""

    group: str
    name: str
    value: str | None = field(repr=False)
    place: str
    """File and line, for messages."""


def read_option_file(path: Path) -> list[Setting]:
    """Return every setting of the file and its includes, in the order in which they take effect.

    Raises:
        ConfigError: the file is refused, see the module docstring. The message names file and line, never the line's
            text.
    """
    return list(_settings(path, 0))


def _settings(path: Path, depth: int) -> Iterator[Setting]:
    if depth > MAX_DEPTH:
        raise ConfigError(
            f"option file {path} is included {depth} levels deep.", hint="Remove the cycle of !include lines."
        )
    group: str | None = None
    for number, raw in enumerate(_read(path).split("\n"), 1):
        line, place = raw.strip(_SPACE), f"{path}:{number}"
        if not line or line.startswith(_COMMENTS):
            continue
        if line.startswith("!"):
            for included in _included(line, path, place):
                yield from _settings(included, depth + 1)
        elif line.startswith("["):
            name, end, _ = line[1:].partition("]")
            if not end:
                raise ConfigError(f"{place}: a group's name has no closing bracket.", hint="Write it like [client].")
            group = name.rstrip(_SPACE)
        elif group is None:
            raise ConfigError(f"{place}: an option is before the first group.", hint="Begin with a line [client].")
        else:
            name, equals, value = _without_comment(line).partition("=")
            yield Setting(group, name.rstrip(_SPACE), _value(value) if equals else None, place)


def _read(path: Path) -> str:
    try:
        status = path.stat()
        if status.st_mode & stat.S_IWOTH:
            raise ConfigError(f"option file {path} is writable by every user.", hint=f"chmod o-w {path}")
        if status.st_size > MAX_FILE_BYTES:
            raise ConfigError(
                f"option file {path} has {status.st_size} bytes, too many for an option file.", hint=MAY_READ
            )
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"option file {path} cannot be read: {error}.", hint=MAY_READ) from None


def _included(line: str, path: Path, place: str) -> list[Path]:
    word, _, rest = line.replace("\t", " ").partition(" ")
    target = path.parent / rest.strip(_SPACE)
    if not rest.strip(_SPACE) or word not in ("!include", "!includedir"):
        raise ConfigError(
            f"{place}: only !include FILE and !includedir FOLDER may begin with '!'.",
            hint="Correct or remove that line.",
        )
    if word == "!include":
        return [target]
    try:
        return sorted(found for found in target.iterdir() if found.suffix == ".cnf" and found.is_file())
    except OSError as error:
        raise ConfigError(f"{place}: the folder cannot be read: {error}.", hint=MAY_READ) from None


def _without_comment(line: str) -> str:
    """Return the line up to a '#' outside of quotes."""
    quote, escaped = "", False
    for at, character in enumerate(line):
        if character in "'\"" and not escaped:
            quote = "" if quote == character else quote or character
        if not quote and character == "#":
            return line[:at]
        escaped = bool(quote) and character == "\\" and not escaped
    return line


def _value(text: str) -> str:
    text = text.strip(_SPACE)
    if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0]:
        text = text[1:-1]
    parts: list[str] = []
    characters = iter(text)
    for character in characters:
        following = next(characters, "") if character == "\\" else ""
        # A backslash before any other character, or at the end, is a literal backslash.
        parts.append(_ESCAPES.get(following, character + following) if following else character)
    return "".join(parts)
