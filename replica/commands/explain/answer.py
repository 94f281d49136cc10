"""Answer of `explain`: the transaction, or why it is missing, as values and as a page.

In: a search through a relay log or through binlog files. Out: an `Answer`, plain values for people and for JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from replica.commands.dump.text import utc, visible, xa_words
from replica.protocol.plain_text import one_line
from replica.rows.scan.xa import CarriedGroup, XaAction, XaGroup, find_xa_groups

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from replica.commands.explain.transaction import Transaction
    from replica.commands.tail.lines import Colours
    from replica.protocol.events.transaction_events import XaId
    from replica.protocol.gtid import Gtid
    from replica.readers.log.reader import Part

Reason = Literal["empty", "domain", "purged", "not yet", "other server", "hole", "not here"]


class Partner(NamedTuple):
    """The other half of an XA transaction: its action, and its place."""

    action: XaAction
    gtid: Gtid
    file: str
    offset: int


@dataclass(slots=True)
class Answer:
    """Answer about one GTID. `reason` and `explanation` explain a missing `transaction`."""

    gtid: Gtid
    where: str
    """Name of the searched log, files or server."""
    transaction: Transaction | None = None
    file: str = ""
    offset: int = 0
    primary_file: str = ""
    primary_end: int | None = None
    on_disk: bool | None = None
    """True if the transaction is known to be on disk; None if unknown."""
    acknowledged: bool | None = None
    partner: Partner | None = None
    reason: Reason | None = None
    explanation: str = ""

    def as_dict(self) -> dict[str, object]:
        """Return the answer for JSON."""
        if self.transaction is None:
            return {
                "gtid": str(self.gtid),
                "found": False,
                "searched": self.where,
                "reason": self.reason,
                "message": self.explanation,
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
        """Start of the group in the primary's file in bytes. Event headers hold the lower 32 bits only."""
        begin = None if self.transaction is None else self.transaction.began_at
        if begin is None or self.primary_end is None:
            return begin
        start = (self.primary_end & ~_LOW) | begin
        return start if start < self.primary_end else start - _LOW - 1


_LOW: Final = (1 << 32) - 1


class XaSearch:
    """Search for the other half of one XA transaction in the parts of a log, which are fed in order.

    The other half of a prepared transaction is its XA COMMIT or XA ROLLBACK. The other half of an XA COMMIT or XA
    ROLLBACK is the XA PREPARE, which has the rows.
    """

    def __init__(self, gtid: Gtid, xid: XaId) -> None:
        self.partner: Partner | None = None
        self.prepared: CarriedGroup | None = None
        self._gtid = gtid
        self._xid = xid
        self._gtid_found = False
        self._before: tuple[Partner, CarriedGroup] | None = None

    def feed(self, part: Part) -> bool:
        """Search a part; return True if the search is finished."""
        for group in find_xa_groups(part.piece.data, checksum=part.piece.checksum):
            if group.xid != self._xid:
                continue
            if self._gtid_found:
                self.partner = _partner(part, group)
                return True
            if group.gtid == self._gtid and group.action is XaAction.PREPARE:
                self._gtid_found = True
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
    """Search `parts` for the other half of the XA transaction `xid`, until it is found or the parts end.

    `gtid` is the GTID of the known half.
    """
    search = XaSearch(gtid, xid)
    any(search.feed(part) for part in parts)
    return search


def _partner(part: Part, group: XaGroup) -> Partner:
    return Partner(group.action, group.gtid, part.name, part.piece.offset + group.start)


SHOWN_STATEMENTS: Final = 10
SHOWN_EVENTS: Final = 20
STATEMENT_CHARACTERS: Final = 500
_LABEL: Final = 14


