"""Tables that are renamed during a snapshot, to a name that the snapshot has passed already and would not read.

`first_rename` takes the statements of a batch and the frontier. It returns the place right after the first statement
that gives a table such a name, and the names. The batch ends there. From there on, nothing of these tables is delivered
until their re-snapshot. A copy that gh-ost or pt-online-schema-change made of a table has the rows of the table that it
replaces, so it needs no re-snapshot.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from replica.errors import SchemaError
from replica.relay_log.walks.ddl import statements_between
from replica.schema.effects.renames import new_names
from replica.schema.patterns import shadowed

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.relay_log.log import RelayLog
    from replica.schema.known_tables import TableName
    from replica.snapshot.frontier import Frontier

_log = logging.getLogger(__name__)


class RenamedTables(NamedTuple):
    """The tables that need a re-snapshot from `head` on, the place right after their RENAME."""

    head: RelayHead
    names: tuple[TableName, ...]


def first_rename(
    log: RelayLog,
    start: RelayLocation,
    head: RelayHead,
    frontier: Frontier,
    wants: Callable[[str, str], bool],
    *,
    lenient: bool = False,
) -> RenamedTables | None:
    """Return the first rename of this kind between two places; None if there is none.

    `lenient`: ignore a statement that the parser does not understand. The consumer of the stream requests a re-snapshot
    of all tables that it may concern.

    Raises:
        SchemaError: a statement renames something, and the parser does not understand it.
    """
    for statement in statements_between(log, start, head.location):
        try:
            moved = new_names(statement.query, statement.server)
        except SchemaError as error:
            if not lenient:
                raise
            _log.warning("%s", error.message)
            continue
        names = tuple(
            new
            for new, old in sorted(moved.items())
            if wants(*new) and not _is_copy(old, new) and frontier.again([new]) != frontier
        )
        if names:
            return RenamedTables(log.cut(statement.location, head.location, 1), names)
    return None


def _is_copy(old: TableName, new: TableName) -> bool:
    original = shadowed(old[1])
    return old[0] == new[0] and original is not None and original.lower() == new[1].lower()
