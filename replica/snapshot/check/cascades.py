"""Foreign keys by which the server changes rows that no binlog has: CASCADE and SET NULL.

InnoDB does these changes below the binlog: a DELETE of the parent's row is there, what it does to the other table's
rows is not (measured on 10.5, 10.11 and 11.8: the transaction holds that table's TABLE_MAP event and no row of it).
In: what SHOW CREATE TABLE prints, which an account with SELECT may ask for; information_schema shows constraints only
to accounts with more than that.
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
"""What a session needs so that its SHOW CREATE TABLE is read here."""

_NAME: Final = r"`((?:[^`]|``)*)`"
_COLUMNS: Final = r"\((`(?:[^`]|``)*`(?:, `(?:[^`]|``)*`)*)\)"
# Of all names, 10.5 and 11.8 leave the quotes in a constraint's own as they are; 10.11 doubles them.
_CONSTRAINT: Final = re.compile(
    rf"^  CONSTRAINT `([^\n]*?)` FOREIGN KEY {_COLUMNS} REFERENCES (?:{_NAME}\.)?{_NAME} {_COLUMNS}([^\n]*?),?$",
    re.MULTILINE,
)
_ACTION: Final = re.compile(r"ON (DELETE|UPDATE) (CASCADE|SET NULL)")


class Cascade(NamedTuple):
    """A constraint whose rows change with another table's; `actions` as SQL has them: ON DELETE CASCADE. `columns` of
    the table name a row by its `parent_columns`.
    """

    constraint: str
    parent: tuple[str, str]
    actions: tuple[str, ...]
    columns: tuple[str, ...] = ()
    parent_columns: tuple[str, ...] = ()


def tables_above(name: TableName, parents: Mapping[TableName, Collection[TableName]]) -> set[TableName]:
    """Return the tables that a table refers to, through all levels; `parents`: those that each refers to by itself."""
    found: set[TableName] = set()
    left = [name]
    while left:
        new = set(parents.get(left.pop(), ())) - found
        found |= new
        left += new
    return found


def ask_cascades(table: tuple[str, str]) -> Steps[tuple[Cascade, ...] | None]:
    """Return the constraints of a table that change its rows; None where the server does not show its definition.

    The session has to be `QUOTED`.
    """
    database, name = (part.replace("`", "``") for part in table)
    try:
        rows = yield Query(f"SHOW CREATE TABLE `{database}`.`{name}`")
    except ServerError:
        return None
    return tuple(read_cascades(rows[0][1] or "", table[0])) if rows else ()


def read_cascades(definition: str, database: str) -> Iterator[Cascade]:
    """Yield the constraints of a CREATE TABLE that change rows; a parent without a database is in `database`."""
    for constraint, columns, of, parent, parent_columns, rest in _CONSTRAINT.findall(definition):
        actions = tuple(f"ON {event} {action}" for event, action in _ACTION.findall(rest))
        if actions:
            owner = (_plain(of) or database, _plain(parent))
            yield Cascade(_plain(constraint), owner, actions, _listed(columns), _listed(parent_columns))


def _listed(columns: str) -> tuple[str, ...]:
    return tuple(_plain(name) for name in re.findall(_NAME, columns))


def _plain(name: str) -> str:
    return name.replace("``", "`")
