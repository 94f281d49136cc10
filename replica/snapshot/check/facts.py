"""Facts about a server that decide how its tables can be read, queried as steps over one connection.

`ask_table_facts` returns `TableFacts` for the tables that match the patterns and the filter. The number of queries does
not depend on the number of tables, with two exceptions. In a database that the account may not read whole, the SELECT
privilege is checked table by table. Foreign keys are also read table by table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from replica.errors import ServerError
from replica.handshake.primary.catalog import may_read, may_read_all, read_tables
from replica.handshake.primary.progress import ask_primary
from replica.handshake.registration import MAX_CATALOG_BYTES, Query, by_name, string_list
from replica.schema.catalog import SYSTEM_DATABASES
from replica.schema.patterns import all_of, matcher, table_pattern
from replica.schema.text.naming import quoted_table, table_key

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from replica.handshake.primary.catalog import Answer
    from replica.handshake.registration import Rows, Steps
    from replica.schema.catalog import Selection
    from replica.schema.patterns import TablePattern
    from replica.schema.table import TableSchema

    TableName = tuple[str, str]
# `indexes_query` builds the SQL, `read_indexes` parses its rows, and `ask_indexes` does both as steps. The query
# selects `s.*` because 10.5 has no column IGNORED. Other versions have it as the last column.


_INDEXES: Final = """\
SELECT s.*
  FROM information_schema.STATISTICS s
 WHERE {condition}
 ORDER BY s.TABLE_SCHEMA, s.TABLE_NAME, s.INDEX_NAME, s.SEQ_IN_INDEX"""

# Column numbers in the result, the same in 10.5 to 11.8.
_DATABASE, _TABLE, _NON_UNIQUE, _NAME, _COLUMN, _ORDER, _PREFIX, _TYPE, _IGNORED = 1, 2, 3, 5, 7, 8, 10, 13, 16


class IndexPart(NamedTuple):
    """Column of an index. `prefix`: only the first bytes are indexed. `descending`: the sort order."""

    column: str
    prefix: bool
    descending: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TableIndex:
    """One index. `kind` is BTREE, HASH, RTREE or FULLTEXT; the optimizer does not use an `ignored` index."""

    name: str
    unique: bool
    kind: str
    ignored: bool
    parts: tuple[IndexPart, ...]


def indexes_query(selection: Sequence[Selection]) -> tuple[str, tuple[str, ...]]:
    """Return SQL and arguments (%s) that list the index columns of the selected tables."""
    terms = ["s.TABLE_SCHEMA = %s" + (" AND s.TABLE_NAME = %s" if table else "") for _, table in selection]
    condition = " OR ".join(f"({term})" for term in terms) or "FALSE"
    return _INDEXES.format(condition=condition), tuple(name for pair in selection for name in pair if name)


def read_indexes(rows: Iterable[Sequence[Any]]) -> dict[tuple[str, str], tuple[TableIndex, ...]]:
    """Return the indexes in the rows of the query, by (database, table)."""
    found: dict[tuple[str, str], dict[str, TableIndex]] = {}
    for row in rows:
        indexes = found.setdefault((row[_DATABASE], row[_TABLE]), {})
        name = row[_NAME]
        part = IndexPart(row[_COLUMN], row[_PREFIX] is not None, row[_ORDER] == "D")
        before = indexes[name].parts if name in indexes else ()
        indexes[name] = TableIndex(
            name=name,
            unique=int(row[_NON_UNIQUE]) == 0,
            kind=row[_TYPE],
            ignored=len(row) > _IGNORED and row[_IGNORED] == "YES",
            parts=(*before, part),
        )
    return {table: tuple(indexes.values()) for table, indexes in found.items()}


def ask_indexes(selection: Sequence[Selection]) -> Steps[dict[tuple[str, str], tuple[TableIndex, ...]]]:
    """Ask for the indexes of tables, by (database, table)."""
    return read_indexes((yield Query(*indexes_query(selection), MAX_CATALOG_BYTES)) if selection else ())


# InnoDB applies foreign key cascades without logging them. The binlog has the DELETE of the parent row, but only a
# TABLE_MAP event without rows for the child table (measured on 10.5, 10.11 and 11.8). `read_cascades` parses SHOW
# CREATE TABLE, which needs only SELECT. information_schema shows constraints only to accounts with more privileges.


QUOTED: Final = "SET SESSION sql_mode = '', sql_quote_show_create = 1"
"""Session settings that `read_cascades` needs to parse the output of SHOW CREATE TABLE."""

_QUOTED_NAME: Final = r"`((?:[^`]|``)*)`"

_COLUMNS: Final = r"\((`(?:[^`]|``)*`(?:, `(?:[^`]|``)*`)*)\)"

# 10.11 doubles backquotes in the constraint's name; 10.5 and 11.8 do not. All versions double them in other names.
_CONSTRAINT: Final = re.compile(
    rf"^  CONSTRAINT `([^\n]*?)` FOREIGN KEY {_COLUMNS} REFERENCES (?:{_QUOTED_NAME}\.)?"
    rf"{_QUOTED_NAME} {_COLUMNS}([^\n]*?),?$",
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
    try:
        rows = yield Query(f"SHOW CREATE TABLE {quoted_table(table)}")
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
            yield Cascade(_plain(constraint), owner, actions, _column_names(columns), _column_names(parent_columns))


def _column_names(columns: str) -> tuple[str, ...]:
    return tuple(_plain(name) for name in re.findall(_QUOTED_NAME, columns))


def _plain(name: str) -> str:
    return name.replace("``", "`")


INNODB: Final = "InnoDB"
MOST_SHOWN: Final = 10_000
"""Maximum number of tables whose definitions are searched for foreign keys. Each definition takes 0.25 ms plus a round
trip, so a check over a slow network still ends within seconds.
"""
FEW: Final = 100
"""Most tables that are asked for by their names. For more, their databases are asked for all tables."""
_VARIABLES: Final = (
    *("binlog_do_db", "binlog_format", "binlog_ignore_db", "binlog_row_image", "binlog_storage_engine", "log_bin"),
    *("log_slave_updates", "rpl_semi_sync_master_enabled", "rpl_semi_sync_master_wait_point", "transaction_isolation"),
    *("tx_isolation", "version", "wsrep_on"),
)
_ISOLATION: Final = "SHOW SESSION VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation')"
_REPEATABLE: Final = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"
_TABLES: Final = """\
SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE, TABLE_ROWS, DATA_LENGTH, IF(ENGINE IS NULL, TABLE_COMMENT, '')
  FROM information_schema.TABLES
 WHERE {condition}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTable:
    """Table as the catalog lists it.

    Attributes:
        type: TABLE_TYPE of information_schema.
        rows: Number of rows, estimated by the server.
        octets: Size in bytes, estimated by the server.
        fault: The server's message about a table that it cannot open.
        cascades: Foreign keys that change the table's rows; None if unknown.
    """

    name: tuple[str, str]
    type: str = "BASE TABLE"
    engine: str | None = INNODB
    rows: int = 0
    octets: int = 0
    fault: str = ""
    schema: TableSchema | None = None
    indexes: tuple[TableIndex, ...] = ()
    readable: bool = True
    cascades: tuple[Cascade, ...] | None = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """Answers of a server. `variables` holds the known global variables, with names in lower case."""

    account: str
    variables: Mapping[str, str] = field(default_factory=dict)
    isolation: str = "REPEATABLE-READ"
    """Isolation level with which a session of this account starts."""
    repeatable: bool = True
    """Whether a session can be set to REPEATABLE READ."""
    replicates_from: int = 0
    """Number of primaries from which this server currently replicates."""
    was_replica: bool = False
    """Whether the server has ever been a replica, which `gtid_slave_pos` shows."""
    expiry_s: float | None = None
    """Age in seconds after which binlog files are purged; None if files are not purged by age."""
    tables: tuple[ListedTable, ...] = ()
    """Selected tables, views and sequences that the account can see, in byte order of their names."""
    named: frozenset[tuple[str, str]] = frozenset()
    """Listed tables that a pattern selects by name."""
    unseen: tuple[tuple[tuple[str, str], Answer], ...] = ()
    """Tables that a pattern names but that the account does not see in the catalog, each with the reason."""
    hiding: tuple[str, ...] = ()
    """Patterns that may match tables that the account does not see for lack of a privilege."""


