"""Answer of `explain` for people: a page that describes the transaction in words. All times are UTC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from replica.dump.event_words import utc, xa_words
from replica.dump.unseen import visible
from replica.plain_text import one_line
from replica.rows.scan.xa import XaAction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.explain.found import Answer
    from replica.explain.transaction import Transaction
    from replica.tail.colours import Colours

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
            yield from self._row("because", answer.words)
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
            end_word = "" if start else " ends at"
            yield from self._row("on the primary", f"{answer.primary_file},{start}{end_word} {answer.primary_end}")
        if answer.file and answer.primary_file:
            yield from self._row("safe", ", ".join(self._safety(answer)))

    def _safety(self, answer: Answer) -> Iterator[str]:
        yield "on disk" if answer.on_disk else "received; its file is still open, so it may not be on disk yet"
        if answer.acknowledged is not None:
            yield "acknowledged to the primary" if answer.acknowledged else self.colours.bad("not acknowledged yet")

    def _writer(self, made: Transaction) -> str:
        words = [f"server {made.server_id}"]
        words.append(f"thread {made.thread_id}" if made.thread_id is not None else "thread not logged (before 11.5)")
        if made.commit_id is not None:
            words.append(f"commit group {made.commit_id}")
        if made.xid is not None:
            words.append(f"xid {made.xid}")
        return ", ".join(words)

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
