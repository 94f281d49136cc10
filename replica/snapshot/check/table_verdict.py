"""Verdict on each table before the snapshot starts: its key, warnings and reasons for a refusal.

`judge_table` turns a table's facts into an `InitialVerdict` and sends no query. Every refusal comes with a fix. A
condition that cannot be determined becomes a warning, so that nothing is passed over silently.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from replica.errors import SchemaError
from replica.handshake.primary.server import grant
from replica.rows.types.types import ValuePolicy, output_column
from replica.schema.catalog import omits_generated, without_generated
from replica.schema.patterns import table_text
from replica.schema.text.naming import column_key, quoted_table
from replica.snapshot.check.catalog import LOCKING_ENGINES, choose_key
from replica.snapshot.check.facts import INNODB
from replica.snapshot.pace import MOST_UNSETTLED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from replica.schema.table import ColumnSchema, TableSchema
    from replica.snapshot.check.facts import Cascade, ListedTable, TableFacts, TableIndex
    from replica.snapshot.rows.row_block import TableKey

State = Literal["read", "refused", "left out"]

ROWS_A_SECOND: Final = 200_000.0
BYTES_A_SECOND: Final = 40.0 * (1 << 20)
"""Reading rate in bytes per second for the time estimate: half the rate of one connection on a loaded two-core machine
that also runs the server. The rows have 16 columns and 173 bytes, on MariaDB 11.8.
"""
WHOLE_WARNED: Final = 1 << 30
"""Size in bytes from which a table delivered whole causes a warning, because all of it waits on the driver's disk."""
SHOWN: Final = 5
"""Maximum number of columns that a warning names."""
_COMPRESSED: Final = "COMPRESSED"
_OPT_IN: Final = "read it as a whole (snapshotUnkeyed=whole)"
_AT_ONCE: Final = "delivered as a whole (only the server knows the order of such keys)"
_WITHOUT_VERSIONS: Final = {
    "MyISAM": "it has no consistent snapshots",
    "Aria": "it has no consistent snapshots",
    "MEMORY": "it has no consistent snapshots, and its rows are lost at a restart",
    "MRG_MyISAM": "its rows belong to other tables, and it has no consistent snapshots",
    "ARCHIVE": "it has neither consistent snapshots nor keys",
    "CSV": "it has neither consistent snapshots nor keys",
    "BLACKHOLE": "it stores no rows",
    "ROCKSDB": "it is untested",
}
_FOREIGN: Final = frozenset({"FEDERATED", "CONNECT", "SPIDER", "SPHINX", "S3", "OQGRAPH"})
"""Engines whose rows belong to another server, a file or a service."""

_ROWS_ELSEWHERE: Final = frozenset({"MRG_MyISAM", "BLACKHOLE"})
"""Engines whose tables store no rows, or show the rows of other tables. The binlog logs changes of such rows under the
names of the other tables.
"""


class Reason(NamedTuple):
    """Reason for a refusal, or a warning. `check` is a stable identifier for programs."""

    check: str
    what: str
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialVerdict:
    """Verdict on one table.

    Attributes:
        state: "left out" is for sequences; the stream still delivers the changes of a sequence.
        rows: Number of rows, estimated by the server.
        octets: Size in bytes, estimated by the server.
        seconds: Estimated reading time.
        without: Columns that are not read.
    """

    name: tuple[str, str]
    state: State
    key: TableKey | None = None
    key_columns: tuple[str, ...] = ()
    rows: int = 0
    octets: int = 0
    seconds: float = 0.0
    reasons: tuple[Reason, ...] = ()
    warnings: tuple[Reason, ...] = ()
    without: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """Table name for display."""
        return table_text(self.name)


def judge_table(table: ListedTable, facts: TableFacts, *, unkeyed: bool = False) -> InitialVerdict:
    """Return the verdict on one listed table; `unkeyed` accepts tables that can only be read whole."""
    if table.type == "SEQUENCE" and table.name not in facts.named:
        what = "a sequence: its one row has no key; the stream delivers its changes, but not its present row"
        return InitialVerdict(name=table.name, state="left out", warnings=(Reason("sequence", what),))
    schema, without = table.schema, tuple[str, ...]()
    if schema is not None and omits_generated(facts.variables.get("version", "")):
        schema, without = without_generated(schema), _generated(table)
    key = choose_key(schema, table.indexes) if schema is not None else None
    if unkeyed and table.engine in LOCKING_ENGINES:
        key = None
    reasons = tuple(_refusals(table, facts, key, unkeyed=unkeyed))
    columns = () if key is None or schema is None else tuple(schema.columns[i].name for i in key.columns)
    return InitialVerdict(
        name=table.name,
        state="refused" if reasons else "read",
        key=key,
        key_columns=columns,
        rows=table.rows,
        octets=table.octets,
        seconds=estimate(table.rows, table.octets),
        reasons=reasons,
        warnings=() if reasons else tuple(_warnings(table, facts, key, without)),
        without=without,
    )


