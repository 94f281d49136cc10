"""Records of audits beside a mirror's control table, and requests to repair rows.

`write_records` appends an `AuditResult`, and `last_audits` returns the last row of each table. `request_repair` writes
a request for the mirror, which repairs the rows between two of its batches. Only audits write these tables, so no write
conflicts with the mirror's. The tables have the format of the control table, Delta or Iceberg.
"""

from __future__ import annotations

import datetime as dt
import uuid
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from replica.errors import ConfigError
from replica.schema.patterns import table_named
from streaming_source.auditing.rows.differences import differing_keys
from streaming_source.schema.row_schema import spark_type
from streaming_source.schema.spark_names import spark_column_key
from streaming_source.sinks.delta import has_delta, known_folder, no_delta_error
from streaming_source.sinks.delta_folders import append_rows, delta_folder, make_table, read_delta
from streaming_source.sinks.iceberg.catalogs import is_iceberg, load_table, table_exists
from streaming_source.sinks.iceberg.small_tables import SmallColumn, append_small, make_small, small_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from streaming_source.auditing.result import AuditResult
    from streaming_source.auditing.rows.differences import ComparedRows

Columns: TypeAlias = "tuple[tuple[str, str, str], ...]"
"""Name, type and meaning of each column of a table."""

SUFFIX: Final = "_audits"
EQUAL: Final = "equal"
DIFFERENT: Final = "not equal"
LEFT_OUT: Final = "left out"
REPAIRED: Final = "repaired"
NOT_REPAIRED: Final = "not repaired"

COLUMNS: Final[Columns] = (
    ("audited_at", "TIMESTAMP", "when the audit of all tables ended"),
    ("source_database", "STRING", "database of the table on the server"),
    ("source_table", "STRING", "its name there"),
    ("target", "STRING", "the target, with the version that was compared"),
    ("audited_position", "STRING", "GTID position that both sides were compared at"),
    ("audit", "STRING", "equal, not equal, left out, repaired, or not repaired"),
    ("source_rows", "BIGINT", "rows of the table at the position"),
    ("target_rows", "BIGINT", "rows of the target"),
    (
        "counts",
        "MAP<STRING, BIGINT>",
        "rows that are missing, extra, different and doubled; of a repair: requested rows, and rows changed since",
    ),
    ("seconds", "DOUBLE", "how long it took"),
    ("reason", "STRING", "why the table was left out or not repaired"),
)


def beside(control: str, suffix: str) -> str:
    """Return the SQL name of a table beside the control table."""
    return f"{control[:-1]}{suffix}`" if control.endswith("`") else control + suffix


def make_beside(spark: SparkSession, control: str, suffix: str, columns: Columns) -> None:
    """Create a table beside the control table if there is none."""
    if is_iceberg(control):
        make_small(beside(control, suffix), [SmallColumn(*each) for each in columns])
        return
    if not has_delta(spark):
        from pyspark.sql.types import StructField, StructType

        fields = [StructField(name, spark_type(kind), metadata={"comment": about}) for name, kind, about in columns]
        make_table(_folder(spark, beside(control, suffix)), StructType(fields))
        return
    declared = ", ".join(f"{name} {kind} COMMENT '{about}'" for name, kind, about in columns)
    spark.sql(f"CREATE TABLE IF NOT EXISTS {beside(control, suffix)} ({declared}) USING delta")


def append_beside(
    spark: SparkSession, control: str, suffix: str, columns: Columns, rows: Sequence[Sequence[object]]
) -> None:
    """Append rows to a table beside the control table, as one commit."""
    if is_iceberg(control):
        append_small(spark, beside(control, suffix), [SmallColumn(*each) for each in columns], rows)
        return
    schema = ", ".join(f"{name} {kind}" for name, kind, _ in columns)
    if not has_delta(spark):
        append_rows(_folder(spark, beside(control, suffix)), spark.createDataFrame(rows, schema).toArrow())
        return
    spark.createDataFrame(rows, schema).coalesce(1).writeTo(beside(control, suffix)).append()


def table_beside(spark: SparkSession, control: str, suffix: str) -> DataFrame | None:
    """Return the rows of a table beside the control table; None if there is no such table."""
    from pyspark.errors import AnalysisException

    name = beside(control, suffix)
    if is_iceberg(name):
        return small_rows(spark, load_table(name), name) if table_exists(name) else None
    if not has_delta(spark) and delta_folder(spark, name) is None:
        return None
    try:
        return read_delta(spark, name)
    except AnalysisException:
        return None


def _folder(spark: SparkSession, table: str) -> str:
    folder = known_folder(spark, table)
    if folder is None:
        raise no_delta_error(f"the table {table}")
    return folder


def make_records(spark: SparkSession, control: str) -> None:
    """Create the table of audits if there is none."""
    make_beside(spark, control, SUFFIX, COLUMNS)


def write_records(spark: SparkSession, control: str, result: AuditResult) -> None:
    """Append the result of an audit in one commit."""
    now = dt.datetime.now(dt.UTC)
    rows: list[Sequence[object]] = []
    for table in result.tables:
        verdict = EQUAL if table.equal else DIFFERENT
        at = table.target if table.version is None else f"{table.target}@v{table.version}"
        found = (table.source_rows, table.target_rows, dict(table.counts), table.seconds, None)
        rows.append((now, *table_named(table.table), at, table.position, verdict, *found))
    for left in result.left_out:
        nothing = (None, None, None, None, left.reason)
        rows.append((now, *table_named(left.table), None, result.position, LEFT_OUT, *nothing))
    if rows:
        append_beside(spark, control, SUFFIX, COLUMNS, rows)


