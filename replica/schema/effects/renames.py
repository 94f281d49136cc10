"""Tables that a statement renames: RENAME, or ALTER TABLE with a rename.

`new_names` maps each new name to the table's name before the statement. A statement that is not DDL, or renames no
table, gives an empty result. A statement with a rename that cannot be parsed is an error.
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
    """Return the new names of the renamed tables: new name -> name before the statement.

    Raises:
        SchemaError: The statement contains RENAME and cannot be parsed.
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
            hint="Snapshots are running, and a renamed table needs a re-snapshot under its new name: "
            "start with a new checkpoint and startingPosition=initial.",
        ) from None
    if change is None:
        return {}
    (table,) = statement.tables
    to = change.rename or change.to_table
    return {} if to is None or to == table else {to: table}


def _moved(renames: list[tuple[TableName, TableName]]) -> dict[TableName, TableName]:
    """Return the net renames of one statement. They apply in order, so two tables may swap their names."""
    first: dict[TableName, TableName] = {}
    for old, new in renames:
        first[new] = first.pop(old, old)
    return {new: old for new, old in first.items() if new != old}
