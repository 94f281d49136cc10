"""Parsers of option values: sizes, durations, hosts, start and end positions.

In: text, or a value that has its type already and passes unchanged. Out: bytes, seconds, words, endpoints. Each kind of
value has one parser, for the command line, the environment, every option file and Spark. The annotated types of this
module make the parsers fields of a configuration. Refused text is a ValueError, whose message continues a sentence that
begins with the option's name or its text.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, get_args

from pydantic import BeforeValidator, Field, SecretStr

from replica.errors import ConfigError
from replica.protocol.gtid import GtidPosition, foreign_position

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_BYTES = (1 << 63) - 1
"""Maximum size in bytes: kernels count bytes in signed 64-bit numbers."""
MAX_SECONDS = 365 * 86_400.0

_SIZE = re.compile(r"([0-9]{1,19})\s*([kmgt]?)b?", re.IGNORECASE)
_SIZE_SHIFT = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)?", re.IGNORECASE)
_DURATION_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_YES, _NO = frozenset({"true", "1", "yes", "on", "t", "y"}), frozenset({"false", "0", "no", "off", "f", "n"})
_LISTEN = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:\s]*)):([0-9]{1,5})")


def size(value: str | int) -> int:
    """Parse a size and return bytes: '64m' -> 67108864. The units k, m, g and t are powers of 1024."""
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if match is None:
            raise ValueError("is not a size such as 500k, 64m or 2g")
        value = int(match[1]) << _SIZE_SHIFT[match[2].lower()]
    if not 0 < value <= MAX_BYTES:
        raise ValueError(f"is not a size such as 500k, 64m or 2g: it is outside 1 to {MAX_BYTES} bytes")
    return value


def seconds(value: str | float) -> float:
    """Parse a duration and return seconds: '500ms' -> 0.5, '2d' -> 172800.0. A bare number is in seconds."""
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        if match is None:
            raise ValueError("is not a time such as 500ms, 10s, 5m or 2d")
        value = float(match[1]) * _DURATION_S[(match[2] or "s").lower()]
    if not 0 < value <= MAX_SECONDS:
        raise ValueError("is not a time such as 500ms, 10s, 5m or 2d: it is not above 0, or is longer than 365d")
    return value


def switch(value: str | bool) -> bool:  # noqa: FBT001  (a value that is parsed already)
    """Parse a switch: true, yes, on and 1, or false, no, off and 0, in any case."""
    if not isinstance(value, str):
        return value
    text = value.strip().lower()
    if text not in _YES | _NO:
        raise ValueError("is neither true nor false")
    return text in _YES


def one_of(choices: Any) -> Callable[[str], str]:
    """Return a parser that accepts the words of a Literal type, in any case."""
    known = get_args(choices)

    def parse(value: str) -> str:
        text = value.strip().lower() if isinstance(value, str) else value
        if text not in known:
            raise ValueError(f"is not one of {', '.join(known)}")
        return text

    return parse


def _hosts(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.strip() for name in value.split(",")) if isinstance(value, str) else value


def _listen(value: str | tuple[str, int]) -> tuple[str, int]:
    """Parse '127.0.0.1:9306', ':9306' or '[::1]:9306' as (host, port).

    An empty host means all addresses of the machine.
    """
    if not isinstance(value, str):
        return value
    match = _LISTEN.fullmatch(value.strip())
    if match is None or not 1 <= int(match[3]) <= 65_535:
        raise ValueError("is not host:port, such as 127.0.0.1:9306")
    return match[1] or match[2], int(match[3])


def _of(parser: Callable[[Any], object], *kinds: type) -> BeforeValidator:
    """Return a validator that parses values of these types. Pydantic refuses values of other types."""
    return BeforeValidator(lambda value: parser(value) if isinstance(value, kinds) else value)


Bytes = Annotated[int, _of(size, str, int)]
Seconds = Annotated[float, _of(seconds, str, int, float)]
WholeSeconds = Annotated[int, _of(seconds, str, int, float)]
Switch = Annotated[bool, _of(switch, str)]
Hosts = Annotated[tuple[str, ...], BeforeValidator(_hosts), Field(min_length=1)]
Listen = Annotated[tuple[str, int], BeforeValidator(_listen)]


def written(name: str, value: object) -> str:  # noqa: PLR0911  (one return for each kind of value)
    """Return a value as text that its parser accepts: 67108864 bytes -> 64m, 3600.0 s -> 1h. Secrets are masked."""
    match value:
        case None:
            return ""
        case SecretStr():
            return "********"
        case bool():
            return str(value).lower()
        case int() | float() if name.endswith("_s"):
            return _time(value)
        case int() if name.endswith("_bytes"):
            units = ((shift, unit) for unit, shift in reversed(_SIZE_SHIFT.items()))
            return next(f"{value >> shift}{unit}" for shift, unit in units if not value & ((1 << shift) - 1))
        case (str() as host, int() as port):
            return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        case tuple():
            return ",".join(map(str, value))
        case _:
            return str(value)


def _time(length_s: float) -> str:
    for unit in ("d", "h", "m"):
        if length_s >= _DURATION_S[unit] and length_s % _DURATION_S[unit] == 0:
            return f"{_digits(length_s / _DURATION_S[unit])}{unit}"
    return f"{_digits(length_s)}s"


def _digits(number: float) -> str:
    """Return all digits of a number without an exponent, which the parsers do not accept."""
    return f"{number:.0f}" if number == int(number) else f"{Decimal(repr(number)):f}"


class Endpoint(NamedTuple):
    """Address of a server: a host and port, or a Unix socket (then `host` is empty and `port` is 0)."""

    host: str
    port: int
    unix_socket: str = ""

    def __str__(self) -> str:
        if self.unix_socket:
            return self.unix_socket
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def endpoint(text: str, default_port: int) -> Endpoint:
    """Parse the address of a server: 'name', 'name:port' or '[address]:port'.

    Raises:
        ValueError: the text has another form, or the port is out of range.
    """
    if "@" in text:  # the text may contain a password: the message does not repeat it
        raise ValueError("a host is not a URL: user and password are separate options")
    match = re.fullmatch(
        r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\[\]:\s]+)|([0-9A-Fa-f:]+:[0-9A-Fa-f:.]*))(?::([0-9]{1,5}))?", text
    )
    if match is None or not _is_address(match[1] or match[3] or "::") or not _is_name(match[2] or "db1"):
        raise ValueError(f"host {text!r} is neither name, name:port nor [address]:port")
    port = int(match[4]) if match[4] else default_port
    if not 1 <= port <= 65_535:
        raise ValueError(f"host {text!r} has a port outside 1 to 65535")
    return Endpoint(match[1] or match[2] or match[3], port)


def _is_name(text: str) -> bool:
    try:
        return bool(text.encode("idna"))  # the resolver encodes names in the same way
    except UnicodeError:
        return False


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


# A time is the place before the first transaction, in binlog order, that was committed at that time or later. A range
# that starts at the time includes that transaction, and a range that ends at the time excludes it. Therefore the ranges
# [t1, t2) and [t2, t3) share no row.


MAX_INSTANT: Final = 1 << 32
"""Upper bound of times in seconds since 1970, because events store their time in 32 bits."""

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DATE: Final = re.compile(r"(19|20|21)\d\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")
_TIME: Final = re.compile(r"\d{4}-?\d\d-?\d\d[Tt]")


class CommitTime(NamedTuple):
    """A commit time in seconds since 1970 (UTC)."""

    seconds: int

    def __str__(self) -> str:
        return shown_instant(self.seconds)


Position = Literal["latest", "earliest"] | GtidPosition | CommitTime


def instant(text: str) -> int:
    """Return the time of ISO 8601 text in seconds since 1970 (UTC); parts of a second are rounded up.

    Examples are '2026-11-21T20:00:00Z' and '2026-11-21 21:00+01:00'.

    Raises:
            ValueError: the text is not a time, has no time zone, or is outside the range of a binlog (1970 to 2106).
    """
    try:
        parsed = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError("is not a time such as 2026-11-21T20:00:00Z") from None
    if parsed.tzinfo is None:
        raise ValueError("has no time zone; append Z (UTC) or an offset such as +01:00")
    seconds = math.ceil((parsed - _EPOCH).total_seconds())
    if not 0 <= seconds < MAX_INSTANT:
        raise ValueError("is outside 1970 to 2106, the range of a binlog")
    return seconds


def shown_instant(seconds: int) -> str:
    """Return seconds since 1970 as text that `instant` reads, in UTC."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def starting_place(text: str) -> Position:
    """Parse the start of a stream: latest, earliest, a GTID position or a time."""
    stripped = text.strip()
    if stripped.lower() == "earliest":
        return "earliest"
    return _place(stripped, "is neither latest nor earliest nor a time nor a GTID position such as 0-1-4711,1-2-9")


