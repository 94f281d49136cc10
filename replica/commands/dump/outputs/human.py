r"""Default output of the dump: events of each transaction under its GTID, rows as assignments, with names and types.

The format follows mariadb-binlog -vv: `# at OFFSET` before each event, `#Q>` before the text of a statement, `###`
before rows. All times are UTC. Text values keep their characters; control characters are shown as \x1b. With patterns
of tables, only transactions that change such tables are shown, and only with their rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Final

from replica.commands.dump.rows.kernel_text import PLAIN
from replica.commands.dump.rows.listing import Item, ItemKind, listing
from replica.commands.dump.rows.rows_text import AFTER, BEFORE, ColumnText, Program, RowTexts, Side, shown_columns
from replica.commands.dump.text import declaration, event_words, group_words, utc, visible, visible_bytes
from replica.protocol.events.decode import (
    AnnotateRowsEvent,
    ExecuteLoadQueryEvent,
    QueryEvent,
    RowsQueryEvent,
)
from replica.protocol.plain_text import one_line, printable
from replica.readers.rows.reading import statement_text
from replica.readers.rows.without_rows import parts_with_notice
from replica.rows.scan import records as r
from replica.schema.text.naming import quoted, quoted_table

if TYPE_CHECKING:
    from replica.protocol.header import Event
    from replica.readers.rows.reading import Reading
    from replica.rows.decode.slots import CompiledTable

VERBS: Final = {r.OP_INSERT: "INSERT INTO", r.OP_UPDATE: "UPDATE", r.OP_DELETE: "DELETE FROM"}


def program(table: CompiledTable, *, unnamed: bool) -> Program:
    """Return the templates: `### UPDATE `d`.`t``, `### WHERE` and `### SET`, a line for each column with its type."""
    made = Program()
    shown = shown_columns(table, unnamed=unnamed)
    columns = []
    for one in shown:
        comment = f" /* {one_line(declaration(one.column, one.plan, unnamed=unnamed))} */\n"
        name = one.plan.name if unnamed else quoted(one.plan.name)
        columns.append(ColumnText(one, f"###   {one_line(name)}=", comment, comment))
    where = one_line(quoted_table(table.name))
    for op, verb in VERBS.items():
        start = f"### {verb} {where}\n"
        sides = [Side(BEFORE, f"{start}### WHERE\n", "", "", columns), Side(AFTER, "### SET\n", "", "", columns)]
        if op == r.OP_INSERT:
            sides = [Side(AFTER, f"{start}### SET\n", "", "", columns)]
        elif op == r.OP_DELETE:
            sides = sides[:1]
        made.add(len(shown), sides)
    return made


class HumanDump:
    """One dump. `write` processes all files."""

    def __init__(self, reading: Reading, out: BinaryIO, *, only_rows: bool) -> None:
        self._reading = reading
        self._out = out
        self._only_rows = only_rows
        names = reading.names
        self._texts = RowTexts(PLAIN, lambda table: program(table, unnamed=names.is_unnamed(table.table_map)))
        self._waiting: list[str] = []  # text to show before the next rows, and with `only_rows` never without rows
        self._time = 0
        self._file = ""

    def write(self) -> None:
        for part in parts_with_notice(self._reading) if self._only_rows else self._reading.parts():
            if part.name != self._file:
                self._file = part.name
                self._write_text(f"#\n# {one_line(part.name)}; all times are UTC\n")
            for item in listing(self._reading, part, self._texts):
                self._write_item(item)

    def _write_item(self, item: Item) -> None:
        if item.kind is ItemKind.ROWS and item.chunk is not None:
            self._release()
            self._out.write(visible_bytes(item.chunk.text))
        elif item.kind is ItemKind.CUT:
            self._write_text(
                "# the file ends inside this transaction: its rows are not shown, nothing says it was committed\n"
            )
        elif item.event is not None:
            self._write_event(item, item.event)

    def _write_event(self, item: Item, event: Event) -> None:
        offset, header = item.found.offset, item.found.header
        if item.kind is ItemKind.BEGIN:
            self._waiting.clear()
            self._time = header.timestamp
            self._write_text(f"#\n# at {offset}  {one_line(group_words(event))}\n")
            return
        clock = ""
        if header.timestamp != self._time:
            self._time = header.timestamp
            clock = f"  {utc(header.timestamp)}"
        lines = [f"# at {offset}{clock}  {event_words(event)}"]
        if isinstance(event, AnnotateRowsEvent | RowsQueryEvent):
            lines += [f"#Q> {line}" for line in printable(statement_text(event.query)).splitlines()]
        elif isinstance(event, QueryEvent | ExecuteLoadQueryEvent):
            lines += [f"{printable(statement_text(event.query, event.status))};"]
        self._write_text("\n".join(lines) + "\n", keep=isinstance(event, AnnotateRowsEvent | RowsQueryEvent))

    def _write_text(self, text: str, *, keep: bool = True) -> None:
        """Write text. With `only_rows`, keep it for the rows that may follow."""
        text = visible(text)
        if not self._only_rows:
            self._out.write(text.encode("utf-8", "backslashreplace"))
        elif keep:
            self._waiting.append(text)

    def _release(self) -> None:
        for text in self._waiting:
            self._out.write(text.encode("utf-8", "backslashreplace"))
        self._waiting.clear()
