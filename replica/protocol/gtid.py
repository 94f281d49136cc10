"""Global transaction ids and positions as MariaDB defines them.

A position has at most one GTID for each replication domain: the last event group that the position includes. The server
prints a position in @@gtid_binlog_pos and takes it in @slave_connect_state. A position is not a set of GTIDs: it also
includes every group that the binlog has before those GTIDs. Positions are only partially ordered, and even that order
is a heuristic, because the sequence numbers of a domain may jump and, without gtid_strict_mode, go back.

Source: the server's sql/rpl_gtid.cc (gtid_parser_helper, rpl_slave_state_tostring_helper) for the text; the relations
between positions were measured on 10.5, 10.11 and 11.8.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from replica.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

_HINT = (
    "A position is written like 0-1-4711,7-2-9: domain-server-sequence, one per domain, as @@gtid_binlog_pos prints it."
)

_OFFSET_DIGITS = 19  # of 64 bits


class Gtid(NamedTuple):
    """GTID of one event group: `0-1-4711`."""

    domain_id: int
    server_id: int
    seq_no: int

    def __str__(self) -> str:
        return f"{self.domain_id}-{self.server_id}-{self.seq_no}"

    @classmethod
    def parse(cls, text: str) -> Self:
        parts = text.strip().split("-")
        # isdecimal alone accepts digits of other scripts, and int() accepts signs and underscores.
        if len(parts) != 3 or not all(part.isascii() and part.isdecimal() for part in parts):
            _refuse_foreign(text)
            raise ConfigError(f"{_shorten(text)!r} is not a GTID.", hint=_HINT)
        # More digits than 2**64 has are out of range. int() refuses thousands of digits with a ValueError.
        numbers = [int(part) if len(part.lstrip("0")) <= 20 else 1 << 64 for part in parts]
        gtid = cls(*numbers)
        if gtid.domain_id >= 1 << 32 or gtid.server_id >= 1 << 32 or gtid.seq_no >= 1 << 64:
            raise ConfigError(f"{_shorten(text)!r} is not a GTID: a number is too large.", hint=_HINT)
        return gtid


class Order(Enum):
    """Relation of one position to another."""

    EQUAL = "equal"
    BEFORE = "before"
    AFTER = "after"
    CONCURRENT = "concurrent"


@dataclass(frozen=True, slots=True)
class GtidPosition:
    """GTID position: at most one GTID for each domain, sorted by domain. Immutable, hashable, picklable.

    `str()` returns the server's notation: `0-1-4711,7-2-9`. Iteration yields the GTIDs, each with `domain_id`,
    `server_id` and `seq_no`. A position without GTIDs is the one before the first transaction.

    Args:
        gtids: the GTIDs, of different domains.

    Raises:
        ConfigError: two GTIDs have the same domain.
    """

    gtids: tuple[Gtid, ...] = ()

    def __post_init__(self) -> None:
        gtids = self.gtids
        if all(a.domain_id < b.domain_id for a, b in pairwise(gtids)):
            return
        ordered = tuple(sorted(gtids))
        for a, b in pairwise(ordered):
            if a.domain_id == b.domain_id:
                raise ConfigError(f"GTID {a} and {b} conflict: domain {a.domain_id} is named twice.", hint=_HINT)
        object.__setattr__(self, "gtids", ordered)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the notation that `str()` and the server print.

        Args:
            text: GTIDs separated by commas, with optional blanks; '' is the empty position.

        Returns:
            The position.

        Raises:
            ConfigError: the text is no GTID position. The message names the format of the text if it is recognised.
        """
        if not text.strip():
            return cls()
        try:
            return cls(tuple(Gtid.parse(part) for part in text.split(",")))
        except ConfigError:
            _refuse_foreign(text)  # the whole text, not the part that failed
            raise

    @classmethod
    def last_of(cls, gtids: Iterable[Gtid]) -> Self:
        """Return the last GTID of each domain. A GTID_LIST has one entry for each domain and server id.

        The domain's last group is the last of its entries (measured on 10.5, 10.11 and 11.8).
        """
        return cls(tuple(sorted({gtid.domain_id: gtid for gtid in gtids}.values())))

    def __str__(self) -> str:
        return ",".join(map(str, self.gtids))

    def __iter__(self) -> Iterator[Gtid]:
        return iter(self.gtids)

    def __len__(self) -> int:
        return len(self.gtids)

    def __contains__(self, domain_id: int) -> bool:
        return self.get(domain_id) is not None

    def __getitem__(self, domain_id: int) -> Gtid:
        gtid = self.get(domain_id)
        if gtid is None:
            raise KeyError(domain_id)
        return gtid

    def get(self, domain_id: int) -> Gtid | None:
        for gtid in self.gtids:
            if gtid.domain_id == domain_id:
                return gtid
        return None

    def advance(self, gtid: Gtid) -> GtidPosition:
        """Return the position after `gtid`, which replaces the entry of its domain.

        Stream order decides, so a lower sequence number replaces a higher one. With gtid_strict_mode=OFF, the default,
        servers write such numbers (measured on 10.5, 10.11 and 11.8).
        """
        return GtidPosition(tuple(sorted([*(g for g in self.gtids if g.domain_id != gtid.domain_id), gtid])))

    def compare(self, other: GtidPosition) -> Order:
        """Compare two positions by the sequence number of each domain. The order is partial.

        A missing domain is before any GTID of that domain. The same sequence number under two server ids is CONCURRENT,
        because one of the servers has diverged. (A server counts on from the highest number of its domain, also if
        another server wrote that number: measured on 10.5, 10.11 and 11.8.)
        """
        if self.gtids == other.gtids:
            return Order.EQUAL
        before = _none_after(self, other)
        after = _none_after(other, self)
        if before:
            return Order.BEFORE
        return Order.AFTER if after else Order.CONCURRENT


