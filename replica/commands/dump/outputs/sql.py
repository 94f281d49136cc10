"""Output of `dump --sql`: row changes as INSERT, UPDATE and DELETE, with the statements between them.

The output is for the mariadb client. Each statement finds one row: by the primary key if it is known, else by all
columns of the before image, compared exactly. Literals are exact: FLOAT with the digits of the equal double, bytes in
hex, times in UTC, with session settings in the output. Statements run with the settings of their original session.

Content that cannot be reproduced is reported in the output as a comment, on standard error, and in the exit code. Such
content is LOAD DATA that was logged as a statement, tables whose column names are unknown, and text that is invalid in
its character set. Old row versions of system-versioned tables are left out, because the server writes them itself.
"""

# ruff: noqa: S608  (SQL is what this makes)

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, Final

from replica.commands.dump.rows.kernel_text import SQL
from replica.commands.dump.rows.listing import Item, ItemKind, listing
from replica.commands.dump.rows.rows_text import (
    AFTER,
    BEFORE,
    ColumnText,
    Program,
    RowTexts,
    Shown,
    Side,
    shown_columns,
)
from replica.commands.dump.text import INSERT_ID, group_words, user_variable
from replica.errors import UnsupportedEventError
from replica.protocol.charset import BINARY, charset_of
from replica.protocol.constants import GtidExtraFlag, GtidFlag, HeaderFlag, RowsFlag, TableMapFlag
from replica.protocol.events.decode import (
    AnnotateRowsEvent,
    ExecuteLoadQueryEvent,
    GtidEvent,
    IntvarEvent,
    RandEvent,
    RowsEvent,
    RowsQueryEvent,
    TableMapEvent,
    UserVarEvent,
    XaPrepareEvent,
)
from replica.protocol.events.statement_events import QueryEvent
from replica.protocol.plain_text import one_line, printable
from replica.readers.rows.reading import statement_text
from replica.readers.rows.without_rows import parts_with_notice
from replica.rows.types.entry import Sql
from replica.rows.types.kinds import Kind
from replica.rows.types.types import KINDS
from replica.schema.text.naming import quoted, quoted_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replica.protocol.header import Event
    from replica.readers.log.reader import Part
    from replica.readers.rows.reading import Reading
    from replica.rows.decode.slots import CompiledTable

ROWS_MODE: Final = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION"
"""sql_mode that stores values unchanged, even zeros and dates that no calendar has.

The mode is not strict, because generated columns are recomputed.
"""

# Bits of the status variable flags2 (the server's OPTION_* flags).
_AUTO_IS_NULL: Final = 1 << 14
_NO_FOREIGN_KEY_CHECKS: Final = 1 << 26
_RELAXED_UNIQUE_CHECKS: Final = 1 << 27


@dataclass(slots=True)
class SessionSettings:
    """The current session settings."""

    _now: dict[str, str] = field(
        default_factory=lambda: {"time_zone": "'+00:00'", "sql_mode": f"'{ROWS_MODE}'", "foreign_key_checks": "1"}
    )
    _database: str = ""

    def change(self, wanted: Mapping[str, str]) -> str:
        """Return a SET statement for the settings that differ, '' if none does."""
        changed = {name: value for name, value in wanted.items() if self._now.get(name) != value}
        self._now.update(changed)
        if not changed:
            return ""
        return f"SET {', '.join(f'{name} = {value}' for name, value in changed.items())};\n"

    def use(self, database: str) -> str:
        if database == self._database:
            return ""
        self._database = database
        return f"USE {quoted(database)};\n"

    def leave(self) -> None:
        """Forget the database in use, because it may have been dropped."""
        self._database = ""


def settings_of_rows(flags: int, timestamp: int) -> dict[str, str]:
    """Return the settings that the `flags` of a rows event require."""
    return {
        "timestamp": str(timestamp),
        "time_zone": "'+00:00'",
        "sql_mode": f"'{ROWS_MODE}'",
        "foreign_key_checks": str(int(not flags & RowsFlag.NO_FOREIGN_KEY_CHECKS)),
        "unique_checks": str(int(not flags & RowsFlag.RELAXED_UNIQUE_CHECKS)),
        "check_constraint_checks": str(int(not flags & RowsFlag.NO_CHECK_CONSTRAINT_CHECKS)),
    }


