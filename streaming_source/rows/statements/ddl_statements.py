"""The tables or databases that a statement of the binlog defines, changes, repairs, empties or removes.

`named_tables` takes a `QueryEvent` as the server logs it. It returns the names in the statement's order, each once. A
database has no table name. Names without a database are in the session's database. Only statements on tables, indexes,
sequences and databases are examined. Other statements give nothing: data, views, routines, triggers, and those that may
have a password, such as those on accounts. Temporary tables do not count, because no other session sees them. An ALTER
that has only started, or was rolled back, has changed nothing. A statement on a table or database whose names cannot be
read counts as one on any table of the session's database.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import SchemaError
from replica.schema.definition.session import ANY_SERVER
from replica.schema.effects.effect import effect_of
from replica.schema.statements.statements import Verb

if TYPE_CHECKING:
    from replica.protocol.events.query import QueryEvent
    from replica.schema.definition.session import ServerRules
    from replica.schema.effects.effect import StatementEffect

_COMMENT: Final = rb"(?>(?:\s|--[^\n]*\n|\#[^\n]*\n|/\*(?!M?!).*?\*/)*)"
_FIRST: Final = re.compile(
    _COMMENT + rb"(?:CREATE|ALTER|DROP|RENAME|REPAIR|TRUNCATE|SET|/\*M?!)", re.IGNORECASE | re.DOTALL
)
"""Beginning of statements to examine. Most statements do not match, and need no lexer."""
_ON_TABLES: Final = re.compile(
    r"(?:CREATE|ALTER|DROP|RENAME|REPAIR|TRUNCATE)\s(?:\s*(?:OR|REPLACE|ONLINE|IGNORE|LOCAL|UNIQUE|FULLTEXT|SPATIAL)\s)*"
    r"\s*(?:TABLES?|SEQUENCE|INDEX|DATABASE|SCHEMA)\b",
    re.IGNORECASE,
)
"""Beginning of statements that become rows although their names are not clear."""


class Named(NamedTuple):
    """A table; or a database, with '' as table. `database` is '' if not even that is clear."""

    database: str
    table: str


def named_tables(query: QueryEvent, server: ServerRules = ANY_SERVER) -> tuple[Named, ...]:
    """Return the names in the statement, in the spelling of the server that wrote it."""
    effect = effect_of(query, server) if _FIRST.match(query.query) else None
    if effect is None:
        return ()
    try:
        return tuple(dict.fromkeys(_names(effect)))
    except SchemaError:
        return (Named(effect.context.database, ""),) if _ON_TABLES.match(effect.sql.lstrip()) else ()


def _names(effect: StatementEffect) -> list[Named]:
    head = effect.head
    if head is None or head.temporary or head.verb is Verb.USE:
        return []
    if not head.tables:
        return [Named(head.database, "")]
    names = [Named(*table) for table in head.tables]
    if head.verb is not Verb.ALTER_TABLE:
        return names
    changed = effect.changed  # EXCHANGE PARTITION … WITH TABLE, which changes rows of both
    exchanged = () if changed is None else changed.tables
    return [*names, *_moved(effect), *(Named(*table) for table in exchanged)]


def _moved(effect: StatementEffect) -> list[Named]:
    """Return the other tables of an ALTER TABLE: its new name, and the table of a partition."""
    try:
        change = effect.alteration
    except SchemaError:  # its own table is known
        return []
    moved = () if change is None else (change.rename, change.to_table, change.from_table)
    return [Named(*table) for table in moved if table is not None]
