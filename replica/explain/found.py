"""Answer of `explain`: the transaction and its place, or why it is missing.

In: a search through a relay log or through binlog files. Out: an `Answer`, plain values for people and for JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from replica.rows.scan.xa import CarriedGroup, XaAction, XaGroup, find_xa_groups

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replica.explain.transaction import Transaction
    from replica.log_reader.part import Part
    from replica.protocol.events.transaction_events import XaId
    from replica.protocol.gtid import Gtid

Reason = Literal["empty", "domain", "purged", "not yet", "other server", "hole", "not here"]


class Partner(NamedTuple):
    """The other half of an XA transaction: its action, and its place."""

    action: XaAction
    gtid: Gtid
    file: str
    offset: int


@dataclass(slots=True)
class Answer:
    """Answer about one GTID. `reason` and `words` explain a missing `transaction`."""

    gtid: Gtid
    where: str
    """What was searched."""
    transaction: Transaction | None = None
    file: str = ""
    offset: int = 0
    primary_file: str = ""
    primary_end: int | None = None
    on_disk: bool | None = None
    """None: unknown here."""
    acknowledged: bool | None = None
    partner: Partner | None = None
    reason: Reason | None = None
    words: str = ""

    def as_dict(self) -> dict[str, object]:
        """Return the answer for JSON."""
        if self.transaction is None:
            return {
                "gtid": str(self.gtid),
                "found": False,
                "searched": self.where,
                "reason": self.reason,
                "message": self.words,
            }
        partner = self.partner
        return {
            "found": True,
            "searched": self.where,
            **self.transaction.as_dict(),
            "file": self.file,
            "offset": self.offset,
            "end": self.offset + self.transaction.bytes,
            "primary": {"file": self.primary_file, "start": self.primary_start, "end": self.primary_end},
            "on_disk": self.on_disk,
            "acknowledged": self.acknowledged,
            "xa_partner": None
            if partner is None
            else {"action": partner.action.value, "gtid": str(partner.gtid), "file": partner.file,
                  "offset": partner.offset},
        }  # fmt: skip

    @property
    def primary_start(self) -> int | None:
        """Start of the group in the primary's file. Headers hold its lower 32 bits."""
        begin = None if self.transaction is None else self.transaction.began_at
        if begin is None or self.primary_end is None:
            return begin
        start = (self.primary_end & ~_LOW) | begin
        return start if start < self.primary_end else start - _LOW - 1


_LOW: Final = (1 << 32) - 1


class XaSearch:
    """Search for the other half of one XA transaction in the parts of a log, which are fed in order.

    For a prepared transaction it is its end. For a transaction that ends, it is the XA PREPARE, which has the rows.
    """

    def __init__(self, gtid: Gtid, xid: XaId) -> None:
        self.partner: Partner | None = None
        self.prepared: CarriedGroup | None = None
        self._gtid = gtid
        self._xid = xid
        self._met = False
        self._before: tuple[Partner, CarriedGroup] | None = None

    def feed(self, part: Part) -> bool:
        """Search a part; return True if the search is finished."""
        for group in find_xa_groups(part.piece.data, checksum=part.piece.checksum):
            if group.xid != self._xid:
                continue
            if self._met:
                self.partner = _partner(part, group)
                return True
            if group.gtid == self._gtid and group.action is XaAction.PREPARE:
                self._met = True
            elif group.gtid == self._gtid:
                if self._before is not None:
                    self.partner, self.prepared = self._before
                return True
            elif group.action is XaAction.PREPARE:
                data = memoryview(part.piece.data[group.start : group.end])
                self._before = _partner(part, group), CarriedGroup(data, part.piece.checksum)
            else:
                self._before = None
        return False


def find_partner(parts: Iterable[Part], gtid: Gtid, xid: XaId) -> XaSearch:
    """Search until the other half is found or the parts end."""
    search = XaSearch(gtid, xid)
    any(search.feed(part) for part in parts)
    return search


def _partner(part: Part, group: XaGroup) -> Partner:
    return Partner(group.action, group.gtid, part.name, part.piece.offset + group.start)
