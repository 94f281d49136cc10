"""The columns of an outline: one row for a partition, and behind it one for each of its tables, each statement, and
each table that it does something to.

The row of the partition has `range` alone; one of a table has numbers and what is known of the table, with its share
of the partition in `bytes`; one of a statement has `statement`; one of what is done to a table has `touched`. Their
order within a partition is fixed, so that who reads the rows of a table meets the partition first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

RANGE: Final = "range"
KNOWN: Final = "known"
STATEMENT: Final = "statement"
TOUCHED: Final = "touched"
MAPS: Final = "maps"
"""The table maps that the rows of a table were met with (`met_maps.py`)."""
FAULT: Final = "fault"
"""Why rows of a table are left out of the batch; NULL for nearly all."""
COLUMNS: Final = (
    ("database", "STRING"),
    ("table", "STRING"),
    ("reads", "BIGINT"),
    ("changes", "BIGINT"),
    ("bytes", "BIGINT"),
    ("partial", "BOOLEAN"),
    ("domains", "ARRAY<BIGINT>"),
    ("committed_us", "BIGINT"),
    (TOUCHED, "BIGINT"),
    (MAPS, "BINARY"),
    (FAULT, "STRING"),
    (KNOWN, "BINARY"),
    (RANGE, "BINARY"),
)
STATEMENT_COLUMNS: Final = (
    ("domain", "BIGINT"),
    ("number", "STRING"),
    ("ordinal", "BIGINT"),
    ("gtid", "STRING"),
    ("sql", "STRING"),
    ("context", "STRING"),
    ("committed_us", "BIGINT"),
)
"""`number`: the sequence number as text, which holds all its 64 bits; `context`: what the text is read with
(`StatementContext.stored`). Times are microseconds since 1970: a TIMESTAMP would go through the time zone of the
process that collects it."""


def outline_schema() -> StructType:
    """Return the columns as Spark's schema."""
    from pyspark.sql.types import StructType

    from streaming_source.schema.row_schema import spark_type

    statement, schema = StructType(), StructType()
    for name, kind in STATEMENT_COLUMNS:
        statement = statement.add(name, spark_type(kind))
    for name, kind in COLUMNS:
        schema = schema.add(name, spark_type(kind))
    return schema.add(STATEMENT, statement)


def outline_batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Return rows, each with some of the columns, as Arrow."""
    import pyarrow as pa

    from replica.rows.types.arrow_arrays import array_of_values
    from streaming_source.schema.arrow import arrow_schema

    schema = arrow_schema(outline_schema())
    arrays = [array_of_values([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
