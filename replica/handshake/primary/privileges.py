"""Privileges of the account on tables, determined with queries that read no rows.

information_schema leaves out tables on which the account has no privilege, so a hidden table looks like an absent one.
A SELECT distinguishes them: it is denied, or the table does not exist. A whole database is tested with a table name
that does not exist. So the server itself evaluates roles and grants with wildcards.

Source: measured on 10.5, 10.11 and 11.8 (tests/integration/test_check.py); the numbers are those of the server's
sql/share/errmsg-utf8.txt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from replica.errors import ServerError
from replica.handshake.registration import Query

if TYPE_CHECKING:
    from collections.abc import Collection

    from replica.handshake.registration import Steps

Answer = Literal["readable", "denied", "absent"]

_DENIED: Final = frozenset({1044, 1142, 1143})
"""ER_DBACCESS_DENIED_ERROR, ER_TABLEACCESS_DENIED_ERROR, ER_COLUMNACCESS_DENIED_ERROR (at least one column)."""
_ABSENT: Final = frozenset({1049, 1146})
"""ER_BAD_DB_ERROR, ER_NO_SUCH_TABLE."""
_NO_NAME: Final = "no table is called like this"
_COLUMN_GRANTS: Final = "SELECT DISTINCT TABLE_SCHEMA, TABLE_NAME FROM information_schema.COLUMN_PRIVILEGES"


def may_read(database: str, table: str) -> Steps[Answer]:
    """Return whether the account may read all columns of a table.

    An absent table counts as denied if the account may not read it.
    """
    try:
        yield Query(f"SELECT * FROM {_quoted(database)}.{_quoted(table)} LIMIT 0")  # noqa: S608  (names are quoted)
    except ServerError as error:
        return "denied" if error.code in _DENIED else "absent" if error.code in _ABSENT else "readable"
    return "readable"


def may_read_all(database: str | None) -> Steps[bool]:
    """Return whether the account may read every table of a database, including future ones.

    None means all databases.
    """
    return (yield from may_read(_NO_NAME if database is None else database, _NO_NAME)) != "denied"


def read_in_part(among: Collection[tuple[str, str]]) -> Steps[list[tuple[str, str]]]:
    """Return the tables of which the account may read only some columns, by column grants.

    The catalog hides the rest.
    """
    found = []
    for database, table in (yield Query(_COLUMN_GRANTS)):
        name = str(database), str(table)
        if name in among and (yield from may_read(*name)) == "denied":
            found.append(name)
    return found


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
