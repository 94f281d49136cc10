"""Classification of read errors: transient, caused by a changed definition, or limited to one table.

`passes`, `needs_new_definition` and `concerns_only_table` classify an error, and `named` adds the table's name to it.
An error that no function recognises concerns more than one table and ends the snapshot.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Final

from replica.errors import (
    AuthenticationError,
    DisconnectedError,
    PrerequisiteError,
    ReplicaError,
    SchemaError,
    ServerError,
    UnsupportedColumnError,
)
from replica.schema.patterns import table_text

if TYPE_CHECKING:
    from replica.schema.known_tables import TableName

TRANSIENT: Final = {
    1040: "the server has no free connection",
    1205: "a wait for a lock timed out",
    1213: "a deadlock occurred",
    1290: "the server is read-only or starting",
    1317: "the statement was killed",
    1053: "the server is shutting down",
    1927: "the connection was killed",
    1969: "the statement took too long",
}
"""Transient server errors and what each waits for (include/mysqld_error.h)."""
HELD: Final = frozenset({1205, 1213, 1317, 1969})
"""Transient errors that concern one table if they persist: a client holds the table, or ends its readers."""
REDEFINED: Final = frozenset({1412, 1054, 1146, 1176, 1072, 1932})
"""Errors after which the definition is fetched again, because the table differs from the catalog.

1412: ER_TABLE_DEF_CHANGED. 1054: unknown column. 1146: unknown table. 1176: unknown index. 1072: unknown key column.
1932: table missing in the engine.
"""
NO_SELECT: Final = 1142
"""ER_TABLEACCESS_DENIED_ERROR."""
DENIED: Final = frozenset({1044, NO_SELECT, 1143})
"""The account may not read the database, the table, or some column of it."""
BROKEN: Final = frozenset(
    {
        *(1016, 1017, 1024, 1030, 1033, 1034, 1035, 1194, 1195, 1286, 1296, 1429, 1430, 1431, 1459, 1707, 1712, 1812),
        *(1814, 1877, 1932),
    }
)
"""Errors after which the server cannot read the table's files: missing, damaged or encrypted files, or a missing
engine.

1016, 1017 and 1024: a file. 1030 and 1296: error of the engine. 1033: the definition. 1034, 1035 and 1712: an index.
1194 and 1195: table marked as crashed. 1286: unknown engine. 1429 to 1431: the remote server that holds the rows. 1459
and 1707: table of an older server. 1812 and 1814: missing or discarded tablespace. 1877: the data. 1932: table unknown
to the engine.
"""
MAY_MEND: Final = "Run CHECK TABLE to see the damage; REPAIR TABLE or a backup may mend it."
"""Hint for a table that the server cannot open."""
SAME_ERROR: Final = 20
"""Transient failures of a table before the error is reported; the wait grows with each failure."""
SAME_MISFIT: Final = 4
"""Attempts if rows do not fit the definition read before them. Either DDL ran between the two reads, or the definition
is wrong.
"""


def redefined(error: Exception) -> bool:
    """Return True if rows did not fit the definition, which may have changed."""
    return isinstance(error, SchemaError) and not isinstance(error, UnsupportedColumnError)


def passes(error: BaseException) -> bool:
    """Return True if an error is transient: a lost connection or a temporary server error."""
    return isinstance(error, DisconnectedError) or (isinstance(error, ServerError) and error.code in TRANSIENT)


def needs_new_definition(error: ReplicaError, count: int) -> bool:
    """Return True if the table's definition must be read again after the `count`-th such error."""
    if redefined(error):
        return count < SAME_MISFIT
    return isinstance(error, ServerError) and error.code in REDEFINED and count < SAME_ERROR


def concerns_only_table(error: ReplicaError, count: int) -> bool:
    """Return True if the `count`-th such error is permanent and concerns only this table."""
    if isinstance(error, ServerError):
        if error.code in HELD:
            return count >= SAME_ERROR
        concerns_table = error.code in DENIED | BROKEN | REDEFINED
    else:
        concerns_table = isinstance(error, (PrerequisiteError, SchemaError))
    return concerns_table and not needs_new_definition(error, count)


def named(error: ReplicaError, table: TableName) -> ReplicaError:
    """Return the error with the table's name in its message."""
    name = table_text(table)
    if name in error.message:
        return error
    if isinstance(error, ServerError) and error.code in DENIED:
        return denied(table, error.message, error.code, error.sqlstate)
    renamed = copy.copy(error)
    renamed.message = f"while reading table {name}: {error.message}"
    if isinstance(error, ServerError) and error.code in BROKEN:
        renamed.hint = MAY_MEND
    return renamed


def denied(table: TableName, why: str, code: int = NO_SELECT, sqlstate: str = "42000") -> AuthenticationError:
    """Return the error for a table that the account may not read.

    `why` is the reason in the message. `code` and `sqlstate` are those of the server's error.
    """
    return AuthenticationError(
        f"table {table_text(table)} cannot be read: {why}",
        code=code,
        sqlstate=sqlstate,
        hint="GRANT SELECT on it to the account, or leave it out of the query's tables.",
    )