def has_images_before(facts: TableFacts) -> bool:
    """Return True if the server logs full before images, with which every change can be undone."""
    return facts.variables.get("binlog_row_image") in ("FULL", "FULL_NODUP")


def estimate(rows: int, octets: int) -> float:
    """Return the estimated reading time in seconds."""
    return max(rows / ROWS_A_SECOND, octets / BYTES_A_SECOND)


def _refusals(table: ListedTable, facts: TableFacts, key: TableKey | None, *, unkeyed: bool) -> Iterator[Reason]:
    exclude = f"leave it out (excludeTables={table_text(table.name)})"
    if table.type == "SEQUENCE":
        yield Reason("sequence", "it is a sequence, whose one row has no key", exclude)
        return
    if table.type not in ("BASE TABLE", "SYSTEM VERSIONED"):
        yield Reason(
            "view", f"it is a {table.type}, which has no rows of its own", "name the tables that it selects from"
        )
        return
    if table.fault or table.engine is None:
        what = f"the server cannot open it: {table.fault or 'it shows no engine'}"
        yield Reason("broken", what, f"CHECK TABLE {quoted_table(table.name)}; or {exclude}")
        return
    if not table.readable:
        what = f"the account {facts.account} has no SELECT on it, or not on all of its columns"
        yield Reason("select", what, grant("SELECT", facts.account, on=quoted_table(table.name)))
        return  # without SELECT the catalog hides all other facts
    yield from _unreadable(table, key, exclude, unkeyed=unkeyed)
    if table.type == "SYSTEM VERSIONED":
        yield from _versioned(table, facts, exclude)
    yield from _computed(table, facts, exclude)
    if _filtered(table.name[0], facts):
        what = f"binlog_do_db or binlog_ignore_db keeps the changes of {table.name[0]} out of the binlog"
        yield Reason("filter", what, "remove both from the server's configuration file and restart it")
    if table.schema is None:
        yield Reason("columns", "the catalog does not list its columns", f"see SHOW CREATE TABLE; or {exclude}")
    else:
        yield from _undecodable(table.schema, exclude)


def _unreadable(table: ListedTable, key: TableKey | None, exclude: str, *, unkeyed: bool) -> Iterator[Reason]:
    """Refuse tables that cannot be read in chunks by a key and cannot be read whole."""
    if table.engine != INNODB and not (unkeyed and table.engine in LOCKING_ENGINES):
        yield _engine(table, exclude)
        if key is None and table.engine in LOCKING_ENGINES:  # after an ALTER to InnoDB, this would be the next refusal
            yield _no_key(table)
    elif key is None and not unkeyed:
        yield _no_key(table)
    elif key is None:
        yield from _compressed(table, exclude)


def _versioned(table: ListedTable, facts: TableFacts, exclude: str) -> Iterator[Reason]:
    """Refuse system-versioned tables whose row images do not show the end of the period.

    History rows have the keys of current rows, so only the period's end distinguishes them.
    """
    columns = () if table.schema is None else table.schema.columns
    if any(column.period and column.data_type != "timestamp" for column in columns):
        yield Reason("versioned", "it is system-versioned by transactions (its period has numbers, not times)", exclude)
    image = facts.variables.get("binlog_row_image")
    if image != "FULL":
        what = f"it is system-versioned, and row images leave out columns while binlog_row_image is {image}"
        yield Reason("versioned", what, f"SET GLOBAL binlog_row_image = 'FULL'; or {exclude}")


def _computed(table: ListedTable, facts: TableFacts, exclude: str) -> Iterator[Reason]:
    """Refuse a table with generated columns unless binlog_row_image is FULL: its row images omit these columns."""
    image, names = facts.variables.get("binlog_row_image"), _generated(table)
    if names and image != "FULL":
        what = f"{names[0]} is a generated column, which row images leave out while binlog_row_image is {image}"
        yield Reason("computed", what, f"SET GLOBAL binlog_row_image = 'FULL'; or {exclude}")


def _generated(table: ListedTable) -> tuple[str, ...]:
    return () if table.schema is None else tuple(column.name for column in table.schema.columns if column.computed)


def _engine(table: ListedTable, exclude: str) -> Reason:
    engine = table.engine or ""
    if engine.upper() in _FOREIGN:
        return Reason("engine", f"its engine is {engine}: this server does not store its rows", exclude)
    why = _WITHOUT_VERSIONS.get(engine, "only InnoDB has consistent snapshots")
    opt_in = f", or {_OPT_IN}" if engine in LOCKING_ENGINES else ""
    fix = f"ALTER TABLE {quoted_table(table.name)} ENGINE=InnoDB; or {exclude}{opt_in}"
    return Reason("engine", f"its engine is {engine}: {why}", fix)


def rows_elsewhere(engine: str | None) -> str:
    """Return why row events of this engine do not contain the table's rows; '' if they do."""
    if engine is None:
        return ""
    if engine.upper() in _FOREIGN:
        return f"its engine is {engine}: this server does not store its rows"
    return f"its engine is {engine}: {_WITHOUT_VERSIONS[engine]}" if engine in _ROWS_ELSEWHERE else ""


