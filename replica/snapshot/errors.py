"""The errors that reading a table meets: which pass, which ask for its definition again, which are about it alone.

In: an error, of a server or of ours. Out: what it means for the table that was read, and the error with its name. An
error that is not told here is about more than one table, and ends the reading of all.
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
    1040: "the server has no connection free",
    1205: "a lock was waited for",
    1213: "a deadlock was met",
    1290: "the server is read-only or starting",
    1317: "the statement was ended by someone",
    1053: "the server shuts down",
    1927: "the connection was ended by someone",
    1969: "the statement took too long",
}
"""Server errors that pass, and what is waited for then (include/mysqld_error.h)."""
HELD: Final = frozenset({1205, 1213, 1317, 1969})
"""Those of them that may be about one table alone, if they do not pass: someone holds it, or has its readers ended."""
REDEFINED: Final = frozenset({1412, 1054, 1146, 1176, 1072, 1932})
"""The table is another one than the catalog said: the definition is read again (1412 ER_TABLE_DEF_CHANGED, 1054 unknown
column, 1146 unknown table, 1176 unknown index, 1072 unknown key column, 1932 the table is gone in the engine)."""
NO_SELECT: Final = 1142
"""ER_TABLEACCESS_DENIED_ERROR."""
DENIED: Final = frozenset({1044, NO_SELECT, 1143})
"""The account may not read the database, the table, some column of it."""
BROKEN: Final = frozenset(
    {
        *(1016, 1017, 1024, 1030, 1033, 1034, 1035, 1194, 1195, 1286, 1296, 1429, 1430, 1431, 1459, 1707, 1712, 1812),
        *(1814, 1877, 1932),
    }
)
"""The server cannot read the table's files: they are missing, damaged or encrypted, or their engine is not there (1016,
1017 and 1024 a file, 1030 and 1296 what the engine says, 1033 the definition, 1034, 1035 and 1712 an index, 1194 and
1195 a table marked as crashed, 1286 the engine, 1429 to 1431 the server that its rows are on, 1459 and 1707 a table of
an older server, 1812 and 1814 a tablespace that is missing or was discarded, 1877 the data, 1932 a table that the
engine does not know)."""
MAY_MEND: Final = "CHECK TABLE says more of it; REPAIR TABLE or a backup may mend it."
"""What to do about such a table."""
SAME_ERROR: Final = 20
"""How often a table may fail in a way that passes, before it is said: each time is waited for longer."""
SAME_MISFIT: Final = 4
"""How often rows may not fit the definition that was read before them: a statement came in between, or it is wrong."""


def redefined(error: Exception) -> bool:
    """Tell whether rows did not fit the definition, which may be another one by now."""
    return isinstance(error, SchemaError) and not isinstance(error, UnsupportedColumnError)


def passes(error: BaseException) -> bool:
    """Tell whether an error passes by itself: no connection, or what the server says of a moment."""
    return isinstance(error, DisconnectedError) or (isinstance(error, ServerError) and error.code in TRANSIENT)


def asks_again(error: ReplicaError, count: int) -> bool:
    """Tell whether the table's definition is to be read again after an error that was met so often."""
    if redefined(error):
        return count < SAME_MISFIT
    return isinstance(error, ServerError) and error.code in REDEFINED and count < SAME_ERROR


def of_the_table(error: ReplicaError, count: int) -> bool:
    """Tell whether an error that reading a table met so often is about that table alone, and does not pass."""
    if isinstance(error, ServerError):
        if error.code in HELD:
            return count >= SAME_ERROR
        told = error.code in DENIED | BROKEN | REDEFINED
    else:
        told = isinstance(error, (PrerequisiteError, SchemaError))
    return told and not asks_again(error, count)


def named(error: ReplicaError, table: TableName) -> ReplicaError:
    """Return an error with the name of the table that was read."""
    name = table_text(table)
    if name in error.message:
        return error
    if isinstance(error, ServerError) and error.code in DENIED:
        return denied(table, error.message, error.code, error.sqlstate)
    told = copy.copy(error)
    told.message = f"while reading table {name}: {error.message}"
    if isinstance(error, ServerError) and error.code in BROKEN:
        told.hint = MAY_MEND
    return told


def denied(table: TableName, why: str, code: int = NO_SELECT, sqlstate: str = "42000") -> AuthenticationError:
    """Return the error of a table that the account may not read."""
    return AuthenticationError(
        f"table {table_text(table)} cannot be read: {why}",
        code=code,
        sqlstate=sqlstate,
        hint="GRANT SELECT on it to the account, or leave it out of the query's tables.",
    )
