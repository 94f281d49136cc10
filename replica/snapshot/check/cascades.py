"""Find foreign keys with CASCADE or SET NULL, because the binlog does not record the rows that they change.

InnoDB makes these changes below the binlog. The binlog has the DELETE of the parent row. For the child table, the
transaction holds a TABLE_MAP event and no row event (measured on 10.5, 10.11 and 11.8). The module parses SHOW CREATE
TABLE, which needs only SELECT. information_schema shows constraints only to accounts with more privileges.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import ServerError
from replica.handshake.registration import Query

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from replica.handshake.registration import Steps
    from replica.schema.known_tables import TableName

QUOTED: Final = "SET SESSION sql_mode = '', sql_quote_show_create = 1"
"""Session settings that `read_cascades` needs to parse the output of SHOW CREATE TABLE."""

_NAME: Final = r"`((?:[^`]|``)*)`"
_COLUMNS: Final = r"\((`(?:[^`]|``)*`(?:, `(?:[^`]|``)*`)*)\)"
# 10.11 doubles backquotes in the constraint's name; 10.5 and 11.8 do not. All versions double them in other names.
_CONSTRAINT: Final = re.compile(
    rf"^  CONSTRAINT `([^\n]*?)` FOREIGN KEY {_COLUMNS} REFERENCES (?:{_NAME}\.)?{_NAME} {_COLUMNS}([^\n]*?),?$",
    re.MULTILINE,
)
_ACTION: Final = re.compile(r"ON (DELETE|UPDATE) (CASCADE|SET NULL)")


class Cascade(NamedTuple):
    """Foreign key through which a change of parent rows changes rows of the child table.

    Attributes:
        constraint: Name of the constraint.
        parent: Parent table as (database, table).
        actions: Actions as SQL text, such as "ON DELETE CASCADE".
        columns: Foreign key columns of the child table.
        parent_columns: The columns of the parent that `columns` refer to.
    """

    constraint: str
    parent: tuple[str, str]
    actions: tuple[str, ...]
    columns: tuple[str, ...] = ()
    parent_columns: tuple[str, ...] = ()


def tables_above(name: TableName, parents: Mapping[TableName, Collection[TableName]]) -> set[TableName]:
    """Return all direct and indirect parents of a table; `parents` maps each table to its direct parents."""
    found: set[TableName] = set()
    left = [name]
    while left:
        new = set(parents.get(left.pop(), ())) - found
        found |= new
        left += new
    return found


def ask_cascades(table: tuple[str, str]) -> Steps[tuple[Cascade, ...] | None]:
    """Ask for the cascading foreign keys of a table; None if the server does not show the table's definition.

    The session must have the `QUOTED` settings.
    """
    database, name = (part.replace("`", "``") for part in table)
    try:
        rows = yield Query(f"SHOW CREATE TABLE `{database}`.`{name}`")
    except ServerError:
        return None
    return tuple(read_cascades(rows[0][1] or "", table[0])) if rows else ()


def read_cascades(definition: str, database: str) -> Iterator[Cascade]:
    """Yield the cascading foreign keys in a CREATE TABLE statement; `database` qualifies parents that have no
    database.
    """
    for constraint, columns, of, parent, parent_columns, rest in _CONSTRAINT.findall(definition):
        actions = tuple(f"ON {event} {action}" for event, action in _ACTION.findall(rest))
        if actions:
            owner = (_plain(of) or database, _plain(parent))
            yield Cascade(_plain(constraint), owner, actions, _listed(columns), _listed(parent_columns))


def _listed(columns: str) -> tuple[str, ...]:
    return tuple(_plain(name) for name in re.findall(_NAME, columns))


def _plain(name: str) -> str:
    return name.replace("``", "`")
