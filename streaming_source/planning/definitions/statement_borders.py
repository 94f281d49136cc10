"""The end of a mirror's batch before a statement on a mirrored table: all rows of a batch are of one definition.

In: the part of the relay log that a batch is to be of. Out: the place right before the first statement that defines,
empties, moves or removes a selected table, unless only such statements come before it. So a batch begins with
statements, if it has any, and its rows come after them.

A change of rows that was logged as a statement ends no batch: it changes no definition, and a server that logs so may
have thousands of them a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.relay_log.walks.ddl import statements_between
from streaming_source.rows.ddl_statements import named_tables

if TYPE_CHECKING:
    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.relay_log.log import RelayLog
    from replica.relay_log.walks.ddl import RelayStatement
    from streaming_source.selection.resolver import SelectedTables


class StatementBorders:
    """One per query, called by one thread. `ended`: whether the last batch ends at a statement."""

    def __init__(self, tables: SelectedTables) -> None:
        self.ended = False
        self._tables = tables

    def admit(self, log: RelayLog, start: RelayLocation, head: RelayHead) -> RelayHead:
        """Return where the batch that begins at `start` ends: at `head` at the latest.

        Raises:
            DataLossError: groups after `start` were purged.
            ProtocolError: the bytes are damaged.
        """
        reached: RelayLocation | None = start
        """The end of the statements that the batch begins with; None: rows come after them."""
        last: RelayLocation | None = None
        self.ended = False
        for statement in statements_between(log, start, head.location):
            here = statement.location
            if here == last or not self._is_selected(statement):
                continue
            if reached is None or (here > reached and not log.is_empty(reached, here)):
                self.ended = True
                return log.at(here)
            reached = log.cut(here, head.location, 1).location if statement.alone else None
            last = here
        return head

    def _is_selected(self, statement: RelayStatement) -> bool:
        """Tell whether the statement comes with the rows: it names, or may name, a selected table."""
        tables = self._tables
        return any(tables.wants_statement(*name) for name in named_tables(statement.query, tables.server))
