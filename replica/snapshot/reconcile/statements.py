"""Statements in the relay log that changed tables of a snapshot: definitions, or rows logged as text.

`StatementsAfter` follows the growing log. A statement counts if it alters, empties, moves or drops a selected table, or
if it may do so. Tables that are created after the location under a new name do not count, even if later statements
alter or drop them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import SchemaError
from replica.protocol.constants import GtidFlag
from replica.protocol.events.statement_events import QueryEvent
from replica.protocol.plain_text import one_line
from replica.relay_log.walks.ddl import texts_between
from replica.schema.effects.effect import effect_of
from replica.schema.statements.changed_tables import changed_tables
from replica.schema.statements.statements import TemporaryTables, Verb, may_define, uses_temporary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from replica.protocol.events.transaction_events import XaId
    from replica.relay_log.location import RelayLocation
    from replica.relay_log.log import RelayLog
    from replica.relay_log.walks.ddl import RelayText
    from replica.schema.definition.session import Logged, ServerRules
    from replica.schema.effects.effect import StatementEffect
    from replica.schema.known_tables import TableName

# A statement of an XA transaction counts at its commit. A statement that cannot be parsed may concern any table.


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
        """Start at a location. `before` returns the earlier texts of the log, which contain the names of temporary
        tables.
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
                prepared = self._prepared.pop(xid, [])
                if text.statement.query.startswith(b"XA COMMIT"):  # the server writes this text itself
                    yield from (_committed(found, text) for found in prepared)
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
    renamed = () if change is None else (change.rename, change.to_table, change.from_table)
    return (*head.tables, *(table for table in renamed if table is not None))


SHOWN: Final = 100
"""Maximum characters of a statement in a message, enough for its verb and table."""
SECRET_WORDS: Final = ("CONNECTION", "PASSWORD")
"""Table options that may hold a password; a message shows a statement only up to them."""


class StatementsAfter:
    """Statements after `start` that concern a selection. `wants_database`: whether the selection has tables of a
    database.
    """

    def __init__(
        self,
        log: RelayLog,
        start: RelayLocation,
        wants: Callable[[str, str], bool],
        wants_database: Callable[[str], bool],
    ) -> None:
        self._log = log
        self._at = start
        self._wants = wants
        self._wants_database = wants_database
        self._follower = TableStatements(lambda: texts_between(log, log.oldest(), start))
        self._created: set[TableName] = set()
        self._found: TableStatement | None = None
        self.created: dict[TableName, TableStatement] = {}
        """Selected tables that were created after the location, with the CREATE statements."""

    def first_up_to(self, end: RelayLocation) -> TableStatement | None:
        """Return the first statement before `end` that concerns the selection; None if there is none. `end` is a group
        end.

        Raises:
            DataLossError: Groups of the range were purged.
            ProtocolError: The log is damaged.
        """
        if self._found is None and end > self._at:
            for statement in self._follower.follow(texts_between(self._log, self._at, end)):
                if statement.defines and self._concerns(statement):
                    self._found = statement
                    break
            self._at = end
        return self._found

    def _concerns(self, statement: TableStatement) -> bool:
        if statement.tables is None:
            return True
        if _makes(statement):
            new = set(statement.tables) - self._created
            self._created |= new
            self.created |= {name: statement for name in new if self._wants(*name)}
        left = [name for name in statement.tables if name not in self._created]
        return any(self._wants(*name) if name[1] else self._wants_database(name[0]) for name in left)


def shown(statement: TableStatement) -> str:
    """Return the start of a statement, with its GTID, for a message."""
    query = statement.text.statement
    text = " ".join(query.query.decode("utf-8", "replace").split())
    ends = [place for word in SECRET_WORDS if (place := text.upper().find(word)) >= 0]
    cut = min([*ends, SHOWN])
    return f"{statement.text.gtid}, {one_line(text[:cut])}{'…' if len(text) > cut else ''}"


def _makes(statement: TableStatement) -> bool:
    """Return True if a statement creates a table that did not exist: it has no OR REPLACE or IF NOT EXISTS."""
    query = statement.text.statement
    if not isinstance(query, QueryEvent):
        return False
    effect = effect_of(query, statement.text.server)
    try:
        head = None if effect is None else effect.head
    except SchemaError:
        return False
    created = head is not None and head.verb in (Verb.CREATE_TABLE, Verb.CREATE_SEQUENCE)
    return head is not None and created and not head.conditional and not head.or_replace