def ask_table_facts(
    patterns: Sequence[str],
    wants: Callable[[str, str], bool],
    catalog: Mapping[TableName, TableSchema] | None = None,
) -> Steps[TableFacts]:
    """Ask for the facts about the tables that match `patterns` and that `wants` accepts.

    The session is left at REPEATABLE READ with an empty sql_mode.

    Args:
        patterns: Patterns of table names, such as `shop.*`.
        wants: Returns whether (database, table) is selected.
        catalog: Schemas of the tables; None to query them.
    """
    account = (yield Query("SELECT CURRENT_USER()"))[0][0] or ""
    isolation = _isolation((yield Query(_ISOLATION)))
    yield Query(_REPEATABLE)
    repeatable = _isolation((yield Query(_ISOLATION))) == "REPEATABLE-READ"
    variables = by_name((yield Query(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({string_list(_VARIABLES)})")))
    running = by_name((yield Query("SHOW GLOBAL STATUS LIKE 'Slaves_running'")))
    slave_pos = (yield Query("SELECT @@GLOBAL.gtid_slave_pos"))[0][0]
    primary = yield from ask_primary("")
    listed = yield from _list_tables(patterns, wants)
    databases = sorted({one.name[0] for one in listed})
    selection = _selection(listed, databases)
    if catalog is None:
        catalog = (yield from read_tables(selection, absent=True)) if selection else {}
    indexes = yield from ask_indexes(selection)
    readable_databases: dict[str, bool] = {}
    for database in databases:
        readable_databases[database] = yield from may_read_all(database)
    yield Query(QUOTED)
    tables, shown = [], 0
    for one in listed:
        readable = readable_databases[one.name[0]] or (yield from may_read(*one.name)) != "denied"
        cascades: tuple[Cascade, ...] | None = ()
        if readable and one.engine == INNODB and one.type != "SEQUENCE":
            shown += 1
            cascades = (yield from ask_cascades(one.name)) if shown <= MOST_SHOWN else None
        schema, usable = catalog.get(one.name), indexes.get(one.name, ())
        tables.append(replace(one, schema=schema, indexes=usable, readable=readable, cascades=cascades))
    parsed = map(table_pattern, patterns)
    wanted = [pattern for pattern in parsed if pattern.name is None or wants(*pattern.name)]
    named, unseen = yield from _named(wanted, listed)
    return TableFacts(
        account=account,
        variables=variables,
        isolation=isolation,
        repeatable=repeatable,
        replicates_from=int(running.get("slaves_running") or 0),
        was_replica=bool(slave_pos),
        expiry_s=primary.expiry_s,
        tables=tuple(tables),
        named=named,
        unseen=unseen,
        hiding=(yield from _hiding(wanted, readable_databases)),
    )


def _selection(listed: Sequence[ListedTable], databases: Sequence[str]) -> list[Selection]:
    """Return the listed tables, or their databases if the tables are many."""
    return [(database, None) for database in databases] if len(listed) > FEW else [one.name for one in listed]


def _list_tables(patterns: Sequence[str], wants: Callable[[str, str], bool]) -> Steps[list[ListedTable]]:
    databases = matcher(patterns).databases
    arguments: tuple[str, ...] = ()
    names = [pattern.name for pattern in map(table_pattern, patterns)]
    if len(names) <= FEW and None not in names:
        condition = " OR ".join(["TABLE_SCHEMA = %s AND TABLE_NAME = %s"] * len(names)) or "FALSE"
        arguments = tuple(part for name in names if name is not None for part in name)
    elif None in databases:
        condition = f"TABLE_SCHEMA NOT IN ({string_list(SYSTEM_DATABASES)})"
    else:
        condition, arguments = (
            f"TABLE_SCHEMA IN ({', '.join(['%s'] * len(databases))})",
            tuple(sorted(filter(None, databases))),
        )
    rows = yield Query(_TABLES.format(condition=condition), arguments, MAX_CATALOG_BYTES)
    found = [
        ListedTable(
            name=(database or "", table or ""),
            type=kind or "",
            engine=engine,
            rows=int(count or 0),
            octets=int(octets or 0),
            fault=fault or "",
        )
        for database, table, kind, engine, count, octets, fault in rows
        if wants(database or "", table or "")
    ]
    return sorted(found, key=lambda one: (one.name[0].encode(), one.name[1].encode()))


def _named(
    patterns: Sequence[TablePattern], listed: Sequence[ListedTable]
) -> Steps[tuple[frozenset[TableName], tuple[tuple[TableName, Answer], ...]]]:
    """Return the listed tables that a pattern names, and the named tables that are not listed."""
    # With lower_case_table_names, the server's spelling of a name may differ from the pattern's.
    seen = {one.name for one in listed}
    lowered = {table_key(name, lower_case_table_names=True): name for name in seen}
    named, unseen = set(), []
    for name in (pattern.name for pattern in patterns if pattern.name is not None):
        found = name if name in seen else lowered.get(table_key(name, lower_case_table_names=True))
        if found is not None:
            named.add(found)
        else:
            unseen.append((name, (yield from may_read(*name))))
    return frozenset(named), tuple(unseen)


def _hiding(patterns: Sequence[TablePattern], readable_databases: Mapping[str, bool]) -> Steps[tuple[str, ...]]:
    """Return the patterns that may match tables hidden from the account, as `database.*` or `*.*`."""
    found: list[str] = []
    for database in (one.one_database for one in patterns if one.name is None):
        known = None if database is None else readable_databases.get(database)
        if known is None:
            known = yield from may_read_all(database)
        if not known:
            found.append("*.*" if database is None else all_of(database))
    return tuple(dict.fromkeys(found))


def _isolation(rows: Rows) -> str:
    return next((value for _, value in rows if value), "")
