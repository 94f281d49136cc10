"""What people write as the value of an option, as what programs count with: sizes, times, hosts, addresses.

In: text, or values that have their type already (they pass). Out: bytes, seconds, instants, endpoints, as types for
the fields of a configuration. Refused with a ValueError whose words go behind the option's name.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import math
import re
from typing import Annotated, NamedTuple

from pydantic import BeforeValidator, Field

MAX_SECONDS = 365 * 86_400.0
MAX_INSTANT = 1 << 32
"""Events have 32 bits for their time."""

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

_SIZE = re.compile(r"(\d+)\s*([kmgt]?)b?", re.IGNORECASE)
_SIZE_SHIFT = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?", re.IGNORECASE)
_DURATION_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}

_LISTEN = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:\s]*)):(\d{1,5})")


def _size(value: object) -> object:
    """'64m' -> 67108864; k, m, g and t are powers of 1024."""
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError("is not a size such as 500k, 64m or 2g")
    return int(match[1]) << _SIZE_SHIFT[match[2].lower()]


def _seconds(value: object) -> object:
    """'500ms' -> 0.5, '2d' -> 172800.0; a bare number is seconds."""
    if not isinstance(value, str):
        return value
    match = _DURATION.fullmatch(value.strip())
    if match is None:
        raise ValueError("is not a time such as 500ms, 10s, 5m or 2d")
    return float(match[1]) * _DURATION_S[(match[2] or "s").lower()]


def instant(text: str) -> int:
    """An ISO 8601 time with its zone -> seconds since 1970 (UTC); parts of a second are rounded up.

    '2026-11-21T20:00:00Z', '2026-11-21 21:00+01:00'. Without a zone it would be somebody's local time, and nobody here
    knows whose: a ValueError, as for what is no time, or none that a binlog can hold (1970 to 2106).
    """
    try:
        parsed = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError("is not a time such as 2026-11-21T20:00:00Z") from None
    if parsed.tzinfo is None:
        raise ValueError("does not say in which time zone; put Z (UTC) or an offset such as +01:00 behind it")
    seconds = math.ceil((parsed - _EPOCH).total_seconds())
    if not 0 <= seconds < MAX_INSTANT:
        raise ValueError("is outside 1970 to 2106, what a binlog can hold")
    return seconds


def shown_instant(seconds: int) -> str:
    """Seconds since 1970 as `instant` reads them, in UTC."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _hosts(value: object) -> object:
    if not isinstance(value, str):
        return value
    return tuple(name.strip() for name in value.split(","))


def _listen(value: object) -> object:
    """'127.0.0.1:9306', ':9306' or '[::1]:9306' as (host, port); an empty host is every address of the machine."""
    if not isinstance(value, str):
        return value
    match = _LISTEN.fullmatch(value.strip())
    if match is None or not 1 <= int(match[3]) <= 65_535:
        raise ValueError("is not host:port, such as 127.0.0.1:9306")
    return match[1] or match[2], int(match[3])


Bytes = Annotated[int, BeforeValidator(_size), Field(gt=0)]
Seconds = Annotated[float, BeforeValidator(_seconds), Field(gt=0, le=MAX_SECONDS)]
WholeSeconds = Annotated[int, BeforeValidator(_seconds)]
Hosts = Annotated[tuple[str, ...], BeforeValidator(_hosts), Field(min_length=1)]
Listen = Annotated[tuple[str, int], BeforeValidator(_listen)]


class Endpoint(NamedTuple):
    """Where to connect: a host and port, or a Unix socket (then host is empty and port 0)."""

    host: str
    port: int
    unix_socket: str = ""

    def __str__(self) -> str:
        if self.unix_socket:
            return self.unix_socket
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def endpoint(text: str, default_port: int) -> Endpoint:
    """The server that 'name', 'name:port' or '[address]:port' means; ValueError for anything else."""
    if "@" in text:  # what stands there may be a password: it is not repeated
        raise ValueError("a host is no URL: user and password are options of their own")
    match = re.fullmatch(
        r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\[\]:\s]+)|([0-9A-Fa-f:]+:[0-9A-Fa-f:.]*))(?::(\d{1,5}))?", text
    )
    if match is None or not _is_address(match[1] or match[3] or "::") or not _is_name(match[2] or "db1"):
        raise ValueError(f"host {text!r} is neither name, name:port nor [address]:port")
    port = int(match[4]) if match[4] else default_port
    if not 1 <= port <= 65_535:
        raise ValueError(f"host {text!r} has a port outside 1 to 65535")
    return Endpoint(match[1] or match[2] or match[3], port)


def _is_name(text: str) -> bool:
    try:
        return bool(text.encode("idna"))  # as the resolver will
    except UnicodeError:
        return False


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