def settings_of(event: QueryEvent) -> dict[str, str]:
    """Return the settings with which the statement ran, as far as they were logged."""
    status = event.status
    fraction = f".{status.microseconds:06}" if status.microseconds else ""
    found = {"timestamp": f"{event.header.timestamp}{fraction}"}
    if status.sql_mode is not None:
        found["sql_mode"] = str(status.sql_mode)
    if status.time_zone is not None:
        found["time_zone"] = "'" + status.time_zone.replace("'", "''") + "'"
    if status.flags2 is not None:
        found["foreign_key_checks"] = str(int(not status.flags2 & _NO_FOREIGN_KEY_CHECKS))
        found["unique_checks"] = str(int(not status.flags2 & _RELAXED_UNIQUE_CHECKS))
        found["sql_auto_is_null"] = str(int(bool(status.flags2 & _AUTO_IS_NULL)))
    if status.auto_increment is not None:
        found["auto_increment_increment"], found["auto_increment_offset"] = map(str, status.auto_increment)
    if status.charset is not None:
        _, found["collation_connection"], found["collation_server"] = map(str, status.charset)
    return found


HEAD: Final = f"""\
-- Row changes and statements of MariaDB binlogs, by mariadb-replica dump --sql. For the mariadb client; all times UTC.
SET NAMES utf8mb4;
SET time_zone = '+00:00', sql_mode = '{ROWS_MODE}';
"""
_EXACT: Final = " COLLATE utf8mb4_nopad_bin"
"""Collation for exact comparison, because texts that are equal in the table's collation may still differ."""
_UNDONE: Final = GtidExtraFlag.START_ALTER | GtidExtraFlag.ROLLBACK_ALTER
_DELIMITERS: Final = (";", "//", "$$", "||", "mariadb-replica-end")


def program(table: CompiledTable) -> Program:
    """Return the templates: INSERT … SET, UPDATE … SET … WHERE … LIMIT 1, DELETE … WHERE … LIMIT 1."""
    shown = shown_columns(table)
    written = [one for one in shown if not _is_period(one, shown)]
    where = quoted_table(table.name)
    settings = [ColumnText(one, f"{quoted(one.plan.name)} = ") for one in written]
    key = [one for one in written if one.plan.key]
    conditions = [
        ColumnText(one, f"{quoted(one.plan.name)} <=> ", "" if key else _exact(one)) for one in key or written
    ]
    delete = [Side(BEFORE, f"DELETE FROM {where} WHERE ", " AND ", " LIMIT 1;\n", conditions)]
    made = Program()
    made.add(len(shown), [Side(AFTER, f"INSERT INTO {where} SET ", ", ", ";\n", settings)])
    made.add(
        len(shown),
        [
            Side(AFTER, f"UPDATE {where} SET ", ", ", "", settings),
            Side(BEFORE, " WHERE ", " AND ", " LIMIT 1;\n", conditions),
        ],
    )
    made.add(len(shown), delete)
    # Old versions: the server writes its own when the current row changes. A row whose period ends was deleted.
    note = f"-- an old version of a row of {one_line(where)}\n"
    made.add(len(shown), [Side(AFTER, note, "", "", [])])
    made.add(len(shown), delete)
    made.add(len(shown), [Side(BEFORE, note, "", "", [])])
    return made


def _is_period(one: Shown, shown: list[Shown]) -> bool:
    """Return True if the server fills the column: start or end of the row's period in a system-versioned table."""
    end = next((index for index, other in enumerate(shown) if other.plan.row_end), None)
    if end is None:
        return False
    return one is shown[end] or (end > 0 and one is shown[end - 1] and one.plan.kind == Kind.TIMESTAMP_TEXT)


def _exact(one: Shown) -> str:
    return _EXACT if KINDS[one.plan.kind].sql is Sql.CHARACTERS else ""


