r"""Text of strangers on a terminal: control characters are shown as \x1b instead of being obeyed.

In: all that a server, a binlog or an error quotes. Out: the same text, in which no character commands the terminal or
makes a second line of one. Code that prints for people does this last, whatever was refused before.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_ANY_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_LATE_CONTROL: Final = re.compile(r"[\x7f-\x9f]")
_TRACEBACK: Final = "exception"


def printable(text: str) -> str:
    """Return text of many lines, without what would command a terminal."""
    return _CONTROL.sub(_hex, text)


def one_line(text: str) -> str:
    """Return the same for what has to stay on its line."""
    return _ANY_CONTROL.sub(_hex, text)


def has_control(text: str) -> bool:
    """Tell whether a name has characters that no name has."""
    return _ANY_CONTROL.search(text) is not None


def plain_event(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Make the texts of a log event fit to be printed; a processor of structlog."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = printable(value) if key == _TRACEBACK else one_line(value)
    return event


def plain_json(line: str) -> str:
    """Return the JSON line with the control characters escaped that JSON allows."""
    return _LATE_CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", line)


def _hex(match: re.Match[str]) -> str:
    return f"\\x{ord(match[0]):02x}"
