"""The effect of a statement: all that it says of tables, read once, with its session and its server.

In: a statement of the binlog (`effect_of`), or its text with a stored context. Out: a `StatementEffect`. Code that
follows statements takes the effect and does not read the text again: without its context a text may mean something
else. The parts of an effect are read on demand. Reading a part that is not understood raises a SchemaError.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from replica.protocol.constants import GtidExtraFlag
from replica.schema.definition.alter import read_alteration
from replica.schema.definition.session import ANY_SERVER, StatementContext, session_of, text_of
from replica.schema.statements.changed_tables import changed_by
from replica.schema.statements.statements import Verb, open_statement, read_head

if TYPE_CHECKING:
    from replica.schema.definition.alteration import Alteration
    from replica.schema.definition.session import Logged, ServerRules
    from replica.schema.known_tables import TableName
    from replica.schema.statements.changed_tables import Changed
    from replica.schema.statements.statements import Statement
    from replica.schema.text.sql_tokens import Token

UNDONE = GtidExtraFlag.START_ALTER | GtidExtraFlag.ROLLBACK_ALTER
"""Groups of an ALTER in two phases that change nothing: COMMIT ALTER does."""


@dataclass(frozen=True)
class StatementEffect:
    """A statement and what it does. `sql` is for messages; `context` is what its meaning depends on besides."""

    sql: str
    context: StatementContext = field(default_factory=StatementContext)

    @cached_property
    def head(self) -> Statement | None:
        """What the statement is and which tables it names; None for what defines, empties and indexes no table."""
        return read_head(self.sql, self.context)

    @property
    def verb(self) -> Verb | None:
        """The kind of statement."""
        return None if self.head is None else self.head.verb

    @property
    def tables(self) -> tuple[TableName, ...]:
        """The tables that the head names, as the server stores them."""
        return () if self.head is None else self.head.tables

    @cached_property
    def alteration(self) -> Alteration | None:
        """The actions of an ALTER TABLE; None for other statements."""
        head = read_head(self.sql, self.context)
        if head is None or head.verb is not Verb.ALTER_TABLE:
            return None
        return read_alteration(head.tokens, self.context)

    @cached_property
    def changed(self) -> Changed | None:
        """The tables whose rows the statement changes by itself."""
        return changed_by(self.sql, self.context)

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        """The words of the statement, without those of SET STATEMENT … FOR before it."""
        tokens, found = open_statement(self.sql, self.context), []
        while tokens.peek() is not None:
            found.append(tokens.take())
        return tuple(found)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The unquoted words in capitals, '' for all else."""
        return tuple(token.upper for token in self.tokens)

    @property
    def empties(self) -> bool:
        """Whether it is a TRUNCATE of a whole table."""
        return self.verb is Verb.TRUNCATE_TABLE


def effect_of(statement: Logged, server: ServerRules = ANY_SERVER) -> StatementEffect | None:
    """Return the effect of a logged statement; None for an ALTER that has only begun or was rolled back."""
    if (statement.status.gtid_flags_extra or 0) & UNDONE:
        return None
    return StatementEffect(text_of(statement), session_of(statement, server))
