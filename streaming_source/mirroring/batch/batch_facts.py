"""One look through a micro-batch: what it has of which table, and the statements in it.

In: a batch of outlines. Out: `TableChanges` by table, and `StatementRow`s by table, as the partitions have them:
`statement_scope.py` puts them in order. The look also fills the cache that the tables' own work reads from.
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
    """The part of a batch that is of one table, in numbers. `bytes`: about how many of the binlog; `partial`: an image
    lacks columns; `domains`: replication domains of changes; `maps`: the table maps that rows were met with; `fault`:
    why rows are left out of the batch.
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
        """All rows: read ones and changes."""
        return self.reads + self.changes


class StatementRow(NamedTuple):
    """A statement on a table; (number, ordinal) is its place among the rows of its domain, `committed_us`
    its commit time in microseconds since 1970. `effect`: what it does, read with its session.
    """

    domain: int
    number: int
    ordinal: int
    gtid: str
    effect: StatementEffect
    committed_us: int

    @property
    def sequence(self) -> str:
        """The place as text, as `_sequence` of the flat shape has it: before the rows of its number."""
        return f"{self.number:020d}.{self.ordinal:012d}"


class BatchFacts(NamedTuple):
    """All tables of a batch, those with statements alone too. `databases`: statements that name a database, or no clear
    table, by the database; `touched`: what is done to tables, also those that the mirror does not select
    (`touched_tables.py`); `parts`: the partitions that have rows of a table, and what is known of it there, both as the
    outline packs them.
    """

    tables: dict[TableName, TableChanges]
    statements: dict[TableName, list[StatementRow]]
    databases: dict[str, list[StatementRow]]
    touched: dict[TableName, int]
    parts: dict[TableName, list[PackedPart]]


def look_through(batch: DataFrame) -> BatchFacts:
    """Return the facts of a batch of outlines, by one job."""
    parts: dict[TableName, list[PackedPart]] = {}
    packed = b""
    found: dict[TableName, list[Row]] = {}
    tables: dict[TableName, list[StatementRow]] = {}
    databases: dict[str, list[StatementRow]] = {}
    touched: dict[TableName, int] = {}
    for row in batch.collect():  # a partition, and its tables after it
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
    """Return what all partitions have of one table."""
    committed = [row["committed_us"] for row in rows if row["committed_us"] is not None]
    committed += [statement.committed_us for statement in statements]
    return TableChanges(
        sum(row["reads"] for row in rows),
        sum(row["changes"] for row in rows),
        sum(row["bytes"] for row in rows),
        any(row["partial"] for row in rows),
        len({domain for row in rows for domain in row["domains"]}),
        dt.datetime.fromtimestamp(max(committed) / _SECOND_US, dt.UTC) if committed else None,
        tuple(MetMap(*met) for row in rows for met in pickle.loads(row[MAPS])),  # noqa: S301  (our own tasks made it)
        next((row[FAULT] for row in rows if row[FAULT] is not None), None),
    )


def _statement(row: Row) -> StatementRow:
    effect = StatementEffect(row["sql"], StatementContext.restored(row["context"]))
    return StatementRow(row["domain"], int(row["number"]), row["ordinal"], row["gtid"], effect, row["committed_us"])
