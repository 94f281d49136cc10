"""Catalog of the server for a snapshot: list of the selected tables, and definition of one table with its key.

`list_tables` fetches names page by page and keeps only the names in memory. `describe_table` returns a table's current
definition. Views and sequences have no rows to read, so both functions skip them. `describe_table` refuses tables
without a usable key and engines without consistent snapshots, unless such tables may be read whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.errors import PrerequisiteError, SchemaError
from replica.handshake.primary.catalog import may_read, read_tables
from replica.rows.types.keys import is_ordered
from replica.rows.types.kinds import KeyForm
from replica.rows.types.types import type_of
from replica.schema.catalog import SYSTEM_DATABASES, omits_generated, without_generated
from replica.schema.text.naming import column_key
from replica.snapshot.check.facts import ask_indexes
from replica.snapshot.errors import MAY_MEND, denied
from replica.snapshot.rows.chunk import ReadTable
from replica.snapshot.rows.row_block import WHOLE_ROW, TableKey

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from replica.handshake.registration import Rows
    from replica.schema.known_tables import TableName
    from replica.schema.table import ColumnSchema, TableSchema
    from replica.snapshot.check.facts import TableIndex
    from replica.snapshot.connection.connection import QueryConnection
# `choose_key` returns the primary key, or else the best unique index over NOT NULL columns, or None. An index is no
# key if it is a prefix index, ignored, or not a BTREE. The same holds for an index with FLOAT or DOUBLE columns, or
# with columns that the definition does not show.


PRIMARY: Final = "PRIMARY"
_BTREE: Final = "BTREE"
_LONG: Final = frozenset({KeyForm.BYTES, KeyForm.TEXT})


def choose_key(schema: TableSchema, indexes: Sequence[TableIndex]) -> TableKey | None:
    """Return the key by which a table is read; None if the table has no usable key.

    Unique indexes rank by these criteria, in this order: ordered keys first, fewer columns first, purely numeric keys
    first, then by name.
    """
    keys = [key for key in (_key(schema, index) for index in indexes) if key is not None]
    return min(keys, key=lambda key: _rank(schema, key), default=None)


def _key(schema: TableSchema, index: TableIndex) -> TableKey | None:
    if not index.unique or index.ignored or index.kind != _BTREE:
        return None
    numbers = {column_key(column.name): number for number, column in enumerate(schema.columns)}
    columns: list[int] = []
    for part in index.parts:
        number = numbers.get(column_key(part.column))
        if number is None or part.prefix:
            return None
        column = schema.columns[number]
        if column.period == "end" and columns and part is index.parts[-1]:
            continue  # the server appends this column to each unique key; all current rows have the same value
        if column.nullable or type_of(column).key is None:
            return None
        columns.append(number)
    # An index scan returns rows in the order of all columns only if all columns have the same sort direction.
    one_way = len({part.descending for part in index.parts}) == 1
    ordered = one_way and all(_is_ordered(schema.columns[number]) for number in columns)
    return TableKey(index.name, tuple(columns), ordered)


def _is_ordered(column: ColumnSchema) -> bool:
    form = type_of(column).key
    return form is not None and is_ordered(form, column)


def _rank(schema: TableSchema, key: TableKey) -> tuple[bool, bool, int, bool, str]:
    long = any(type_of(schema.columns[number]).key in _LONG for number in key.columns)
    return key.index != PRIMARY, not key.ordered, len(key.columns), long, key.index


PIECE: Final = 5_000
"""Maximum names per result page, some hundred KB. The SQL statements below repeat the number."""

ATTEMPTS: Final = 2
"""Attempts to find a key. A statement may change columns and indexes between the two catalog queries."""
VERSIONED_ENGINES: Final = ("InnoDB",)
"""Engines with consistent snapshots."""
LOCKING_ENGINES: Final = ("Aria", "MyISAM")
"""Engines that lock the table during a statement, so that one SELECT is consistent. A writer holds its lock until its
change is in the binlog. Therefore, the binlog contains every change that the SELECT sees.
"""

_DATABASES: Final = "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA"
_TABLES: Final = (
    "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s "
    "AND TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') AND BINARY TABLE_NAME > %s "
    "ORDER BY BINARY TABLE_NAME LIMIT 5000"
)
_ROWS: Final = _TABLES.replace("TABLE_NAME FROM", "TABLE_NAME, TABLE_ROWS FROM", 1)
_TABLE_ROWS: Final = "SELECT TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
_TABLE: Final = (
    "SELECT TABLE_TYPE, ENGINE, VERSION(), TABLE_COMMENT FROM information_schema.TABLES "
    "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
)


def list_tables(connection: QueryConnection, wanted: Callable[[TableName], bool]) -> list[TableName]:
    """Return the names of the tables that `wanted` accepts, in ascending order of their UTF-8 bytes."""
    found: list[TableName] = []
    for (database,) in connection.rows(_DATABASES):
        if database is None or database.lower() in SYSTEM_DATABASES:
            continue
        last = ""
        while True:
            names = [name for (name,) in connection.rows(_TABLES, (database, last)) if name is not None]
            found += [name for table in names if wanted(name := (database, table))]
            if len(names) < PIECE:
                break
            last = names[-1]
    return sorted(found)


def describe_table(connection: QueryConnection, name: TableName, *, unkeyed: bool = False) -> ReadTable | None:
    """Return the current definition of a table; None if no table of this name has rows to read.

    `unkeyed` also accepts a table that can only be read whole; its key is then WHOLE_ROW.

    Raises:
        AuthenticationError: The account may not read the table.
        PrerequisiteError: The table cannot be read in consistent chunks.
        SchemaError: The definition is not understood.
    """
    facts = connection.rows(_TABLE, name) or _hidden(connection, name)
    if not facts or facts[0][0] not in ("BASE TABLE", "SYSTEM VERSIONED"):
        return None
    _, engine, version, fault = facts[0]
    locking = unkeyed and engine in LOCKING_ENGINES
    _refuse_engine(name, engine, fault, locking=locking)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            schema = connection.run(read_tables([name])).get(name)
        except SchemaError:
            if not connection.rows(_TABLE, name):
                return None  # dropped between the queries
            raise
        if schema is None:
            return None
        read, defined = _image_schema(schema, version or "")
        if locking:
            return ReadTable(read, WHOLE_ROW, locks=True, defined=defined)
        key = choose_key(read, connection.run(ask_indexes([name])).get(name, ()))
        if key is not None:
            return ReadTable(read, key, defined=defined)
        if unkeyed and attempt == ATTEMPTS:
            return ReadTable(read, WHOLE_ROW, defined=defined)
    raise PrerequisiteError(
        f"table {'.'.join(name)} has no key that its rows can be read by: neither a primary key nor a unique index "
        "over whole columns that are NOT NULL and neither FLOAT nor DOUBLE.",
        hint="Give it one, leave it out of the query's tables, or read it as a whole with snapshotUnkeyed=whole.",
    )


def _refuse_engine(name: TableName, engine: str | None, fault: str | None, *, locking: bool) -> None:
    """Refuse a table that the server cannot open, or whose engine has no consistent snapshots."""
    if engine is None:
        raise PrerequisiteError(
            f"table {'.'.join(name)} cannot be read: the server cannot open it: {fault or 'it shows no engine'}",
            hint=MAY_MEND,
        )
    if engine not in VERSIONED_ENGINES and not locking:
        raise PrerequisiteError(
            f"table {'.'.join(name)} cannot be read as of one position: its engine {engine} has no consistent "
            "snapshots.",
            hint="Leave it out of the query's tables, or ALTER it to InnoDB; MyISAM and Aria can be read as a whole "
            "(snapshotUnkeyed=whole).",
        )


def _hidden(connection: QueryConnection, name: TableName) -> Rows:
    """Return no rows if a table does not exist; raise an error if the catalog only hides the table from the account."""
    if connection.run(may_read(*name)) == "denied":
        raise denied(name, "the account has no SELECT on it, or not any more.")
    return []


def _image_schema(schema: TableSchema, version: str) -> tuple[TableSchema, TableSchema | None]:
    """Return the schema of a table's row images on this server version, and the full schema if it differs, else
    None.
    """
    if not any(column.computed for column in schema.columns):
        return schema, None
    return (without_generated(schema), schema) if omits_generated(version) else (schema, None)


def count_rows(connection: QueryConnection, names: Collection[TableName]) -> int:
    """Return the server's estimate of the total number of rows of these tables."""
    total = 0
    for database in {name[0] for name in names}:
        last = ""
        while True:
            rows = connection.rows(_ROWS, (database, last))
            total += sum(int(count or 0) for table, count in rows if (database, table) in names)
            if len(rows) < PIECE:
                break
            last = rows[-1][0] or ""
    return total


def count_table_rows(connection: QueryConnection, name: TableName) -> int:
    """Return the server's estimate of the number of rows of a table."""
    rows = connection.rows(_TABLE_ROWS, name)
    return int(rows[0][0] or 0) if rows else 0
