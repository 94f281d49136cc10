"""The tables that a statement moves to another name: RENAME, and ALTER TABLE that does so.

In: a QUERY of a binlog. Out: by each name that stands for another table after it, the name that this table had. A
statement that is not DDL, or moves no table, gives nothing. Refused: one that speaks of a RENAME and is not understood.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.errors import SchemaError
from replica.schema.definition.session import ANY_SERVER
from replica.schema.effects.effect import effect_of
from replica.schema.statements.statements import Verb, may_define, pairs

if TYPE_CHECKING:
    from replica.protocol.events.query import QueryEvent
    from replica.schema.definition.session import ServerRules
    from replica.schema.known_tables import TableName


def new_names(event: QueryEvent, server: ServerRules = ANY_SERVER) -> dict[TableName, TableName]:
    """Return the names that a statement moves tables to: new name -> name before it.

    Raises:
        SchemaError: it renames something, and is not understood.
    """
    effect = effect_of(event, server) if may_define(event.query) else None
    if effect is None:
        return {}
    try:
        statement = effect.head
        if statement is None or statement.temporary:
            return {}
        if statement.verb is Verb.RENAME_TABLES:
            return _moved(pairs(statement.tables))
        change = effect.alteration
    except SchemaError as error:
        if "rename" not in effect.sql.lower():
            return {}
        raise SchemaError(
            "a statement that renames something is not understood: "
            f"{' '.join(effect.sql.split())[:200]} ({error.message})",
            hint="Tables are being read meanwhile, and one that gets another name has to be read again under that: "
            "start with a new checkpoint and startingPosition=initial.",
        ) from None
    if change is None:
        return {}
    (table,) = statement.tables
    to = change.rename or change.to_table
    return {} if to is None or to == table else {to: table}


def _moved(renames: list[tuple[TableName, TableName]]) -> dict[TableName, TableName]:
    """Follow the renames of one statement, which are done one behind the other: two tables may swap their names."""
    first: dict[TableName, TableName] = {}
    for old, new in renames:
        first[new] = first.pop(old, old)
    return {new: old for new, old in first.items() if new != old}
