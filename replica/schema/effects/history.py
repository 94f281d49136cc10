"""Table definitions as the DDL of a stream changes them, statement by statement.

`SchemaHistory` applies statements in binlog order, each with its session state. It returns the current definition of a
table, or the reason why the definition is unknown: its CREATE precedes the first statement, or a statement that changed
the table could not be parsed. Such a table stays unknown until it is created again. One fact is assumed, and recorded
in `assumptions`: without its CREATE, a database has the server's default character set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from replica.errors import SchemaError
from replica.protocol.constants import GtidExtraFlag
from replica.schema.definition.alter import altered, read_alteration
from replica.schema.definition.columns import SEQUENCE, Like, Options, read_create_table, read_option, read_sequence
from replica.schema.definition.definition import UNKNOWN, Encoding
from replica.schema.definition.session import ANY_SERVER, ServerRules, StatementContext, session_of, text_of
from replica.schema.known_tables import KnownTables, TableName
from replica.schema.statements.statements import Statement, Verb, may_define, pairs, read_statement, statements_of
from replica.schema.text.naming import table_key

if TYPE_CHECKING:
    from pathlib import Path

    from replica.protocol.events.statement_events import QueryEvent
    from replica.schema.definition.alter import Alteration
    from replica.schema.definition.definition import Table
    from replica.schema.table import TableSchema

# Limit of open temporary tables. The server logs the DROP of a session's remaining temporary tables when it ends.
_MAX_TEMPORARY: Final = 1 << 16
_UNDONE: Final = GtidExtraFlag.START_ALTER | GtidExtraFlag.ROLLBACK_ALTER


@dataclass(frozen=True, slots=True)
class Applied:
    """Effect of one statement.

    Attributes:
        tables: Tables whose definition changed or became unknown.
        reason: The part that could not be parsed, '' if none.
    """

    tables: tuple[TableName, ...] = ()
    reason: str = ""

    def __bool__(self) -> bool:
        return bool(self.tables)


class SchemaHistory:
    """Table definitions of a stream so far.

    Args:
        base: Definitions of tables whose DDL is not in the stream (a schema file); it is not modified.
        lower_case_table_names: True to compare names without case, as a server that stores them in lower case.
    """

    def __init__(self, base: SchemaHistory | None = None, *, lower_case_table_names: bool = False) -> None:
        self.known: KnownTables = KnownTables(base.known if base else None)
        self._lower = lower_case_table_names
        self._temporary: dict[tuple[int, TableName], None] = {}

    @classmethod
    def from_file(cls, path: str | Path, *, database: str = "") -> SchemaHistory:
        """Read the tables of an SQL file (mariadb-dump's output, or CREATE TABLE statements).

        A statement that cannot be parsed leaves its table unknown, with the reason.

        Args:
            path: The file.
            database: Database of tables without a database name or USE; '' makes them valid for any database.

        Raises:
            SchemaError: A statement cannot be parsed far enough to know its table.
            OSError: The file cannot be read.
        """
        history = cls()
        for text in statements_of(path):
            session = StatementContext(database=database)
            statement = history._read(text, session)
            if isinstance(statement, SchemaError):
                raise SchemaError(f"{path}: {statement.message}", hint="Give a file of CREATE TABLE statements.")
            if statement is not None and statement.verb is Verb.USE:
                database = statement.database
            else:
                history._execute(statement, session)
        return history

    def apply(self, sql: str, session: StatementContext) -> Applied:
        """Apply one statement. Text that is not DDL changes nothing."""
        return self._execute(self._read(sql, session), session)

    def apply_event(self, event: QueryEvent, *, server: ServerRules = ANY_SERVER) -> Applied:
        """Apply a QUERY of a binlog. START ALTER and ROLLBACK ALTER change nothing; COMMIT ALTER applies the change."""
        if (event.status.gtid_flags_extra or 0) & _UNDONE or not may_define(event.query):
            return Applied()
        session = session_of(event, server)
        return self.apply(text_of(event), session)

    def table(self, database: str, table: str) -> TableSchema | None:
        """Return the current definition of the table; None if it is unknown, with the cause in `reason`."""
        found = self.known.get(self._name((database, table)))
        return None if found is None else found.schema(database, table)

    def reason(self, database: str, table: str) -> str:
        """Return the reason why a table is unknown; '' if it is known."""
        return self.known.reason(self._name((database, table)))

    def assumption(self, database: str, table: str) -> str:
        """Return the assumption about a table; '' if there is none."""
        return self.known.assumptions.get(self._name((database, table)), "")

    def tables(self) -> list[TableName]:
        """Return the names of all tables that statements defined."""
        return self.known.names()

    def _name(self, name: TableName) -> TableName:
        return table_key(name, lower_case_table_names=self._lower)

    def _read(self, text: str, session: StatementContext) -> Statement | SchemaError | None:
        try:
            return read_statement(text, session)
        except SchemaError as error:
            return error

    def _execute(self, statement: Statement | SchemaError | None, session: StatementContext) -> Applied:
        if isinstance(statement, SchemaError):
            reason = f"a statement that may have defined any table was not understood: {statement.message}"
            return Applied(self.known.distrust_all(reason), reason)
        if statement is None or statement.verb is Verb.USE:
            return Applied()
        names = tuple(map(self._name, statement.tables))
        match statement.verb:
            case Verb.CREATE_TABLE | Verb.CREATE_SEQUENCE:
                applied = self._create(statement, names[0], session)
            case Verb.DROP_TABLES:
                applied = self._drop(statement, names, session)
            case Verb.ALTER_TABLE:
                applied = self._alter(statement, names[0], session)
            case Verb.ALTER_SEQUENCE:
                applied = self._alter_sequence(statement, names[0])
            case Verb.RENAME_TABLES:
                applied = self._rename(names, session)
            case _:
                applied = self._define_database(statement, session)
        return applied

    # -- tables ------------------------------------------------------------------------------------------------------

    def _create(self, statement: Statement, name: TableName, session: StatementContext) -> Applied:
        if statement.temporary:
            if len(self._temporary) >= _MAX_TEMPORARY:
                del self._temporary[next(iter(self._temporary))]
            self._temporary[session.thread, name] = None
            return Applied()
        if statement.conditional and name in self.known:
            return Applied()
        self.known.forget(name)
        if session.failed:  # CREATE OR REPLACE that had dropped the old table
            return Applied((name,))
        default = self.known.databases.get(name[0], session.encoding)
        try:
            table = self._made(statement, default, session)
        except SchemaError as error:
            return self._not_understood(name, "CREATE", error)
        self.known.define(name, table)
        inherits = table.encoding is default and any(column.charset for column in table.columns)
        if inherits and name[0] not in self.known.databases:
            self.known.assumptions[name] = (
                f"its database is assumed to have the character set of the server, {default.charset}: "
                "no CREATE DATABASE is among the statements that were read"
            )
        return Applied((name,))

    def _made(self, statement: Statement, default: Encoding, session: StatementContext) -> Table:
        if statement.verb is Verb.CREATE_SEQUENCE:
            return read_sequence(statement.tokens, SEQUENCE) or SEQUENCE
        made = read_create_table(statement.tokens, default, session)
        if not isinstance(made, Like):
            return made
        source = self._name(made)
        found = self.known.get(source)
        if found is None or (session.thread, source) in self._temporary:
            raise SchemaError(f"It is created LIKE {'.'.join(source)}, which is unknown.")
        return found

    def _drop(self, statement: Statement, names: tuple[TableName, ...], session: StatementContext) -> Applied:
        dropped = []
        for name in names:
            if (session.thread, name) in self._temporary:
                del self._temporary[session.thread, name]
            elif not statement.temporary:
                self.known.forget(name)
                dropped.append(name)
        return Applied(tuple(dropped))

    def _alter(self, statement: Statement, name: TableName, session: StatementContext) -> Applied:
        if statement.temporary or (session.thread, name) in self._temporary:
            return Applied()
        table = self.known.get(name)
        try:
            change = read_alteration(statement.tokens, session)
            self._check(change, name, session)
            if table is not None:
                default = self.known.databases.get(name[0], session.encoding)
                self.known.define(name, altered(table, change, default))
        except SchemaError as error:
            if name in self.known or table is None:
                return self._not_understood(name, "ALTER", error)
            # The statement does not fit the base definition: the schema file is newer than the statement.
            return Applied((), f"{'.'.join(name)}: {error.message}")
        touched = [name]
        if change.to_table is not None:
            touched.append(self._name(change.to_table))
            self.known.copy(name, touched[-1])
        if change.from_table is not None:
            touched.append(self._name(change.from_table))
            self.known.forget(touched[-1])
        if change.rename is not None:
            touched.append(self._name(change.rename))
            self.known.move(name, touched[-1])
        return Applied(tuple(touched))

    def _rename(self, names: tuple[TableName, ...], session: StatementContext) -> Applied:
        touched: list[TableName] = []
        for old, new in pairs(names):
            if (session.thread, old) in self._temporary:  # the server logs such a RENAME without THREAD_SPECIFIC
                del self._temporary[session.thread, old]
                self._temporary[session.thread, new] = None
            else:
                self.known.move(old, new)
                touched += [old, new]
        return Applied(tuple(touched))

    def _check(self, change: Alteration, name: TableName, session: StatementContext) -> None:
        if session.failed:
            raise SchemaError("It failed on the primary after it had begun.")
        databases = self.known.databases
        to_default = change.convert is not None and change.convert[0] == "default"
        if to_default and databases.get(session.database) != databases.get(name[0]):
            # 10.5 takes the default of the session's database, 10.11 that of the table's.
            raise SchemaError("It converts to the DEFAULT character set from another database.")

    def _alter_sequence(self, statement: Statement, name: TableName) -> Applied:
        table = self.known.get(name)
        try:
            made = read_sequence(statement.tokens, table)
        except SchemaError as error:
            return self._not_understood(name, "ALTER", error)
        if made is None or made is table:
            return Applied()
        self.known.define(name, made)
        return Applied((name,))

    def _not_understood(self, name: TableName, what: str, error: SchemaError) -> Applied:
        reason = f"its {what} was not understood: {error.message}"
        self.known.distrust(name, reason)
        return Applied((name,), f"{'.'.join(name)}: {reason}")

    # -- databases ---------------------------------------------------------------------------------------------------

    def _define_database(self, statement: Statement, session: StatementContext) -> Applied:
        database = self._name((statement.database, ""))[0]
        inside = self.known.in_database(database)
        if statement.verb is Verb.DROP_DATABASE or statement.or_replace:
            for name in inside:
                self.known.forget(name)
        if statement.verb is Verb.DROP_DATABASE:
            self.known.databases.pop(database, None)
            return Applied(inside)
        before = self.known.databases.get(database)
        if statement.conditional and before is not None:
            return Applied()
        options = Options()
        try:
            while not statement.tokens.at_end:
                read_option(statement.tokens, options)
            altering = statement.verb is Verb.ALTER_DATABASE
            encoding = options.encoding(session.encoding, before if altering else None)
        except SchemaError as error:
            self.known.databases[database] = UNKNOWN
            return Applied((), f"the default character set of {database} was not understood: {error.message}")
        self.known.databases[database] = encoding
        return Applied(inside if statement.or_replace else ())