def covers(position: GtidPosition, other: GtidPosition) -> bool:
    """Return True if `position` has reached `other` in every domain, by sequence number."""
    return all((mine := position.get(gtid.domain_id)) is not None and mine.seq_no >= gtid.seq_no for gtid in other)


def _none_after(a: GtidPosition, b: GtidPosition) -> bool:
    theirs = {gtid.domain_id: gtid for gtid in b.gtids}
    for gtid in a.gtids:
        other = theirs.get(gtid.domain_id)
        if other is None or (other != gtid and gtid.seq_no >= other.seq_no):
            return False
    return True


def _refuse_foreign(text: str) -> None:
    """Raise a ConfigError for a position in another notation, with the command that converts it."""
    foreign = foreign_position(text)
    if foreign:
        raise ConfigError(f"{_shorten(text)!r} is not a GTID position: it {foreign}.", hint=_HINT)


def _shorten(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


class BinlogPosition(NamedTuple):
    """A file of one server's binlog and a byte offset in it (64-bit), where the next event starts.

    Positions order as the server orders acknowledgements: by file name as text, then by offset (sql/semisync_master.cc:
    Active_tranx::compare, 10.11 and 11.8). A position is valid only on the server that it comes from.
    """

    file: str
    position: int

    def __str__(self) -> str:
        return f"{self.file}:{self.position}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the notation of `str()`, SHOW MASTER STATUS and backups: binlog.000007:4711."""
        file, _, offset = text.strip().rpartition(":")
        if not file or not (offset.isascii() and offset.isdecimal() and len(offset) <= _OFFSET_DIGITS):
            raise ConfigError(f"{_shorten(text)!r} is not of the form FILE:POS.", hint="Such as binlog.000007:4711.")
        return cls(file, int(offset))


# GTIDs that may name more than one place of a binlog, because sequence numbers went back.
#
# A server without gtid_strict_mode takes any number that a session sets (SET gtid_seq_no, every replay of
# mariadb-binlog): 0-1-2 may follow 0-1-9. Then 0-1-2 names two places of its binlog. So may 0-1-3 to 0-1-9, because the
# server may use these numbers again. If a replica asks for one of them, the server sends from the first place, or from
# the place in the file that it reads first. 0-1-10 is above every earlier number and names one place again. So a
# position is **ambiguous** if its sequence number in any domain is not above the highest number after which that domain
# went back. The rule is mariadbd's own: a number went back if it is not above the last number of its domain, whatever
# the server ids.
#
# A place on the primary distinguishes the candidates of an ambiguous position: a binlog file and an offset in it, valid
# on that server only.

Highest = Mapping[int, int]
"""Domain -> the highest sequence number after which the domain's numbers went back."""


def ambiguous(position: Iterable[Gtid], highest: Highest) -> tuple[Gtid, ...]:
    """Return the GTIDs of a position that may name more than one place."""
    return tuple(gtid for gtid in position if gtid.seq_no <= highest.get(gtid.domain_id, -1))


def of_position(position: Iterable[Gtid], highest: Highest) -> dict[int, int]:
    """Return the entries of `highest` that make a position ambiguous; none if the position names a single place."""
    return {gtid.domain_id: highest[gtid.domain_id] for gtid in ambiguous(position, highest)}


def merged(one: Highest, other: Highest) -> dict[int, int]:
    """Return the higher number of each domain."""
    return {domain: max(one.get(domain, 0), other.get(domain, 0)) for domain in sorted({*one, *other})}


# Positions in another notation than MariaDB's GTID positions, and advice on how to convert them. Recognised are a file
# and offset, as SHOW MASTER STATUS and backups print them; a GTID set of MySQL; and JSON, as in Spark's checkpoints and
# Debezium's offsets.

_FILE_AND_OFFSET: Final = re.compile(r"(?P<file>[^\s,:/\\]+\.\d{6,})\s*[:,\s]\s*(?P<offset>\d+)")
_FILE: Final = re.compile(r"[^\s,:/\\]+\.\d{6,}")
_UUID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}(?::|$)", re.IGNORECASE)
_MARIADB: Final = re.compile(r"\d{1,10}-\d{1,10}-\d{1,20}(?:,\d{1,10}-\d{1,10}-\d{1,20})*")
_MAX_JSON: Final = 64 << 10
"""Maximum length of text that is parsed as JSON; a real offset has some kilobytes."""


