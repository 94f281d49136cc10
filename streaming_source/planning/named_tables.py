"""The tables that the statements of a batch name: what was known of them may be another thing behind the batch.

In: two places of the relay log, tables. Out: those of them that a statement between the places makes, changes, moves or
removes, or may: one whose head is not understood may concern any table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.relay_log.ddl import statements_between
from replica.schema.outline import outline_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from replica.relay_log.location import RelayLocation
    from replica.relay_log.log import RelayLog
    from replica.schema.known_tables import TableName


def named_between(
    log: RelayLog, start: RelayLocation, end: RelayLocation, tables: Collection[TableName]
) -> set[TableName]:
    """Return the tables that are named between two places."""
    found: set[TableName] = set()
    for statement in statements_between(log, start, end):
        outline = outline_of(statement.query, statement.server)
        if outline is not None:
            found.update(name for name in tables if not outline.tables or name in outline.tables)
    return found
