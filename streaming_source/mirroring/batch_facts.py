"""One look through a micro-batch: what it has of which table, and the statements in it.

In: a batch of envelope rows with VARIANT images and DDL. Out: `TableFacts` by table, and `Statement`s by table in the
order of the stream. The look also fills the cache that the tables' own work reads from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import datetime as dt

    from pyspark.sql import DataFrame

    from replica.schema.known_tables import TableName

DDL = "op = 'ddl'"


class TableChanges(NamedTuple):
    """The part of a batch that is of one table, in numbers. `partial`: an image lacks columns; `domains`: replication
    domains of changes.
    """

    reads: int = 0
    changes: int = 0
    partial: bool = False
    domains: int = 0
    committed_at: dt.datetime | None = None


class StatementRow(NamedTuple):
    """A statement on a table; (number, ordinal) is its place among the rows of its domain, `committed_us`
    its commit time in microseconds since 1970.
    """

    domain: int
    number: int
    ordinal: int
    gtid: str
    sql: str
    committed_us: int

    @property
    def sequence(self) -> str:
        """The place as text, as `_sequence` of the flat shape has it: before the rows of its number."""
        return f"{self.number:020d}.{self.ordinal:012d}"


class BatchFacts(NamedTuple):
    """All tables of a batch. `databases`: statements that name a database, or no clear table, by the database."""

    tables: dict[TableName, TableChanges]
    statements: dict[TableName, list[StatementRow]]
    databases: dict[str, list[StatementRow]]


def look_through(batch: DataFrame) -> BatchFacts:
    """Return the facts of a batch; one job, and another where there are statements."""
    from pyspark.sql import functions as f

    row = ~f.expr(DDL)
    lacks = f.col("absent.before").isNotNull() | f.col("absent.after").isNotNull()
    change = row & (f.col("op") != "read")
    found = batch.groupBy("database", "table").agg(
        f.count_if(f.col("op") == "read").alias("reads"),
        f.count_if(change).alias("changes"),
        f.coalesce(f.bool_or(f.when(row, lacks)), f.lit(False)).alias("partial"),
        f.count_distinct(f.when(change, f.col("transaction.domain_id"))).alias("domains"),
        f.max("transaction.commit_timestamp").alias("committed_at"),
        f.count_if(f.expr(DDL)).alias("ddl"),
    )
    tables: dict[TableName, TableChanges] = {}
    ddl = 0
    for each in found.collect():
        ddl += each["ddl"]
        if each["table"] is not None:
            tables[each["database"], each["table"]] = TableChanges(
                each["reads"], each["changes"], each["partial"], each["domains"], each["committed_at"]
            )
    statements, databases = _statements(batch) if ddl else ({}, {})
    return BatchFacts(tables, statements, databases)


def _statements(batch: DataFrame) -> tuple[dict[TableName, list[StatementRow]], dict[str, list[StatementRow]]]:
    from pyspark.sql import functions as f

    # A number: a time would go through the time zone of this process.
    committed = f.unix_micros("transaction.commit_timestamp").alias("committed")
    rows = batch.where(DDL).select("database", "table", "transaction", "source.sql", committed).collect()
    tables: dict[TableName, list[StatementRow]] = {}
    databases: dict[str, list[StatementRow]] = {}
    for row in sorted(rows, key=lambda row: (row["transaction"].sequence_number, row["transaction"].ordinal)):
        at = row["transaction"]
        logged = StatementRow(at.domain_id, int(at.sequence_number), at.ordinal, at.gtid, row["sql"], row["committed"])
        if row["table"] is None:
            databases.setdefault(row["database"] or "", []).append(logged)
        else:
            tables.setdefault((row["database"], row["table"]), []).append(logged)
    return tables, databases