def _no_key(table: ListedTable) -> Reason:
    kind = "UNIQUE" if any(index.name == "PRIMARY" for index in table.indexes) else "PRIMARY KEY"
    add = (
        f"ALTER TABLE {quoted_table(table.name)} ADD COLUMN row_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT INVISIBLE"
        f" {kind}; (this copies the table) or {_OPT_IN}"
    )
    unique = [index for index in table.indexes if index.unique]
    if not unique or table.schema is None:
        return Reason("key", "it has no primary key, and no unique index over columns that are all NOT NULL", add)
    columns = {column_key(column.name): column for column in table.schema.columns}
    return Reason(
        "key", f"no unique index is usable as a key: {'; '.join(_fault(one, columns) for one in unique)}", add
    )


def _compressed(table: ListedTable, exclude: str) -> Iterator[Reason]:
    """Refuse COMPRESSED columns in a table without a key: their bytes in the binlog differ from those of a SELECT."""
    columns = () if table.schema is None else table.schema.columns
    names = [column.name for column in columns if _COMPRESSED in column.column_type.upper()]
    if names:
        what = f"it has no usable key, and {names[0]} is COMPRESSED: its bytes in the binlog cannot be compared"
        yield Reason("compressed", what, f"give the table a primary key; or {exclude}")


def _fault(index: TableIndex, columns: Mapping[str, ColumnSchema]) -> str:
    """Return why an index cannot be the key."""
    if index.ignored:
        return f"{index.name} is IGNORED"
    if index.kind != "BTREE":
        return f"{index.name} is a hash index"
    for part in index.parts:
        column = columns.get(column_key(part.column))
        if part.prefix:
            return f"{index.name} covers only a prefix of {part.column}"
        if column is None or column.nullable:
            return f"{index.name} has the column {part.column}, which may be NULL"
    types = ", ".join(f"{part.column} {columns[column_key(part.column)].data_type}" for part in index.parts)
    return f"{index.name} ({types}) has values that no WHERE condition matches exactly"


def _undecodable(schema: TableSchema, exclude: str) -> Iterator[Reason]:
    for column in schema.columns:
        try:
            output_column(column, ValuePolicy())
        except SchemaError as error:
            yield Reason("column", error.message.rstrip("."), error.hint.rstrip(".") or exclude)
            return


def _filtered(database: str, facts: TableFacts) -> bool:
    only = [one for one in facts.variables.get("binlog_do_db", "").split(",") if one]
    ignored = facts.variables.get("binlog_ignore_db", "").split(",")
    return database not in only if only else database in ignored


def _warnings(
    table: ListedTable, facts: TableFacts, key: TableKey | None, without: tuple[str, ...]
) -> Iterator[Reason]:
    if without:
        named = ", ".join([*without[:SHOWN], *["…"] * (len(without) > SHOWN)])
        version = facts.variables.get("version")
        what = (
            f"it is read without its generated columns ({named}), which MariaDB {version} leaves out of the row images "
            "of updates and deletes"
        )
        yield Reason("computed", what, "leave them out with the option columns, and compute them from the others")
    if table.cascades is None:
        what = (
            "the server does not show whether a foreign key changes its rows (CASCADE, SET NULL); the binlog does not "
            "contain such changes"
        )
        yield Reason("cascade", what, f"SHOW CREATE TABLE {quoted_table(table.name)};")
    for cascade in table.cascades or ():
        yield _cascade(table, cascade)
    if key is None:
        yield _unkeyed(table)
    elif not key.ordered and table.octets >= WHOLE_WARNED:
        what = (
            "only the server knows the order of its key (text in a collation): it is delivered as a whole, once all "
            "of it is on the driver's disk; after an earlier restart, it is read from its beginning"
        )
        yield Reason("whole", what)


def _unkeyed(table: ListedTable) -> Reason:
    meanwhile = "no one can write to it meanwhile, and " if table.engine in LOCKING_ENGINES else ""
    what = (
        f"it is read in one SELECT: {meanwhile}it is re-read if its rows changed during the read or in the "
        f"seconds before, {MOST_UNSETTLED} times at most; it is delivered once all of it is on the driver's disk"
    )
    return Reason("unkeyed", what, "start while no one writes to it")


def _cascade(table: ListedTable, cascade: Cascade) -> Reason:
    what = (
        f"the foreign key {cascade.constraint} ({', '.join(cascade.actions)}) changes its rows with those of "
        f"{'.'.join(cascade.parent)}, and the binlog does not contain such changes"
    )
    fix = (
        f"let the application change the rows of {table_text(table.name)} itself; a mirror of both tables follows them"
    )
    return Reason("cascade", what, fix)


def describe_key(verdict: InitialVerdict) -> str:
    """Return a description of the key by which a table is read; '' for a table that is read whole."""
    if verdict.key is None:
        return ""
    columns = ", ".join(verdict.key_columns)
    name = "its primary key" if verdict.key.index == "PRIMARY" else f"the unique index {verdict.key.index}"
    return f"{name} ({columns})" + ("" if verdict.key.ordered else f", {_AT_ONCE}")
