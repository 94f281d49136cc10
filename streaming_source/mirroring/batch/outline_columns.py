"""Columns of an outline: rows for a partition, its tables, its statements, and the tables that it touches.

The row of a partition has only `range`. The row of a table has numbers, its known definition, and its share of the
partition in `bytes`. The row of a statement has `statement`. The row of a touched table has `touched`. This order
within a partition is fixed: a reader meets the partition before its tables.
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
"""Table maps of the rows of a table (`met_maps.py`)."""
FAULT: Final = "fault"
"""Why rows of a table are left out of the micro-batch; NULL if none are."""
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
"""Fields of `statement`.

`number` is the sequence number as text, which holds all its 64 bits. `context` is the session context for parsing the
text (`StatementContext.stored`). Times are microseconds since 1970: a TIMESTAMP would be converted to the time zone of
the process that collects it.
"""


def outline_schema() -> StructType:
    """Return the columns as a Spark schema."""
    from pyspark.sql.types import StructType

    from streaming_source.schema.row_schema import spark_type

    statement, schema = StructType(), StructType()
    for name, kind in STATEMENT_COLUMNS:
        statement = statement.add(name, spark_type(kind))
    for name, kind in COLUMNS:
        schema = schema.add(name, spark_type(kind))
    return schema.add(STATEMENT, statement)


def outline_batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Return rows as an Arrow batch; columns that a row lacks are NULL."""
    import pyarrow as pa

    from replica.rows.types.arrow_arrays import array_of_values
    from streaming_source.schema.arrow import arrow_schema

    schema = arrow_schema(outline_schema())
    arrays = [array_of_values([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
