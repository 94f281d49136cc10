"""Effect of a statement on tables, parsed once, with its session and its server.

`effect_of` makes a `StatementEffect` from a logged statement. Code that applies statements must use the effect and
never parse the text again, because a text without its context may have another meaning. The parts of an effect are
parsed on demand. A part that cannot be parsed raises a SchemaError.

`outline_of` returns an `Outline`: the tables that a statement creates, changes, renames or drops, without their new
definitions. It is None if the statement defines no table or is only a START ALTER. A statement whose head cannot be
parsed has an empty outline: it may affect any table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from replica.errors import SchemaError
from replica.protocol.constants import GtidExtraFlag
from replica.schema.definition.alter import read_alteration
from replica.schema.definition.session import ANY_SERVER, StatementContext, session_of, text_of
from replica.schema.statements.changed_tables import changed_by
from replica.schema.statements.statements import ROWS_OR_INDEXES, Verb, may_define, open_statement, pairs, read_head

if TYPE_CHECKING:
    from replica.protocol.events.statement_events import QueryEvent
    from replica.schema.definition.alter import Alteration
    from replica.schema.definition.session import Logged, ServerRules
    from replica.schema.known_tables import TableName
    from replica.schema.statements.changed_tables import Changed
    from replica.schema.statements.statements import Statement
    from replica.schema.text.sql_tokens import Token

UNDONE = GtidExtraFlag.START_ALTER | GtidExtraFlag.ROLLBACK_ALTER
"""Flags of two-phase ALTER groups that change nothing; COMMIT ALTER applies the change."""


@dataclass(frozen=True)
class StatementEffect:
    """A statement and its effect.

    `sql` is for messages; `context` has the session settings that the meaning of the statement depends on.
    """

    sql: str
    context: StatementContext = field(default_factory=StatementContext)

    @cached_property
    def head(self) -> Statement | None:
        """Kind of statement and its tables; None if the statement does not define, empty or index a table."""
        return read_head(self.sql, self.context)

    @property
    def verb(self) -> Verb | None:
        """Kind of statement, None without a head."""
        return None if self.head is None else self.head.verb

    @property
    def tables(self) -> tuple[TableName, ...]:
        """Tables that the head names, as the server stores the names."""
        return () if self.head is None else self.head.tables

    @cached_property
    def alteration(self) -> Alteration | None:
        """Actions of an ALTER TABLE; None for other statements."""
        head = read_head(self.sql, self.context)
        if head is None or head.verb is not Verb.ALTER_TABLE:
            return None
        return read_alteration(head.tokens, self.context)

    @cached_property
    def changed(self) -> Changed | None:
        """Tables whose rows the statement itself changes."""
        return changed_by(self.sql, self.context)

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        """Tokens of the statement, without a leading SET STATEMENT … FOR."""
        tokens, found = open_statement(self.sql, self.context), []
        while tokens.peek() is not None:
            found.append(tokens.take())
        return tuple(found)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Unquoted words in capitals; '' for every other token, so that indexes agree with `tokens`."""
        return tuple(token.upper for token in self.tokens)

    @property
    def empties(self) -> bool:
        """Whether the statement is a TRUNCATE of a whole table."""
        return self.verb is Verb.TRUNCATE_TABLE


def effect_of(statement: Logged, server: ServerRules = ANY_SERVER) -> StatementEffect | None:
    """Return the effect of a logged statement; None for an ALTER that has only started or was rolled back."""
    if (statement.status.gtid_flags_extra or 0) & UNDONE:
        return None
    return StatementEffect(text_of(statement), session_of(statement, server))


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
            return _net_renames(pairs(statement.tables))
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


def _net_renames(renames: list[tuple[TableName, TableName]]) -> dict[TableName, TableName]:
    """Return the net renames of one statement. They apply in order, so two tables may swap their names."""
    first: dict[TableName, TableName] = {}
    for old, new in renames:
        first[new] = first.pop(old, old)
    return {new: old for new, old in first.items() if new != old}


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