class SqlDump:
    """One dump. `write` processes all files."""

    def __init__(self, reading: Reading, out: BinaryIO, *, only_rows: bool) -> None:
        self._reading = reading
        self._out = out
        self._only_rows = only_rows  # with patterns of tables, because the tables of a statement are unknown
        self._texts = RowTexts(SQL, program)
        self._session = SessionSettings()
        self._waiting: list[str] = []
        self._begun = False
        self._flags = 0  # of the last rows event
        self._gtid: GtidEvent | None = None

    def write(self) -> None:
        self._write(HEAD)
        for part in parts_with_notice(self._reading) if self._only_rows else self._reading.parts():
            for item in listing(self._reading, part, self._texts):
                self._write_item(part, item)

    def _write_item(self, part: Part, item: Item) -> None:
        if item.kind is ItemKind.ROWS and item.chunk is not None:
            for text in self._waiting:
                self._write(text)
            self._waiting.clear()
            self._write(self._session.change(settings_of_rows(self._flags, item.found.header.timestamp)))
            self._begin()
            self._out.write(item.chunk.text)
        elif item.kind is ItemKind.CUT:
            self._write("-- the file ends inside this transaction; nothing says that it was committed\n")
        elif item.event is not None:
            self._write_event(part, item, item.event)

    def _write_event(self, part: Part, item: Item, event: Event) -> None:
        if item.kind is ItemKind.BEGIN:
            self._waiting = [f"-- {one_line(group_words(event))}\n"]
            self._begun, self._flags = False, 0
            self._gtid = event if isinstance(event, GtidEvent) else None
            return
        match event:
            case AnnotateRowsEvent() | RowsQueryEvent():
                lines = printable(statement_text(event.query)).splitlines()
                self._waiting += [f"-- {line}\n" for line in lines]
            case TableMapEvent() if event.flags & TableMapFlag.HAS_TRIGGERS and self._wants(event):
                self._reading.notices.say(
                    f"{event.database}.{event.table} has triggers, whose changes are among the rows: drop them before "
                    "the SQL runs, or they run again."
                )
            case RowsEvent():
                self._flags = event.flags
            case QueryEvent():
                self._statement(event)
            case ExecuteLoadQueryEvent():
                self._left_out(part, item, "LOAD DATA that was logged as a statement")
            case _:
                self._context(event)
        if item.kind is ItemKind.END:
            self._end(event)

    def _wants(self, event: TableMapEvent) -> bool:
        return self._reading.names.wants(event.database, event.table)

    def _statement(self, event: QueryEvent) -> None:
        text = statement_text(event.query, event.status).strip()
        if self._only_rows or text in ("BEGIN", "COMMIT", "ROLLBACK"):
            return
        if text.startswith("XA ") or (event.status.gtid_flags_extra or 0) & _UNDONE:
            self._note(one_line(text))
            return
        if event.error:
            self._note(f"ended with error {event.error}: {one_line(text)}")
            return
        self._release()
        if not (self._gtid and self._gtid.flags2 & (GtidFlag.STANDALONE | GtidFlag.DDL)):
            self._begin()
        self._write(self._session.change(settings_of(event)))
        if event.header.flags & HeaderFlag.SUPPRESS_USE:
            self._session.leave()  # CREATE DATABASE and DROP DATABASE: the database may not exist
        elif event.database:
            self._write(self._session.use(event.database))
        delimiter = next((mark for mark in _DELIMITERS if mark not in text), _DELIMITERS[-1])
        if delimiter == ";":
            self._write(f"{text};\n")
        else:
            self._write(f"DELIMITER {delimiter}\n{text}{delimiter}\nDELIMITER ;\n")

    def _context(self, event: Event) -> None:
        """Apply the context of a statement that its QUERY event does not contain."""
        if self._only_rows:
            return
        match event:
            case IntvarEvent():
                name = "insert_id" if event.kind == INSERT_ID else "last_insert_id"
                self._waiting.append(f"SET {name} = {event.value};\n")
            case RandEvent():
                self._waiting.append(f"SET rand_seed1 = {event.seed1}, rand_seed2 = {event.seed2};\n")
            case UserVarEvent():
                value = user_variable(event)
                if value.startswith("X'"):
                    name = "binary" if event.collation == BINARY else charset_of(event.collation).name
                    value = f"_{name} {value}"
                self._waiting.append(f"SET @{quoted(event.name.decode('utf-8', 'replace'))} := {value};\n")

    def _end(self, event: Event) -> None:
        if self._begun:
            undone = isinstance(event, QueryEvent) and event.query == b"ROLLBACK"
            self._write("ROLLBACK;\n" if undone else "COMMIT;\n")
        elif isinstance(event, XaPrepareEvent) and not event.one_phase:
            self._waiting.clear()
        self._begun = False

    def _begin(self) -> None:
        if not self._begun:
            self._write("START TRANSACTION;\n")
            self._begun = True

    def _left_out(self, part: Part, item: Item, what: str) -> None:
        error = UnsupportedEventError(
            f"{part.name}: {what} cannot be reproduced",
            offset=item.found.offset,
            hint="Fetch its rows from another source.",
        )
        self._reading.notices.left_out(error)
        self._note(error.message)

    def _note(self, text: str) -> None:
        if not self._only_rows:
            self._release()
            self._write(f"-- {text}\n")

    def _release(self) -> None:
        for text in self._waiting:
            self._write(text)
        self._waiting.clear()

    def _write(self, text: str) -> None:
        self._out.write(text.encode("utf-8", "backslashreplace"))
