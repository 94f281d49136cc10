"""Find the first statement after a relay log location that changed the definition or existence of selected tables.

`StatementsBehind` follows the growing log. A statement counts if it alters, empties, moves or drops a selected table,
or if it may do so. Tables that are created after the location under a new name do not count, whatever statements do to
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.errors import SchemaError
from replica.plain_text import one_line
from replica.protocol.events.query import QueryEvent
from replica.relay_log.walks.ddl import texts_between
from replica.schema.effects.effect import effect_of
from replica.schema.statements.statements import Verb
from replica.snapshot.reconcile.table_statements import TableStatements

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.relay_log.location import RelayLocation
    from replica.relay_log.log import RelayLog
    from replica.schema.known_tables import TableName
    from replica.snapshot.reconcile.table_statements import TableStatement

SHOWN: Final = 100
"""Maximum characters of a statement in a message, enough for its verb and table."""
SECRET_WORDS: Final = ("CONNECTION", "PASSWORD")
"""Table options that may hold a password; a message shows a statement only up to them."""


class StatementsBehind:
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
        self._made: set[TableName] = set()
        self._found: TableStatement | None = None
        self.created: dict[TableName, TableStatement] = {}
        """Selected tables that were created after the location, with the CREATE statements."""

    def first_up_to(self, end: RelayLocation) -> TableStatement | None:
        """Return the first such statement before `end`, a group end of the log; None if there is none.

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
            new = set(statement.tables) - self._made
            self._made |= new
            self.created |= {name: statement for name in new if self._wants(*name)}
        left = [name for name in statement.tables if name not in self._made]
        return any(self._wants(*name) if name[1] else self._wants_database(name[0]) for name in left)


def shown(statement: TableStatement) -> str:
    """Return the start of a statement, with its GTID, for a message."""
    query = statement.text.statement
    text = " ".join(query.query.decode("utf-8", "replace").split())
    ends = [place for word in SECRET_WORDS if (place := text.upper().find(word)) >= 0]
    cut = min([*ends, SHOWN])
    return f"{statement.text.gtid}, {one_line(text[:cut])}{'…' if len(text) > cut else ''}"


def _makes(statement: TableStatement) -> bool:
    """Return True if a statement creates a table that did not exist, so without OR REPLACE and IF NOT EXISTS."""
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
