"""The names that are temporary tables, per session, as far as statements tell: no other session sees them.

In: statements of the binlog in order. Out: whether a statement means a temporary table by a name. A server marks each
statement that uses one (THREAD_SPECIFIC); of one that is not marked no name is. A table that was made before the first
statement seen here is not known, and neither are the tables of a session in ROW format, which are not logged.
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
"""Some 10 MB. What is made beyond is not known: statements on it count as changes of a table of that name."""


def uses_temporary(statement: Logged) -> bool:
    """Tell whether the server says that the statement belongs to its session's temporary tables."""
    return bool(statement.header.flags & HeaderFlag.THREAD_SPECIFIC)


class TemporaryTables:
    """The names of the temporary tables of all sessions."""

    def __init__(self) -> None:
        self._names: set[tuple[int, int, str, str]] = set()

    def copy(self) -> TemporaryTables:
        made = TemporaryTables()
        made._names.update(self._names)
        return made

    def follow(self, statement: Logged, server: ServerRules = ANY_SERVER) -> None:
        """Take in what the statement makes, renames or drops."""
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
        """Tell whether `name` in this statement is a temporary table."""
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
