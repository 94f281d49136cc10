"""The end of a mirror's batch before a statement on a mirrored table, so that all rows of a batch have one definition.

`StatementBorders.admit` takes the part of the relay log for a batch. It returns the place right before the first
statement that defines, empties, moves or removes a selected table, unless only such statements come before it. So a
batch begins with its statements, if it has any, and its rows follow them.

A change of rows that was logged as a statement ends no batch. It changes no definition, and a server that logs so may
have thousands of them a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.relay_log.walks.ddl import statements_between
from streaming_source.rows.statements.ddl_statements import named_tables

if TYPE_CHECKING:
    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.relay_log.log import RelayLog
    from replica.relay_log.walks.ddl import RelayStatement
    from streaming_source.selection.resolver import SelectedTables


class StatementBorders:
    """The statement borders of one query, called by one thread. `ended`: whether the last batch ends at a statement."""

    def __init__(self, tables: SelectedTables) -> None:
        self.ended = False
        self._tables = tables

    def admit(self, log: RelayLog, start: RelayLocation, head: RelayHead) -> RelayHead:
        """Return the end of the batch that begins at `start`, at the latest `head`.

        Raises:
            DataLossError: groups after `start` were purged.
            ProtocolError: the bytes are damaged.
        """
        reached: RelayLocation | None = start
        """End of the statements at the beginning of the batch; None once rows have followed them."""
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
        """Return True if the statement names, or may name, a selected table."""
        tables = self._tables
        return any(tables.wants_statement(*name) for name in named_tables(statement.query, tables.server))
