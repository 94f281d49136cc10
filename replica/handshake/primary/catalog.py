"""Catalog of the server over a logged-in connection, and the account's privileges on tables.

`read_tables` returns the definitions of the selected tables. `may_read` and `may_read_all` distinguish a table
that the account may not read from one that does not exist. All are generators of steps, without I/O.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from replica.errors import SchemaError, ServerError
from replica.handshake.registration import MAX_CATALOG_BYTES, Query, Steps
from replica.schema.catalog import Selection, columns_query, doubtful_labels, keys_query, read_catalog
from replica.schema.text.naming import quoted_table

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from replica.schema.table import TableSchema


def read_tables(
    selection: Sequence[Selection] = (), *, absent: bool = False
) -> Steps[dict[tuple[str, str], TableSchema]]:
    """Return the selected tables by (database, table).

    Args:
        selection: pairs of a database and a table, or of a database and None for all its tables.
        absent: whether tables that are selected by name may be absent.

    Raises:
        SchemaError: a table that is selected by name does not exist, or the account may not see it.
    """
    columns = yield Query(*columns_query(selection), MAX_CATALOG_BYTES)
    keys = yield Query(*keys_query(selection), MAX_CATALOG_BYTES)
    tables = read_catalog(columns, keys)
    for name, schema in tables.items():
        read = list(schema.columns)
        for doubtful in doubtful_labels(schema):
            read[doubtful.column] = doubtful.answered((yield Query(doubtful.query())))
        tables[name] = replace(schema, columns=tuple(read))
    # The server returns names in its own spelling, which differs from the selection with lower_case_table_names.
    found = {(database.lower(), table.lower()) for database, table in tables}
    missing = [f"{d}.{t}" for d, t in selection if t is not None and (d.lower(), t.lower()) not in found]
    if missing and not absent:
        does_not = "does not exist" if len(missing) == 1 else "do not exist"
        raise SchemaError(
            f"{', '.join(missing)} {does_not} on the server, or the account may not see it.",
            hint="Check the spelling, and GRANT SELECT on it to the account.",
        )
    return tables


# information_schema leaves out tables on which the account has no privilege, so a hidden table looks like an absent
# one. A SELECT distinguishes them: it is denied, or the table does not exist. A whole database is tested with a table
# name that does not exist. So the server itself evaluates roles and grants with wildcards.
#
# Source: measured on 10.5, 10.11 and 11.8 (tests/integration/commands/test_check.py); the numbers are those of
# the server's sql/share/errmsg-utf8.txt.


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
        yield Query(f"SELECT * FROM {quoted_table((database, table))} LIMIT 0")  # noqa: S608  (names are quoted)
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

    The catalog hides the other columns.
    """
    found = []
    for database, table in (yield Query(_COLUMN_GRANTS)):
        name = str(database), str(table)
        if name in among and (yield from may_read(*name)) == "denied":
            found.append(name)
    return found
