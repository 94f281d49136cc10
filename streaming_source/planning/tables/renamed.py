"""Tables that take another name while tables are being read: under a name that was passed, no one would read them.

In: the statements of a batch, and how far the tables are read. Out: the place right behind the first statement that
puts a table under such a name, and the names: the batch ends there, and from there on nothing of these tables is
delivered until they are read. A copy that a tool has made to change a table (gh-ost, pt-online-schema-change) holds the
rows of the table whose place it takes: nothing has to be read again.
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
    """The tables that have to be read again from `head` on, which is right behind their RENAME."""

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
    """Return the first of them between a place and a later one; None where there is none. `lenient`: pass over a
    statement that is not understood, because who reads the stream has all tables read again that it may be about.

    Raises:
        SchemaError: a statement renames something, and is not understood.
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
