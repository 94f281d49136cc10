"""Transactions and row changes as coloured lines for people.

`program` makes templates that write a row with control characters between sides, columns and values. Values never
contain these control characters, because the kernel escapes them. `values` splits such a text, and `RowLines.line`
formats it. Values are cut at SHOWN_CHARACTERS unless `full` is set. Characters that control a terminal or reverse its
text are shown as numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import click

from replica.commands.dump.rows.rows_text import AFTER, BEFORE, ColumnText, Program, Side, shown_columns
from replica.commands.dump.text import utc, visible, xa_words
from replica.protocol.constants import EventType, GtidFlag
from replica.protocol.events.decode import AnnotateRowsEvent, ExecuteLoadQueryEvent, GtidEvent, QueryEvent
from replica.protocol.plain_text import one_line
from replica.readers.rows.reading import statement_text
from replica.rows.scan import records as r
from replica.schema.patterns import table_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from replica.commands.tail.source import TransactionRows
    from replica.protocol.header import Event
    from replica.readers.log.reader import Part
    from replica.readers.rows.names import LiveNames
    from replica.readers.rows.without_rows import WithoutRows
    from replica.rows.decode.batch import Groups
    from replica.rows.decode.slots import CompiledTable

SHOWN_CHARACTERS: Final = 60

OPERATION_NAMES: Final = {r.OP_INSERT: "insert", r.OP_UPDATE: "update", r.OP_DELETE: "delete"}

NULL: Final = "NULL"
_SIDE, _COLUMN, _VALUE = "\x1d", "\x1f", "\x1e"
_SIDES: Final = {r.OP_INSERT: (AFTER,), r.OP_UPDATE: (BEFORE, AFTER), r.OP_DELETE: (BEFORE,)}


@dataclass(frozen=True, slots=True)
class TableLines:
    """Format of a table's rows: its name, its column names, and which of them are the key."""

    table: str
    columns: tuple[str, ...]
    key: tuple[int, ...]


def table_lines(table: CompiledTable, key: tuple[int, ...], *, unnamed: bool) -> TableLines:
    """Return the format of one table; `key` holds indexes of the table's columns."""
    shown = shown_columns(table, unnamed=unnamed)
    number = {one.plan.name: place for place, one in enumerate(shown)}
    names = [table.layout.columns[index].name for index in key]
    name = visible(one_line(table_text(table.name)))
    columns = tuple(visible(one_line(one.plan.name)) for one in shown)
    return TableLines(name, columns, tuple(number[name] for name in names if name in number))


def program(table: CompiledTable, *, unnamed: bool) -> Program:
    """Return the templates that write a row of the table in the format that `values` splits."""
    made = Program()
    shown = shown_columns(table, unnamed=unnamed)
    columns = [ColumnText(one, f"{place}{_VALUE}") for place, one in enumerate(shown)]
    for op in OPERATION_NAMES:
        made.add(len(shown), [Side(side, _SIDE, _COLUMN, "", columns) for side in _SIDES[op]])
    return made


def values(text: memoryview) -> list[dict[int, str]]:
    """Split a row into its sides: the text of each value, by column number."""
    sides = []
    for side in str(text, "utf-8", "backslashreplace").split(_SIDE)[1:]:
        found = {}
        for column in side.split(_COLUMN) if side else ():
            place, _, value = column.partition(_VALUE)
            found[int(place)] = value
        sides.append(found)
    return sides


