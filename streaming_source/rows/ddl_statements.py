"""The tables or databases that a statement of the binlog defines, changes, empties or removes.

In: a `QueryEvent` as the server logs it. Out: the names in the statement's order, each once; a database that is named
as such has no table. Names without a database are those of the session's. What defines no table (data, views, routines,
triggers) gives nothing, and so do accounts and all else that may hold a password: only statements on tables, indexes,
sequences and databases are ever looked at. Temporary tables are seen by no other session, and an ALTER that has only
started, or was rolled back, has changed nothing. A statement on a table or database whose names cannot be read is
counted as one that might be about any table of the session's database.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import SchemaError
from replica.protocol.constants import GtidExtraFlag
from replica.schema.alter import read_alteration
from replica.schema.changed_tables import changed_by
from replica.schema.cursor import Tokens
from replica.schema.session import session_of, text_of
from replica.schema.sql_tokens import ANY_VERSION, tokenize
from replica.schema.statements import Verb, read_statement

if TYPE_CHECKING:
    from replica.protocol.query import QueryEvent
    from replica.schema.session import StatementContext
    from replica.schema.statements import Statement

_UNDONE: Final = GtidExtraFlag.START_ALTER | GtidExtraFlag.ROLLBACK_ALTER
_COMMENT: Final = rb"(?>(?:\s|--[^\n]*\n|\#[^\n]*\n|/\*(?!M?!).*?\*/)*)"
_FIRST: Final = re.compile(
    _COMMENT + rb"(?:CREATE|ALTER|DROP|RENAME|TRUNCATE|SET\s+STATEMENT|/\*M?!)", re.IGNORECASE | re.DOTALL
)
"""Most statements are none of these, and need no lexer."""
_ON_TABLES: Final = re.compile(
    r"(?:CREATE|ALTER|DROP|RENAME|TRUNCATE)\s(?:\s*(?:OR|REPLACE|ONLINE|IGNORE|UNIQUE|FULLTEXT|SPATIAL)\s)*"
    r"\s*(?:TABLES?|SEQUENCE|INDEX|DATABASE|SCHEMA)\b",
    re.IGNORECASE,
)
"""What a statement begins with that may come as a row although its names are not clear."""


class Named(NamedTuple):
    """A table, or with '' as table a database; `database` is '' where not even that is clear."""

    database: str
    table: str


def named_tables(query: QueryEvent, *, server_version: int = ANY_VERSION) -> tuple[Named, ...]:
    """Return what the statement names; `server_version` decides which executable comments count."""
    if (query.status.gtid_flags_extra or 0) & _UNDONE or _FIRST.match(query.query) is None:
        return ()
    session, text = session_of(query, server_version), text_of(query)
    try:
        return tuple(dict.fromkeys(_names(text, session)))
    except SchemaError:
        return (Named(session.database, ""),) if _ON_TABLES.match(text.lstrip()) else ()


def _names(text: str, session: StatementContext) -> list[Named]:
    simple = _emptied_or_indexed(_tokens(text, session), session)
    if simple is not None:
        return [simple]
    statement = read_statement(text, session)
    if statement is None or statement.temporary or statement.verb is Verb.USE:
        return []
    if not statement.tables:
        return [Named(statement.database, "")]
    names = [Named(*table) for table in statement.tables]
    if statement.verb is not Verb.ALTER_TABLE:
        return names
    changed = changed_by(text, session)  # EXCHANGE PARTITION … WITH TABLE, which takes rows of both along
    exchanged = () if changed is None else changed.tables
    return [*names, *_moved(statement, session), *(Named(*table) for table in exchanged)]


def _tokens(text: str, session: StatementContext) -> Tokens:
    return Tokens(tokenize(text, sql_mode=session.sql_mode, server_version=session.server_version))


def _emptied_or_indexed(tokens: Tokens, session: StatementContext) -> Named | None:
    """Return the table of TRUNCATE, CREATE INDEX and DROP INDEX, which leave its definition as it was."""
    if tokens.accept("SET", "STATEMENT"):
        while not tokens.accept("FOR"):
            tokens.take()
    if tokens.accept("TRUNCATE"):
        tokens.accept("TABLE")
        return Named(*tokens.table_name(session.database))
    if tokens.accept_any("CREATE", "DROP"):
        tokens.accept("OR", "REPLACE")
        tokens.accept_any("UNIQUE", "FULLTEXT", "SPATIAL")
        if tokens.accept("INDEX"):
            while not tokens.accept("ON"):
                tokens.take()
            return Named(*tokens.table_name(session.database))
    return None


def _moved(statement: Statement, session: StatementContext) -> list[Named]:
    """Return the other tables of an ALTER TABLE: its new name, the table of a partition."""
    try:
        change = read_alteration(statement.tokens, session)
    except SchemaError:  # its own table is known all the same
        return []
    return [Named(*table) for table in (change.rename, change.to_table, change.from_table) if table is not None]