def ending_place(text: str) -> Position:
    """Parse the end of a range: latest, a GTID position, a time, or earliest, before the first transaction."""
    if text.strip().lower() == "earliest":
        return GtidPosition()
    return _place(text.strip(), "is neither latest nor earliest nor a time nor a GTID position such as 0-1-4711,1-2-9")


def start_of_log(text: str) -> Literal["latest", "earliest"] | GtidPosition:
    """Parse the start of a relay log: latest, earliest, or a GTID position.

    '' is the place before the first transaction of the binlog.
    """
    if not text.strip():
        return GtidPosition()
    match starting_place(text):
        case CommitTime() as time:
            raise ValueError(f"is a time: `mariadb-replica position --time {time}` prints its GTID position")
        case place:
            return place


def _place(text: str, expected: str) -> Position:
    if text.lower() == "latest":
        return "latest"
    if not text:
        raise ValueError("is empty; earliest starts at the oldest binlog")
    if foreign := foreign_position(text):
        raise ValueError(foreign)
    if ":" in text or _TIME.match(text):
        return CommitTime(instant(text))
    if _DATE.fullmatch(text):
        raise ValueError(f"may be a date or a GTID; write {text}T00:00:00Z for the date")
    try:
        return GtidPosition.parse(text)
    except ConfigError as error:
        raise ValueError(f"{expected} ({error.message})") from None