def last_audits(spark: SparkSession, control: str) -> DataFrame | None:
    """Return the last row of each table; None if there is no table of audits."""
    from pyspark.sql import functions as f

    audits = table_beside(spark, control, SUFFIX)
    if audits is None:
        return None
    last = f.max_by(f.struct("audited_at", "audited_position", "audit"), "audited_at").alias("last")
    return (
        audits.groupBy("source_database", "source_table").agg(last).select("source_database", "source_table", "last.*")
    )


# `request_repair` takes both sides of a table as they were compared, and writes one row. The row has the position of
# the comparison, and the server's row of each key that differs, as an Arrow stream in the target's columns. The mirror
# executes it between two of its batches. Tables without a key are refused, and requests of more than MOST_ROWS rows.


REPAIRS_SUFFIX: Final = "_repairs"

MOST_ROWS: Final = 100_000
"""Most rows of a request. They pass through the driver, and a re-snapshot is faster for a table that lacks more."""

REPAIR_COLUMNS: Final = (
    ("id", "STRING", "the request"),
    ("asked_at", "TIMESTAMP", "when the request was written"),
    ("mirror", "STRING", "the mirror that has to repair the rows: the id of its query"),
    ("source_database", "STRING", "database of the table on the server"),
    ("source_table", "STRING", "its name there"),
    ("position", "STRING", "GTID position of the rows"),
    ("batch", "BIGINT", "the last micro-batch that was in the target then"),
    ("key", "ARRAY<STRING>", "columns of the target that identify a row"),
    ("rows", "BINARY", "the rows, as an Arrow stream"),
)
"""Name, type and meaning of each column."""

REMOVED: Final = "gone"

ROW: Final = "row"


class RepairingMirror(NamedTuple):
    """Mirror to ask for a repair, and the last batch in the target when the target was compared."""

    control: str
    mirror: str
    batch: int


def make_requests(spark: SparkSession, control: str) -> None:
    """Create the table of requests if there is none.

    Raises:
        ConfigError: the session has no Delta, and a repair is a MERGE of Spark.
    """
    if not has_delta(spark):
        raise no_delta_error("a repair")
    make_beside(spark, control, REPAIRS_SUFFIX, REPAIR_COLUMNS)


def request_repair(
    repairing: RepairingMirror,
    table: str,
    position: str,
    sides: tuple[DataFrame, DataFrame],
    compared: ComparedRows,
    buckets: Collection[int],
    before: DataFrame | None = None,
) -> None:
    """Write the request to repair the rows of these buckets that differ.

    Args:
        repairing: the mirror to ask.
        table: the table, as database.table.
        position: the GTID position of the comparison.
        sides: the rows of the table and those of its target.
        compared: how rows are compared.
        buckets: the buckets that differ.
        before: rows that differed in an earlier comparison. If given, only rows that differed in both comparisons are
            repaired.

    Raises:
        ConfigError: the table is compared by whole rows, or too many rows differ.
    """
    import pyarrow as pa

    if not compared.keys:
        raise ConfigError(f"{table} has no key to repair rows by.", hint="Re-snapshot the table (mirror_resnapshot).")
    found = differing_keys(*sides, compared, buckets).select("key")
    found = (found if before is None else found.join(before, "key", "left_semi")).persist()
    try:
        rows = _rows(*sides, compared, found).limit(MOST_ROWS + 1).toArrow()
    finally:
        found.unpersist()
    if rows.num_rows > MOST_ROWS:
        raise ConfigError(
            f"more than {MOST_ROWS} rows of {table} would have to be written.",
            hint="Re-snapshot the table (mirror_resnapshot).",
        )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    names = _names(compared, sides[1])
    request = (
        *(str(uuid.uuid4()), dt.datetime.now(dt.UTC), repairing.mirror, *table_named(table), position, repairing.batch),
        *([names[key] for key in compared.keys], sink.getvalue().to_pybytes()),
    )
    append_beside(sides[1].sparkSession, repairing.control, REPAIRS_SUFFIX, REPAIR_COLUMNS, [request])


def _rows(source: DataFrame, target: DataFrame, compared: ComparedRows, found: DataFrame) -> DataFrame:
    """Return the rows of a request: `gone` is True for the key of a row to remove, and `row` is the target's row."""
    from pyspark.sql import functions as f

    names = _names(compared, target)
    kinds = {field.name: field.dataType for field in target.schema}

    def side(rows: DataFrame, *, source: bool) -> DataFrame:
        key = compared.key(compared.values(source=source))
        values = [
            (one.source if source else one.target) if source or one.name in compared.keys else f.lit(None)
            for one in compared.columns
        ]
        row = f.struct(
            *(
                value.cast(kinds[names[one.name]]).alias(names[one.name])
                for one, value in zip(compared.columns, values, strict=True)
            )
        )
        marked = rows.select(key.alias("key"), f.lit(not source).alias(REMOVED), row.alias(ROW))
        return marked.join(found, "key", "left_semi").dropDuplicates(["key", REMOVED])

    return side(target, source=False).unionByName(side(source, source=True)).select(REMOVED, ROW)


def _names(compared: ComparedRows, target: DataFrame) -> dict[str, str]:
    """Return the target's names of the columns by the table's names."""
    target_names = {spark_column_key(name): name for name in target.columns}
    return {one.name: target_names[spark_column_key(one.name)] for one in compared.columns}