@dataclass(frozen=True, slots=True)
class RowLines:
    """Formatter of rows; with `full`, values are never cut."""

    colours: Colours
    full: bool = False

    def line(self, lines: TableLines, op: int, sides: list[dict[int, str]], *, width: int) -> str:
        """Return one row as a line.

        Args:
            lines: format of the table.
            op: number of the operation.
            sides: text of each value by column number, for each image of the row in order.
            width: number of characters to which the table's name is padded.
        """
        before, after = sides[0], sides[-1]
        paint = self.colours
        key = [self._pair(lines, place, before.get(place, after.get(place, "?")), paint.key) for place in lines.key]
        if op == r.OP_UPDATE:
            rest = self._changes(lines, before, after)
        else:
            rest = [self._pair(lines, p, v, paint.plain) for p, v in before.items() if p not in lines.key]
        head = f"  {paint.operation(OPERATION_NAMES[op])}  {paint.table(lines.table.ljust(width))}"
        return "  ".join([head, *key, *rest])

    def _changes(self, lines: TableLines, before: Mapping[int, str], after: Mapping[int, str]) -> list[str]:
        paint = self.colours
        changed = [(p, before.get(p), new) for p, new in after.items() if before.get(p) != new]
        found = []
        if not lines.key:  # without a key, only the unchanged values identify the row
            same = {p: old for p, old in before.items() if after.get(p, old) == old}
            found += [self._pair(lines, p, old, paint.faint) for p, old in same.items()]
        for place, old, new in changed:
            name = paint.column(lines.columns[place])
            was = "" if old is None else f" {self._value(old, paint.old)}"
            found.append(f"{name}{was} {paint.faint('→')} {self._value(new, paint.new)}")
        return found if changed else [*found, paint.faint("(no shown column was changed)")]

    def _pair(self, lines: TableLines, place: int, value: str, style: Callable[[str], str]) -> str:
        return f"{self.colours.column(lines.columns[place])}={self._value(value, style)}"

    def _value(self, value: str, style: Callable[[str], str]) -> str:
        if value == NULL:
            return self.colours.faint(value)
        if self.full or len(value) <= SHOWN_CHARACTERS + 10:  # the note about omitted characters is as long
            return style(visible(value))
        return style(visible(value[:SHOWN_CHARACTERS])) + self.colours.faint(
            f"… {len(value) - SHOWN_CHARACTERS:,} more"
        )


# Without colours, every function returns its text unchanged. No information depends on colour alone.


When = Literal["auto", "always", "never"]

_OPERATIONS = {"insert": "green", "update": "yellow", "delete": "red"}


def wanted(when: When, environment: Mapping[str, str], *, terminal: bool) -> bool:
    """Return True if the output is coloured; `auto` requires a terminal, no NO_COLOR, and a TERM other than dumb."""
    if when != "auto":
        return when == "always"
    return terminal and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


@dataclass(frozen=True, slots=True)
class Colours:
    """Styles of the parts of a line. If `on` is False, every method returns its text unchanged."""

    on: bool

    def operation(self, word: str) -> str:
        return self._style(word, fg=_OPERATIONS.get(word, "magenta"), bold=True)

    def gtid(self, text: str) -> str:
        return self._style(text, fg="cyan", bold=True)

    def table(self, text: str) -> str:
        return self._style(text, bold=True)

    def column(self, text: str) -> str:
        return self._style(text, dim=True)

    def key(self, text: str) -> str:
        return self._style(text, bold=True)

    def old(self, text: str) -> str:
        return self._style(text, fg="red")

    def new(self, text: str) -> str:
        return self._style(text, fg="green")

    def good(self, text: str) -> str:
        return self._style(text, fg="green", bold=True)

    def bad(self, text: str) -> str:
        return self._style(text, fg="red", bold=True)

    def statement(self, text: str) -> str:
        return self._style(text, fg="magenta")

    def faint(self, text: str) -> str:
        return self._style(text, dim=True)

    def plain(self, text: str) -> str:
        return text

    def _style(self, text: str, *, fg: str | None = None, bold: bool | None = None, dim: bool | None = None) -> str:
        return click.style(text, fg=fg, bold=bold, dim=dim) if self.on else text


# A transaction without selected rows is shown by its content: DDL, other statements logged as text, or an XA
# transaction that is prepared or rolled back. The rows of a prepared transaction appear at its commit. All times are
# UTC.


SHOWN_STATEMENTS: Final = 8
"""Maximum statements of a transaction to show; a million of them would hide the rows."""
WALKED_EVENTS: Final = 2000
"""Maximum events of a transaction to search for statements."""
STATEMENT_CHARACTERS: Final = 200
WIDEST_TABLE: Final = 40
REMEMBERED_TABLES: Final = 4096
_ENDS: Final = frozenset({"BEGIN", "COMMIT", "ROLLBACK"})
_XA: Final = GtidFlag.PREPARED_XA | GtidFlag.COMPLETED_XA

_TEXT_EVENTS: Final = frozenset(
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
        has_text = self.silent and (int(groups.flags[number]) & _XA or statements(part, groups, number))
        if has_text or int(groups.start[number]) in self.changed:
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
        if found.header.event_type in _TEXT_EVENTS:
            yield inside.read(found)
