"""Facts of a micro-batch: which tables it changes, its statements, and whether its rows match the definitions.

`collect_facts` runs one Spark job over the manifests and returns `BatchFacts`: `TableChanges` and `StatementRow`s by
table. The same job fills the cache from which each table's rows are read. `other_definition_of` compares the table maps
of rows with a definition. Statements have the order of the partitions; `alterations.py` sorts them.
"""

from __future__ import annotations

import datetime as dt
import pickle
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.protocol.rows.table_map import parse_table_map
from replica.rows.tables.match import difference
from replica.schema.definition.session import StatementContext
from replica.schema.effects.effect import StatementEffect
from streaming_source.mirroring.batch.manifest import FAULT, KNOWN, LOST, MAPS, RANGE, STATEMENT, TOUCHED, TableMapRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, Row

    from replica.schema.known_tables import TableName
    from replica.schema.table import TableSchema

PackedPart = tuple[bytes, bytes]
_SECOND_US: Final = 1_000_000


class TableChanges(NamedTuple):
    """Numbers and flags of one table in a micro-batch.

    Attributes:
        reads: snapshot rows.
        changes: changed rows.
        bytes: estimated bytes of the binlog.
        partial: an image lacks columns.
        domains: number of replication domains of the changes.
        committed_at: the latest commit time.
        maps: the table maps of the rows.
        fault: why rows are missing from the micro-batch; None if all are there.
    """

    reads: int = 0
    changes: int = 0
    bytes: int = 0
    partial: bool = False
    domains: int = 0
    committed_at: dt.datetime | None = None
    maps: tuple[TableMapRun, ...] = ()
    fault: str | None = None

    @property
    def rows(self) -> int:
        """Number of all rows: snapshot rows and changes."""
        return self.reads + self.changes


class StatementRow(NamedTuple):
    """One statement on a table.

    Attributes:
        number: its sequence number. (number, ordinal) orders the statement among the rows of its domain.
        effect: what the statement does, parsed with the context of its session.
        committed_us: its commit time in microseconds since 1970.
    """

    domain: int
    number: int
    ordinal: int
    gtid: str
    effect: StatementEffect
    committed_us: int

    @property
    def sequence(self) -> str:
        """Place of the statement as text, in the form of `_sequence` of the flat shape.

        The text of a statement sorts before the texts of the rows in its transaction.
        """
        return f"{self.number:020d}.{self.ordinal:012d}"


class BatchFacts(NamedTuple):
    """Facts of all tables in a micro-batch, including tables that have only statements.

    Attributes:
        databases: statements that name only a database, or no table clearly, by database.
        touched: the bits of `manifest.py` by table, including tables that the mirror does not select.
        lost: tables whose snapshot rows are missing and cannot be read again, with the reasons.
        parts: the partitions with rows of a table, each with the table's known definition; both pickled, as in the
            manifest.
    """

    tables: dict[TableName, TableChanges]
    statements: dict[TableName, list[StatementRow]]
    databases: dict[str, list[StatementRow]]
    touched: dict[TableName, int]
    lost: dict[TableName, str]
    parts: dict[TableName, list[PackedPart]]


def collect_facts(batch: DataFrame) -> BatchFacts:
    """Return the facts of a batch of manifests, by one Spark job."""
    parts: dict[TableName, list[PackedPart]] = {}
    packed = b""
    found: dict[TableName, list[Row]] = {}
    tables: dict[TableName, list[StatementRow]] = {}
    databases: dict[str, list[StatementRow]] = {}
    touched: dict[TableName, int] = {}
    lost: dict[TableName, str] = {}
    for row in batch.collect():  # the row of a partition comes before those of its tables
        name, statement = (row["database"], row["table"]), row[STATEMENT]
        if row[RANGE] is not None:
            packed = bytes(row[RANGE])
            continue
        if row[KNOWN] is not None:
            parts.setdefault(name, []).append((packed, bytes(row[KNOWN])))
        if row[TOUCHED] is not None:
            touched[name] = touched.get(name, 0) | row[TOUCHED]
        elif row[LOST] is not None:
            lost[name] = row[LOST]
        elif statement is None:
            found.setdefault(name, []).append(row)
        elif row["table"] is None:
            databases.setdefault(row["database"] or "", []).append(_statement(statement))
        else:
            tables.setdefault(name, []).append(_statement(statement))
    names = {*found, *tables}
    changes = {name: _changes(found.get(name, ()), tables.get(name, ())) for name in names}
    return BatchFacts(changes, tables, databases, touched, lost, parts)


def _changes(rows: Sequence[Row], statements: Sequence[StatementRow]) -> TableChanges:
    """Return the facts of one table, summed over all partitions."""
    committed = [row["committed_us"] for row in rows if row["committed_us"] is not None]
    committed += [statement.committed_us for statement in statements]
    return TableChanges(
        sum(row["reads"] for row in rows),
        sum(row["changes"] for row in rows),
        sum(row["bytes"] for row in rows),
        any(row["partial"] for row in rows),
        len({domain for row in rows for domain in row["domains"]}),
        dt.datetime.fromtimestamp(max(committed) / _SECOND_US, dt.UTC) if committed else None,
        tuple(TableMapRun(*run) for row in rows for run in pickle.loads(row[MAPS])),  # noqa: S301  (made by our tasks)
        next((row[FAULT] for row in rows if row[FAULT] is not None), None),
    )


def _statement(row: Row) -> StatementRow:
    effect = StatementEffect(row["sql"], StatementContext.restored(row["context"]))
    return StatementRow(row["domain"], int(row["number"]), row["ordinal"], row["gtid"], effect, row["committed_us"])


# ALTER TABLE under sql_log_bin=0 is not in the stream. Comparing the table maps of rows with the definition finds such
# an ALTER before a value is lost or written to another column.


_WITHOUT_ID: Final = bytes(8)
"""Zeros in place of the table id and flags of a TABLE_MAP."""


def unreadable_rows(changes: TableChanges) -> str:
    """Return why rows of a micro-batch cannot be decoded; '' if all can."""
    return changes.fault or next((run.fault for run in changes.maps if run.fault), "")


def other_definition_of(changes: TableChanges, table: TableSchema) -> str:
    """Return why rows of a table in a micro-batch do not match a definition; '' if they do."""
    if changes.fault is not None:
        return changes.fault
    reasons = (run.fault or _difference(run.content, table, read=run.read) for run in changes.maps)
    return next((why for why in reasons if why), "")


@lru_cache(maxsize=4096)
def _difference(content: bytes, table: TableSchema, *, read: bool) -> str:
    """Compare a table map with a definition.

    The result is cached, because both are the same in nearly all micro-batches.
    """
    return difference(parse_table_map(_WITHOUT_ID + content), _as_read(table) if read else table, computed=not read)


def _as_read(table: TableSchema) -> TableSchema:
    """Return a definition as the table maps of snapshot rows have it: ENUM and SET labels are in UTF-8."""
    columns = (
        replace(column, charset="utf8mb4") if column.labels is not None and column.charset != "binary" else column
        for column in table.columns
    )
    return replace(table, columns=tuple(columns))
