"""Facts of a micro-batch: which tables it changes, and its statements.

In: a batch of outlines. Out: `TableChanges` and `StatementRow`s by table. The statements have the order of the
partitions; `statement_scope.py` sorts them. Reading the facts also fills the cache from which the work on each table
reads.
"""

from __future__ import annotations

import datetime as dt
import pickle
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.schema.definition.session import StatementContext
from replica.schema.effects.effect import StatementEffect
from streaming_source.mirroring.batch.met_maps import MetMap
from streaming_source.mirroring.batch.outline_columns import FAULT, KNOWN, MAPS, RANGE, STATEMENT, TOUCHED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, Row

    from replica.schema.known_tables import TableName

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
    maps: tuple[MetMap, ...] = ()
    fault: str | None = None

    @property
    def rows(self) -> int:
        """Number of all rows: snapshot rows and changes."""
        return self.reads + self.changes


class StatementRow(NamedTuple):
    """One statement on a table.

    Attributes:
        number: its sequence number. With `ordinal` it is the place of the statement among the rows of its domain.
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
        """Place as text, as in `_sequence` of the flat shape; it sorts before the rows of its number."""
        return f"{self.number:020d}.{self.ordinal:012d}"


class BatchFacts(NamedTuple):
    """Facts of all tables in a micro-batch, also of tables that have only statements.

    Attributes:
        databases: statements that name a database, or no clear table, by the database.
        touched: the bits of `touched_tables.py`, also for tables that the mirror does not select.
        parts: the partitions that have rows of a table, with its known definition; both are pickled, as in the outline.
    """

    tables: dict[TableName, TableChanges]
    statements: dict[TableName, list[StatementRow]]
    databases: dict[str, list[StatementRow]]
    touched: dict[TableName, int]
    parts: dict[TableName, list[PackedPart]]


def look_through(batch: DataFrame) -> BatchFacts:
    """Return the facts of a batch of outlines, by one Spark job."""
    parts: dict[TableName, list[PackedPart]] = {}
    packed = b""
    found: dict[TableName, list[Row]] = {}
    tables: dict[TableName, list[StatementRow]] = {}
    databases: dict[str, list[StatementRow]] = {}
    touched: dict[TableName, int] = {}
    for row in batch.collect():  # the row of a partition comes before those of its tables
        name, statement = (row["database"], row["table"]), row[STATEMENT]
        if row[RANGE] is not None:
            packed = bytes(row[RANGE])
            continue
        if row[KNOWN] is not None:
            parts.setdefault(name, []).append((packed, bytes(row[KNOWN])))
        if row[TOUCHED] is not None:
            touched[name] = touched.get(name, 0) | row[TOUCHED]
        elif statement is None:
            found.setdefault(name, []).append(row)
        elif row["table"] is None:
            databases.setdefault(row["database"] or "", []).append(_statement(statement))
        else:
            tables.setdefault(name, []).append(_statement(statement))
    names = {*found, *tables}
    changes = {name: _changes(found.get(name, ()), tables.get(name, ())) for name in names}
    return BatchFacts(changes, tables, databases, touched, parts)


def _changes(rows: Sequence[Row], statements: Sequence[StatementRow]) -> TableChanges:
    """Return the sum of one table over all partitions."""
    committed = [row["committed_us"] for row in rows if row["committed_us"] is not None]
    committed += [statement.committed_us for statement in statements]
    return TableChanges(
        sum(row["reads"] for row in rows),
        sum(row["changes"] for row in rows),
        sum(row["bytes"] for row in rows),
        any(row["partial"] for row in rows),
        len({domain for row in rows for domain in row["domains"]}),
        dt.datetime.fromtimestamp(max(committed) / _SECOND_US, dt.UTC) if committed else None,
        tuple(MetMap(*met) for row in rows for met in pickle.loads(row[MAPS])),  # noqa: S301  (made by our tasks)
        next((row[FAULT] for row in rows if row[FAULT] is not None), None),
    )


def _statement(row: Row) -> StatementRow:
    effect = StatementEffect(row["sql"], StatementContext.restored(row["context"]))
    return StatementRow(row["domain"], int(row["number"]), row["ordinal"], row["gtid"], effect, row["committed_us"])
