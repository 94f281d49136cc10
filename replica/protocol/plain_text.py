r"""Escapes of control characters in text that comes from a server, a binlog or an error message.

In: any text from outside of this program. Out: the same text with control characters shown as \x1b, so that no
character commands the terminal or breaks a line. Code that prints for people must escape last, after every other check.
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
    """Return text of several lines with its control characters escaped; tabs and newlines stay."""
    return _CONTROL.sub(_hex, text)


def one_line(text: str) -> str:
    """Return text on one line, with all control characters escaped."""
    return _ANY_CONTROL.sub(_hex, text)


def has_control(text: str) -> bool:
    """Return True if the name has a control character, which no valid name has."""
    return _ANY_CONTROL.search(text) is not None


def plain_event(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape the texts of a log event, as a processor of structlog."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = printable(value) if key == _TRACEBACK else one_line(value)
    return event


def plain_json(line: str) -> str:
    """Return a JSON line with 0x7f to 0x9f escaped. JSON escapes the other control characters itself."""
    return _LATE_CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", line)


def _hex(match: re.Match[str]) -> str:
    return f"\\x{ord(match[0]):02x}"
