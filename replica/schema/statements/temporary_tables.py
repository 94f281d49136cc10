"""Names of temporary tables, per session, from the statements that create, rename and drop them.

`TemporaryTables` follows the statements of a binlog in order and decides whether a name in a statement is a temporary
table. The server marks each statement that uses one (THREAD_SPECIFIC); an unmarked statement uses none. Tables that
were created before the first statement are unknown, and so are tables of sessions in ROW format, which are not logged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.errors import SchemaError
from replica.protocol.constants import HeaderFlag
from replica.schema.definition.session import ANY_SERVER, session_of, text_of
from replica.schema.statements.statements import Verb, may_define, pairs, read_statement

if TYPE_CHECKING:
    from replica.schema.definition.session import Logged, ServerRules
    from replica.schema.known_tables import TableName
    from replica.schema.statements.statements import Statement

MAX_NAMES: Final = 1 << 16
"""Maximal number of names, some 10 MB. Later tables are unknown: statements on them count as changes of real tables."""


def uses_temporary(statement: Logged) -> bool:
    """Return True if the server marked the statement as using temporary tables of its session."""
    return bool(statement.header.flags & HeaderFlag.THREAD_SPECIFIC)


class TemporaryTables:
    """Names of the temporary tables of all sessions."""

    def __init__(self) -> None:
        self._names: set[tuple[int, int, str, str]] = set()

    def copy(self) -> TemporaryTables:
        made = TemporaryTables()
        made._names.update(self._names)
        return made

    def follow(self, statement: Logged, server: ServerRules = ANY_SERVER) -> None:
        """Apply the tables that the statement creates, renames or drops."""
        if not uses_temporary(statement) or not may_define(statement.query):
            return
        try:
            session = session_of(statement, server)
            read = read_statement(text_of(statement), session)
        except SchemaError:
            return
        if read is not None:
            self._apply(statement, read)

    def means(self, statement: Logged, name: TableName) -> bool:
        """Return True if `name` in this statement is a temporary table."""
        return uses_temporary(statement) and _key(statement, name) in self._names

    def _apply(self, statement: Logged, read: Statement) -> None:
        keys = [_key(statement, name) for name in read.tables]
        if read.verb is Verb.CREATE_TABLE and read.temporary and len(self._names) < MAX_NAMES:
            self._names.update(keys)
        elif read.verb is Verb.DROP_TABLES:
            self._names.difference_update(keys)
        elif read.verb is Verb.RENAME_TABLES:
            for old, new in pairs(read.tables):
                if _key(statement, old) in self._names:
                    self._names.discard(_key(statement, old))
                    self._names.add(_key(statement, new))


def _key(statement: Logged, name: TableName) -> tuple[int, int, str, str]:
    return statement.header.server_id, statement.thread_id, name[0], name[1]
