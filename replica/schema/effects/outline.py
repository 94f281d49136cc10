"""The tables that a statement of the stream makes, changes, moves or removes, without a look at what it makes of them.

In: a QUERY of a binlog. Out: an `Outline`, or None for what defines no table, or is not carried out yet (START ALTER).
A statement whose head is not understood has an empty one: it may concern any table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from replica.errors import SchemaError
from replica.schema.definition.session import ANY_SERVER
from replica.schema.effects.effect import effect_of
from replica.schema.statements.statements import ROWS_OR_INDEXES, Verb, may_define, pairs

if TYPE_CHECKING:
    from replica.protocol.events.query import QueryEvent
    from replica.schema.definition.session import ServerRules
    from replica.schema.known_tables import TableName


@dataclass(frozen=True, slots=True)
class Outline:
    """The tables that a statement names. `tables`: all of them; `defined`: those that exist after it; `gone`: those
    that do not.

    `creates`: what exists after it owes nothing to what was there before.
    """

    tables: tuple[TableName, ...] = ()
    defined: tuple[TableName, ...] = ()
    gone: frozenset[TableName] = frozenset()
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
        there: dict[TableName, bool] = {}
        for old, new in pairs(statement.tables):
            there |= {old: False, new: True}
        defined = tuple(name for name, last in there.items() if last)
    creates = statement.verb in (Verb.CREATE_TABLE, Verb.CREATE_SEQUENCE) and not statement.conditional
    named = tuple(dict.fromkeys(statement.tables))
    return Outline(named, defined, frozenset(named) - frozenset(defined), creates)


def changes_columns(event: QueryEvent, server: ServerRules = ANY_SERVER) -> bool:
    """Tell whether a table has other columns after the statement; True for one that is not understood."""
    effect = effect_of(event, server)
    try:
        statement = None if effect is None else effect.head
        if effect is None or statement is None or statement.verb is not Verb.ALTER_TABLE:
            return statement is None or not statement.conditional  # CREATE IF NOT EXISTS of what does exist
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
