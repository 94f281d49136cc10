"""Format transactions for people: a line with GTID and time, the statements, and a line per row.

`Transactions` takes a part of the log and its selected rows, and yields lines of text. Transactions without rows are
shown by their content. That is DDL, other statements logged as text, or an XA transaction that is prepared or rolled
back. The rows of a prepared transaction appear at its commit. All times are UTC.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.dump.event_words import utc, xa_words
from replica.dump.unseen import visible
from replica.plain_text import one_line
from replica.protocol.constants import EventType, GtidFlag
from replica.protocol.events.decode import AnnotateRowsEvent, ExecuteLoadQueryEvent, GtidEvent, QueryEvent
from replica.row_reader.statement_text import statement_text
from replica.tail.row_lines import RowLines, TableLines, table_lines, values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from replica.log_reader.part import Part
    from replica.protocol.header import Event
    from replica.row_reader.live_names import LiveNames
    from replica.row_reader.without_rows import WithoutRows
    from replica.rows.decode.batch import Groups
    from replica.rows.decode.slots import CompiledTable
    from replica.tail.changes import TransactionRows
    from replica.tail.colours import Colours

SHOWN_STATEMENTS: Final = 8
"""Maximum statements of a transaction to show; a million of them would hide the rows."""
WALKED_EVENTS: Final = 2000
"""Maximum events of a transaction to search for statements."""
STATEMENT_CHARACTERS: Final = 200
WIDEST_TABLE: Final = 40
REMEMBERED_TABLES: Final = 4096
_ENDS: Final = frozenset({"BEGIN", "COMMIT", "ROLLBACK"})
_XA: Final = GtidFlag.PREPARED_XA | GtidFlag.COMPLETED_XA
_TOLD: Final = frozenset(
    {
        *(EventType.GTID, EventType.ANNOTATE_ROWS),
        *(EventType.QUERY, EventType.QUERY_COMPRESSED, EventType.EXECUTE_LOAD_QUERY),
    }
)


class ShownStatement(NamedTuple):
    """Statement to show. `annotation`: whether rows follow the statement; otherwise it is logged as text only."""

    text: str
    annotation: bool


@dataclass(slots=True)
class Transactions:
    """Formatter of transactions.

    `silent`: also show transactions and statements without rows. `sql`: also show the logged text of row changes.
    `full`: never cut texts.
    """

    names: LiveNames
    colours: Colours
    silent: bool = True
    sql: bool = True
    full: bool = False
    changed: Mapping[int, list[WithoutRows]] = field(default_factory=dict)
    """Changes of selected tables that the current part logs as statements, by the start of their group."""
    _lines: dict[CompiledTable, TableLines] = field(default_factory=dict)
    _width: int = 12

    def compiled(self, table: CompiledTable) -> TableLines:
        """Return the cached format of a table."""
        known = self._lines.get(table)
        if known is None:
            if len(self._lines) >= REMEMBERED_TABLES:
                self._lines.clear()
            unnamed = self.names.is_unnamed(table.table_map)
            known = table_lines(table, self.names.primary_key(table.table_map), unnamed=unnamed)
            self._lines[table] = known
            self._width = max(self._width, min(len(known.table), WIDEST_TABLE))
        return known

    def rows(self, part: Part, rows: TransactionRows) -> Iterator[str]:
        """Yield the lines of some rows, after the heading of their transaction before its first row."""
        if rows.first:
            yield from self.heading(part, rows.batch.groups, rows.group)
        batch = rows.batch
        assert batch.events is not None  # noqa: S101  (decoders of VARIANT set them)
        assert batch.event is not None  # noqa: S101
        assert batch.slots is not None  # noqa: S101
        slots = batch.events["slot"]
        writer = RowLines(self.colours, full=self.full)
        for number in rows.numbers:
            table = self.compiled(batch.slots.table(int(slots[batch.event[number]])))
            sides = values(rows.text(number))
            yield writer.line(table, int(batch.op[number]), sides, width=self._width)

    def heading(self, part: Part, groups: Groups, number: int) -> Iterator[str]:
        """Yield the line of a transaction and its statements."""
        paint = self.colours
        gtid = f"{groups.domain[number]}-{groups.server_id[number]}-{int(groups.seq_no[number]) % (1 << 64)}"
        words = [paint.faint(utc(int(groups.commit_ts[number]))), paint.gtid(gtid)]
        if groups.thread_id[number]:
            words.append(paint.faint(f"thread {groups.thread_id[number]}"))
        found = statements(part, groups, number)
        xa = "" if int(groups.flags[number]) & _XA == 0 else _xa(part, groups, number, found)
        if xa:
            words.append(paint.statement(visible(one_line(xa))))
        yield "  ".join(words)
        for statement in found:
            if statement.annotation and self.sql:
                yield f"  {paint.faint(f'# {self._cut(statement.text)}')}"
            elif not statement.annotation and not xa and self.silent:
                yield self._sql(statement.text)
        changed = self.changed.get(int(groups.start[number]), [])
        if changed:
            if not self.silent:
                yield from (self._sql(statement.text) for statement in changed[:SHOWN_STATEMENTS])
            names = ", ".join(dict.fromkeys(name for statement in changed for name in statement.names))
            word = "statement" if len(changed) == 1 else "statements"
            yield f"  {paint.bad(f'{len(changed):,} {word} without rows: changes of {visible(one_line(names))}')}"

    def _sql(self, text: str) -> str:
        return f"  {self.colours.operation('sql   ')}  {self.colours.statement(self._cut(text))}"

    def without_rows(self, part: Part, groups: Groups, number: int) -> Iterator[str]:
        """Yield the lines of a transaction without selected rows, if it has anything to show."""
        told = self.silent and (int(groups.flags[number]) & _XA or statements(part, groups, number))
        if told or int(groups.start[number]) in self.changed:
            yield from self.heading(part, groups, number)

    def _cut(self, text: str) -> str:
        line = visible(one_line(" ".join(text.split())))
        if self.full or len(line) <= STATEMENT_CHARACTERS:
            return line
        return f"{line[: STATEMENT_CHARACTERS - 1]}…"


def _xa(part: Part, groups: Groups, number: int, found: list[ShownStatement]) -> str:
    """Return a description of the group's XA action."""
    if int(groups.flags[number]) & GtidFlag.PREPARED_XA:
        name = next((xa_words(e.xa) for e in _events(part, groups, number) if isinstance(e, GtidEvent) and e.xa), "")
        return f"XA PREPARE {name}: its rows are shown when it is committed"
    text = next((statement.text for statement in found if not statement.annotation), "XA COMMIT")
    return f"{text}: its rows were never committed" if text.upper().startswith("XA ROLLBACK") else text


def statements(part: Part, groups: Groups, number: int) -> list[ShownStatement]:
    """Return the first SHOWN_STATEMENTS statements of a transaction that are logged as text."""
    found: list[ShownStatement] = []
    for event in _events(part, groups, number):
        if isinstance(event, AnnotateRowsEvent):
            found.append(ShownStatement(statement_text(event.query), annotation=True))
        elif isinstance(event, QueryEvent | ExecuteLoadQueryEvent):
            text = statement_text(event.query, event.status)
            if text.upper() not in _ENDS and not text.upper().startswith("SAVEPOINT "):
                found.append(ShownStatement(text, annotation=False))
        if len(found) == SHOWN_STATEMENTS:
            break
    return found


def _events(part: Part, groups: Groups, number: int) -> Iterator[Event]:
    """Yield the decoded events of a group that contain text or its GTID."""
    start, end = int(groups.start[number]), int(groups.end[number])
    piece = part.piece._replace(data=part.piece.data[start:end], offset=part.piece.offset + start)
    inside = part._replace(piece=piece)
    for found in islice(inside.walk(), WALKED_EVENTS):
        if found.header.event_type in _TOLD:
            yield inside.read(found)
