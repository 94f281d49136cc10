r"""Format rows for people: the operation, the table, the key, and columns with their values or `old → new`.

`program` makes templates that write a row with control characters between sides, columns and values. Values never
contain these characters, because the kernel writes them as \x1b escapes. `values` splits such a text, and
`RowLines.line` formats it. Values are cut at SHOWN_CHARACTERS unless `full` is set. Characters that control a terminal
or reverse its text are shown as numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from replica.dump.rows.templates import AFTER, BEFORE, ColumnText, Program, Side, shown_columns
from replica.dump.unseen import visible
from replica.plain_text import one_line
from replica.rows.scan import records as r
from replica.schema.patterns import table_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from replica.rows.decode.slots import CompiledTable
    from replica.tail.colours import Colours

SHOWN_CHARACTERS: Final = 60
WORDS: Final = {r.OP_INSERT: "insert", r.OP_UPDATE: "update", r.OP_DELETE: "delete"}
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
    for op in WORDS:
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
        """Format one row; the table's name is padded to `width`."""
        before, after = sides[0], sides[-1]
        paint = self.colours
        key = [self._pair(lines, place, before.get(place, after.get(place, "?")), paint.key) for place in lines.key]
        if op == r.OP_UPDATE:
            rest = self._changes(lines, before, after)
        else:
            rest = [self._pair(lines, p, v, paint.plain) for p, v in before.items() if p not in lines.key]
        head = f"  {paint.operation(WORDS[op])}  {paint.table(lines.table.ljust(width))}"
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
