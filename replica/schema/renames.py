"""The tables that a statement moves to another name: RENAME, and ALTER TABLE that does so.

In: a QUERY of a binlog. Out: by each name that stands for another table after it, the name that this table had. A
statement that is not DDL, or moves no table, gives nothing. Refused: one that speaks of a RENAME and is not understood.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.errors import SchemaError
from replica.protocol.constants import GtidExtraFlag
from replica.schema.alter import read_alteration
from replica.schema.session import session_of, text_of
from replica.schema.sql_tokens import ANY_VERSION
from replica.schema.statements import Verb, may_define, pairs, read_statement

if TYPE_CHECKING:
    from replica.protocol.query import QueryEvent
    from replica.schema.known_tables import TableName

_UNDONE = GtidExtraFlag.START_ALTER | GtidExtraFlag.ROLLBACK_ALTER


def new_names(event: QueryEvent, server_version: int = ANY_VERSION) -> dict[TableName, TableName]:
    """Return the names that a statement moves tables to: new name -> name before it.

    Raises:
        SchemaError: it renames something, and is not understood.
    """
    if (event.status.gtid_flags_extra or 0) & _UNDONE or not may_define(event.query):
        return {}
    text = text_of(event)
    try:
        session = session_of(event, server_version)
        statement = read_statement(text, session)
        if statement is None or statement.temporary:
            return {}
        if statement.verb is Verb.RENAME_TABLES:
            return _moved(pairs(statement.tables))
        if statement.verb is not Verb.ALTER_TABLE:
            return {}
        change = read_alteration(statement.tokens, session)
    except SchemaError as error:
        if "rename" not in text.lower():
            return {}
        raise SchemaError(
            f"a statement that renames something is not understood: {' '.join(text.split())[:200]} ({error.message})",
            hint="Tables are being read meanwhile, and one that gets another name has to be read again under that: "
            "start with a new checkpoint and startingPosition=initial.",
        ) from None
    (table,) = statement.tables
    to = change.rename or change.to_table
    return {} if to is None or to == table else {to: table}


def _moved(renames: list[tuple[TableName, TableName]]) -> dict[TableName, TableName]:
    """Follow the renames of one statement, which are done one behind the other: two tables may swap their names."""
    first: dict[TableName, TableName] = {}
    for old, new in renames:
        first[new] = first.pop(old, old)
    return {new: old for new, old in first.items() if new != old}