def foreign_position(text: str) -> str:
    """Return what the text is and the command that converts it; '' if the notation is not recognised.

    The words follow the text in a message, such as "is a file and an offset: …".
    """
    text = text.strip()
    if match := _FILE_AND_OFFSET.fullmatch(text):
        return f"is a binlog file and an offset in it: {_command(match['file'], match['offset'])}"
    if _FILE.fullmatch(text):
        return f"is the name of a binlog file: {_command(text, '4')}"
    if _UUID.match(text):
        return (
            "is a GTID set of MySQL, and MariaDB's are domain-server-sequence: `mariadb-replica position --file-pos "
            "FILE:POS` or `--time TIME` prints the position of the same place on a MariaDB server"
        )
    if text.startswith("{") and len(text) <= _MAX_JSON:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return ""
        return _of_json(value)
    return ""


def _of_json(value: dict[str, Any]) -> str:
    """Describe an offset of a checkpoint (gtid) or of Debezium (gtids, or file and pos)."""
    for name in ("gtid", "gtids"):
        gtid = value.get(name)
        if isinstance(gtid, str) and _MARIADB.fullmatch(gtid):
            return f"is JSON, and the GTID position in it is {gtid}: give only that"
    file, offset = value.get("file"), value.get("pos", value.get("position"))
    if isinstance(file, str) and isinstance(offset, int) and _FILE.fullmatch(file):
        return f"is JSON with a binlog file and an offset in it: {_command(file, str(offset))}"
    return "is JSON without a GTID position: `mariadb-replica position --file-pos FILE:POS` prints one"


def _command(file: str, offset: str) -> str:
    return f"`mariadb-replica position --file-pos {file}:{offset}` prints its GTID position"
