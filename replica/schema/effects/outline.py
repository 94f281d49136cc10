"""Outline of a statement: the tables that it creates, changes, renames or drops, without their new definitions.

`outline_of` returns an `Outline`, or None if the statement defines no table or is only a START ALTER. A statement whose
head cannot be parsed has an empty outline: it may affect any table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from replica.errors import SchemaError
from replica.schema.definition.session import ANY_SERVER
from replica.schema.effects.effect import effect_of
from replica.schema.statements.statements import ROWS_OR_INDEXES, Verb, may_define, pairs

if TYPE_CHECKING:
    from replica.protocol.events.statement_events import QueryEvent
    from replica.schema.definition.session import ServerRules
    from replica.schema.known_tables import TableName


@dataclass(frozen=True, slots=True)
class Outline:
    """Tables that a statement names.

    Attributes:
            tables: All tables of the statement.
            defined: Tables that exist after the statement.
            dropped: Tables that do not exist after the statement.
            creates: Whether the new table is independent of any earlier table of that name.
    """

    tables: tuple[TableName, ...] = ()
    defined: tuple[TableName, ...] = ()
    dropped: frozenset[TableName] = frozenset()
    creates: bool = False


def outline_of(event: QueryEvent, server: ServerRules = ANY_SERVER) -> Outline | None:
    """Return the outline of a logged statement."""
    effect = effect_of(event, server) if may_define(event.query) else None
    if effect is None:
        return None
    try:
        statement = effect.head
    except SchemaError:
        return Outline()
    if statement is None or statement.verb in ROWS_OR_INDEXES:
        return None
    if statement.temporary and statement.verb is not Verb.DROP_TABLES:
        return None
    defined: tuple[TableName, ...] = statement.tables
    if statement.verb is Verb.DROP_TABLES:
        defined = ()
    elif statement.verb is Verb.RENAME_TABLES:
        exists: dict[TableName, bool] = {}
        for old, new in pairs(statement.tables):
            exists |= {old: False, new: True}
        defined = tuple(name for name, last in exists.items() if last)
    creates = statement.verb in (Verb.CREATE_TABLE, Verb.CREATE_SEQUENCE) and not statement.conditional
    named = tuple(dict.fromkeys(statement.tables))
    return Outline(named, defined, frozenset(named) - frozenset(defined), creates)


def changes_columns(event: QueryEvent, server: ServerRules = ANY_SERVER) -> bool:
    """Return True if a table has other columns after the statement, or if the statement cannot be parsed."""
    effect = effect_of(event, server)
    try:
        statement = None if effect is None else effect.head
        if effect is None or statement is None or statement.verb is not Verb.ALTER_TABLE:
            return statement is None or not statement.conditional  # CREATE IF NOT EXISTS may change nothing
        change = effect.alteration
    except SchemaError:
        return True
    return change is None or bool(
        change.added
        or change.changed
        or change.renamed
        or change.dropped
        or change.convert
        or change.unversioned
        or change.options.versioned
        or change.rename
    )
