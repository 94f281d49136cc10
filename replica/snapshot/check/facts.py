"""Query everything that decides how tables can be read, as steps over one connection.

`ask_table_facts` returns `TableFacts` for the tables that match the patterns and the filter. The number of queries does
not depend on the number of tables, with two exceptions. In a database that the account may not read whole, the SELECT
privilege is checked table by table. Foreign keys are also read table by table.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from replica.handshake.primary.catalog import read_tables
from replica.handshake.primary.privileges import may_read, may_read_all
from replica.handshake.primary.progress import ask_primary
from replica.handshake.registration import MAX_CATALOG_BYTES, Query
from replica.schema.catalog import SYSTEM_DATABASES
from replica.schema.patterns import all_of, matcher, table_pattern
from replica.schema.text.naming import table_key
from replica.snapshot.check.cascades import QUOTED, Cascade, ask_cascades
from replica.snapshot.check.indexes import TableIndex, ask_indexes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from replica.handshake.primary.privileges import Answer
    from replica.handshake.registration import Rows, Steps
    from replica.schema.patterns import TablePattern
    from replica.schema.table import TableSchema

    TableName = tuple[str, str]

INNODB: Final = "InnoDB"
MOST_SHOWN: Final = 10_000
"""Maximum number of tables whose definitions are searched for foreign keys. Each takes a quarter of a millisecond plus
a round trip, so a check over a slow line still ends within seconds.
"""

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
    """Age in seconds after which binlog files are purged; None if the age does not matter."""
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

    The session is left at REPEATABLE READ with an empty sql_mode. `catalog` holds the schemas if the caller has read
    them.
    """
    account = (yield Query("SELECT CURRENT_USER()"))[0][0] or ""
    isolation = _isolation((yield Query(_ISOLATION)))
    yield Query(_REPEATABLE)
    repeatable = _isolation((yield Query(_ISOLATION))) == "REPEATABLE-READ"
    variables = _pairs((yield Query(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({_listed(_VARIABLES)})")))
    running = _pairs((yield Query("SHOW GLOBAL STATUS LIKE 'Slaves_running'")))
    slave_pos = (yield Query("SELECT @@GLOBAL.gtid_slave_pos"))[0][0]
    primary = yield from ask_primary("")
    listed = yield from _list_tables(patterns, wants)
    databases = sorted({one.name[0] for one in listed})
    if catalog is None:
        catalog = (yield from read_tables([(database, None) for database in databases])) if databases else {}
    indexes = yield from ask_indexes(databases)
    whole: dict[str, bool] = {}
    for database in databases:
        whole[database] = yield from may_read_all(database)
    yield Query(QUOTED)
    tables, shown = [], 0
    for one in listed:
        readable = whole[one.name[0]] or (yield from may_read(*one.name)) != "denied"
        cascades: tuple[Cascade, ...] | None = ()
        if readable and one.engine == INNODB and one.type != "SEQUENCE":
            shown += 1
            cascades = (yield from ask_cascades(one.name)) if shown <= MOST_SHOWN else None
        schema, usable = catalog.get(one.name), indexes.get(one.name, ())
        tables.append(replace(one, schema=schema, indexes=usable, readable=readable, cascades=cascades))
    asked = map(table_pattern, patterns)
    wanted = [pattern for pattern in asked if pattern.name is None or wants(*pattern.name)]
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
        hiding=(yield from _hiding(wanted, whole)),
    )


def _list_tables(patterns: Sequence[str], wants: Callable[[str, str], bool]) -> Steps[list[ListedTable]]:
    databases = matcher(patterns).databases
    arguments: tuple[str, ...] = ()
    if None in databases:
        condition = f"TABLE_SCHEMA NOT IN ({_listed(SYSTEM_DATABASES)})"
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
        there = name if name in seen else lowered.get(table_key(name, lower_case_table_names=True))
        if there is not None:
            named.add(there)
        else:
            unseen.append((name, (yield from may_read(*name))))
    return frozenset(named), tuple(unseen)


def _hiding(patterns: Sequence[TablePattern], whole: Mapping[str, bool]) -> Steps[tuple[str, ...]]:
    """Return the patterns that may hide tables, as `database.*` or `*.*`."""
    found: list[str] = []
    for database in (one.one_database for one in patterns if one.name is None):
        known = None if database is None else whole.get(database)
        if known is None:
            known = yield from may_read_all(database)
        if not known:
            found.append("*.*" if database is None else all_of(database))
    return tuple(dict.fromkeys(found))


def _isolation(rows: Rows) -> str:
    return next((value for _, value in rows if value), "")


def _pairs(rows: Rows) -> dict[str, str]:
    return {name.lower(): value for name, value in rows if name is not None and value is not None}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
