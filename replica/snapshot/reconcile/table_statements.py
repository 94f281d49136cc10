"""Find the statements in the relay log that may have changed a table and are logged as text.

`TableStatements.follow` yields, for each statement, the tables that it may concern. It also says whether the statement
is DDL or a change of rows without row events. A statement of an XA transaction counts at its commit. A statement that
cannot be parsed may concern any table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from replica.errors import SchemaError
from replica.protocol.constants import GtidFlag
from replica.protocol.events.query import QueryEvent
from replica.schema.effects.effect import effect_of
from replica.schema.statements.changed_tables import changed_tables
from replica.schema.statements.statements import Verb, may_define
from replica.schema.statements.temporary_tables import TemporaryTables, uses_temporary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from replica.protocol.events.transaction_events import XaId
    from replica.relay_log.location import RelayLocation
    from replica.relay_log.walks.ddl import RelayText
    from replica.schema.definition.session import Logged, ServerRules
    from replica.schema.effects.effect import StatementEffect
    from replica.schema.known_tables import TableName


class TableStatement(NamedTuple):
    """Statement of the relay log.

    Attributes:
        location: Start of the statement's event group.
        text: The statement with its context in the log.
        tables: Tables that the statement may concern. None is any table; an empty table name is the whole database.
        defines: Whether the statement is DDL, which includes changes of all rows of a table.
    """

    location: RelayLocation
    text: RelayText
    tables: tuple[TableName, ...] | None
    defines: bool

    def concerns(self, name: TableName) -> bool:
        """Return True if the statement may concern the table."""
        return self.tables is None or any(one == name[0] and two in ("", name[1]) for one, two in self.tables)


class TableStatements:
    """Consecutive statements of the relay log."""

    def __init__(self, before: Callable[[], Iterable[RelayText]]) -> None:
        """Start at a location. `before`: the earlier texts of the log, from which names of temporary tables are
        known.
        """
        self._before = before
        self._temporary: TemporaryTables | None = None
        self._prepared: dict[XaId, list[TableStatement]] = {}

    def prepared_before(self, xid: XaId, texts: Iterable[RelayText]) -> None:
        """Add the statements of an XA transaction that was prepared before the first followed text."""
        self._prepared[xid] = [found for text in texts for found in self._of(text)]

    def follow(self, texts: Iterable[RelayText]) -> Iterator[TableStatement]:
        """Yield the statements among the next texts that may concern tables."""
        for text in texts:
            if self._temporary is None and uses_temporary(text.statement):
                self._temporary = TemporaryTables()
                for earlier in self._before():
                    self._temporary.follow(earlier.statement, earlier.server)
            if self._temporary is not None:
                self._temporary.follow(text.statement, text.server)
            flags, xid = text.begin.flags2, text.begin.xa
            if xid is not None and flags & GtidFlag.COMPLETED_XA:
                held = self._prepared.pop(xid, [])
                if text.statement.query.startswith(b"XA COMMIT"):  # the server writes this text itself
                    yield from (_committed(found, text) for found in held)
            elif xid is not None and flags & GtidFlag.PREPARED_XA:
                self._prepared.setdefault(xid, []).extend(self._of(text))
            else:
                yield from self._of(text)

    def _of(self, text: RelayText) -> Iterator[TableStatement]:
        statement = text.statement
        changed = changed_tables(statement, text.server)
        if changed is not None and not changed.defines:
            tables = tuple(name for name in changed.tables if not self._is_temporary(statement, name))
            if tables or not changed.tables:
                yield TableStatement(text.location, text, tables or None, defines=False)
        named = defined_tables(statement, text.server)
        if changed is not None and changed.defines:
            named = None if named is None or not changed.tables else (*named, *changed.tables)
        if named is not None:
            named = tuple(name for name in dict.fromkeys(named) if not self._is_temporary(statement, name))
        if named is None or named:
            yield TableStatement(text.location, text, named, defines=True)

    def _is_temporary(self, statement: Logged, name: TableName) -> bool:
        return self._temporary is not None and self._temporary.means(statement, name)


def _committed(found: TableStatement, end: RelayText) -> TableStatement:
    """Return the statement of an XA transaction as part of the group that commits it."""
    text = found.text._replace(location=end.location, begin=end.begin)
    return found._replace(location=end.location, text=text)


def defined_tables(statement: Logged, server: ServerRules) -> tuple[TableName, ...] | None:
    """Return the tables that a statement creates, alters, moves or drops; (name, '') is a database, None is any
    table.
    """
    if not isinstance(statement, QueryEvent) or not may_define(statement.query):
        return ()
    effect = effect_of(statement, server)
    try:
        return () if effect is None else _named(effect)
    except SchemaError:
        return None


def _named(effect: StatementEffect) -> tuple[TableName, ...]:
    head = effect.head
    if head is None or head.temporary or head.verb is Verb.TRUNCATE_TABLE:
        return ()
    if head.verb is Verb.DROP_DATABASE or (head.verb is Verb.CREATE_DATABASE and head.or_replace):
        return ((head.database, ""),)
    change = effect.alteration
    moved = () if change is None else (change.rename, change.to_table, change.from_table)
    return (*head.tables, *(table for table in moved if table is not None))