@dataclass(frozen=True, slots=True)
class Page:
    """Page for one answer. With `full`, nothing is cut."""

    colours: Colours
    now: float
    full: bool = False

    def lines(self, answer: Answer) -> Iterator[str]:
        made, paint = answer.transaction, self.colours
        if made is None:
            yield f"{paint.gtid(str(answer.gtid))}  {paint.bad('not there')}"
            yield from self._row("searched", answer.where)
            yield from self._row("because", answer.explanation)
            return
        yield f"{paint.gtid(made.gtid)}  {paint.table(made.kind)}"
        yield from self._row("committed", f"{utc(made.committed)} UTC, {self._ago(made.committed)}")
        if made.began != made.committed:
            yield from self._row("began", f"{utc(made.began)} UTC, with its last statement")
        yield from self._row("by", self._writer(made))
        yield from self._places(answer, made)
        yield from self._row("flags", ", ".join(made.flags))
        if made.xa is not None:
            yield from self._row("XA", self._xa(answer, xa_words(made.xa)))
        yield from self._content(made)

    def _places(self, answer: Answer, made: Transaction) -> Iterator[str]:
        if answer.file:
            end = answer.offset + made.bytes
            yield from self._row("in", f"{answer.file}, {answer.offset} to {end}: {made.bytes:,} bytes")
        else:
            yield from self._row("size", f"{made.bytes:,} bytes")
        if answer.primary_file:
            start = "" if answer.primary_start is None else f" {answer.primary_start} to"
            at_end = "" if start else " ends at"
            yield from self._row("on the primary", f"{answer.primary_file},{start}{at_end} {answer.primary_end}")
        if answer.file and answer.primary_file:
            yield from self._row("safe", ", ".join(self._safety(answer)))

    def _safety(self, answer: Answer) -> Iterator[str]:
        yield "on disk" if answer.on_disk else "received; its file is still open, so it may not be on disk yet"
        if answer.acknowledged is not None:
            yield "acknowledged to the primary" if answer.acknowledged else self.colours.bad("not acknowledged yet")

    def _writer(self, made: Transaction) -> str:
        parts = [f"server {made.server_id}"]
        parts.append(f"thread {made.thread_id}" if made.thread_id is not None else "thread not logged (before 11.5)")
        if made.commit_id is not None:
            parts.append(f"commit group {made.commit_id}")
        if made.xid is not None:
            parts.append(f"xid {made.xid}")
        return ", ".join(parts)

    def _xa(self, answer: Answer, name: str) -> str:
        partner, made = answer.partner, answer.transaction
        prepared = made is not None and made.kind == "XA PREPARE"
        if partner is None:
            rest = "not ended as far as this log goes" if prepared else "its XA PREPARE is not in this log"
        elif partner.action is XaAction.PREPARE:
            rest = f"prepared as {partner.gtid} at {partner.file}:{partner.offset}, where its rows are"
        else:
            word = "committed" if partner.action is XaAction.COMMIT else "rolled back"
            rest = f"{word} as {partner.gtid} at {partner.file}:{partner.offset}"
        return f"{name}: {rest}"

    def _content(self, made: Transaction) -> Iterator[str]:
        rows = [self._rows(table.table, table.inserted, table.updated, table.deleted) for table in made.tables]
        none = "reported at its XA COMMIT, which applies them" if made.kind == "XA PREPARE" else "none"
        yield from self._rows_of("rows", rows or [none])
        if made.without_rows:
            names = ", ".join(visible(one_line(name)) for name in made.changed_without_rows)
            word = "statement" if made.without_rows == 1 else "statements"
            yield from self._row("without rows", self.colours.bad(f"{made.without_rows:,} {word}: changes of {names}"))
        shown = made.statements if self.full else made.statements[:SHOWN_STATEMENTS]
        left = len(made.statements) - len(shown) + made.more_statements
        yield from self._rows_of("statements", [self._cut(text) for text in shown] + self._more(left))
        yield from self._rows_of(
            "events", [f"{one.events:>7,} {one.type:<20} {one.bytes:>13,} bytes" for one in made.types]
        )
        events = made.events if self.full else made.events[:SHOWN_EVENTS]
        left = len(made.events) - len(events) + made.more_events
        lines = [f"{one.offset:>10} {one.bytes:>10}  {visible(one.words)}" for one in events]
        head = [self.colours.faint(f"{'at':>10} {'bytes':>10}")]
        yield from self._rows_of("in order", head + lines + self._more(left))

    @staticmethod
    def _rows(table: str, inserted: int, updated: int, deleted: int) -> str:
        counts = ((inserted, "inserted"), (updated, "updated"), (deleted, "deleted"))
        return f"{visible(one_line(table))}: " + ", ".join(f"{count:,} {word}" for count, word in counts if count)

    def _more(self, count: int) -> list[str]:
        return [self.colours.faint(f"… and {count:,} more")] if count else []

    def _cut(self, text: str) -> str:
        line = visible(one_line(" ".join(text.split())))
        return line if self.full or len(line) <= STATEMENT_CHARACTERS else f"{line[: STATEMENT_CHARACTERS - 1]}…"

    def _rows_of(self, label: str, lines: list[str]) -> Iterator[str]:
        for number, line in enumerate(lines):
            yield from self._row("" if number else label, line)

    def _row(self, label: str, text: str) -> Iterator[str]:
        if text:
            yield f"  {self.colours.faint(label.ljust(_LABEL))}  {text}"

    def _ago(self, at: int) -> str:
        seconds = self.now - at
        if seconds < 0:
            return "in the future by this machine's clock"
        for size, word in ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
            if seconds >= size:
                count = int(seconds // size)
                return f"{count} {word}{'s' if count != 1 else ''} ago"
        return "now"
