"""What people do without this project: python-mysql-replication feeding `createDataFrame`, a DataFrame a batch.

In: a running server, the columns of its table. Out: rows a second, into the noop sink, over a bounded stretch of its
binlog. It is given every advantage: the schema is known (nothing is inferred), a row change is one row with the new
values alone, no GTID is kept, and the first batch, which warms up, does not count.
"""

from __future__ import annotations

import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent
from pyspark.sql.types import BinaryType, DecimalType, StringType, StructType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

    from tests.fixtures.mariadb import MariaDb

BATCH_ROWS = 10_000
BATCH_BYTES = 32 << 20
OPERATIONS = {WriteRowsEvent: "insert", UpdateRowsEvent: "update", DeleteRowsEvent: "delete"}


def peer_rate(spark: SparkSession, server: MariaDb, image: StructType, seconds: float) -> float:
    """Row changes a second. `image`: the table's columns as Spark types."""
    schema = StructType([*image.fields]).add("_change_type", StringType())
    stream = BinLogStreamReader(
        connection_settings={
            "host": server.host,
            "port": server.port,
            "user": server.user,
            "password": server.password,
        },
        server_id=4712,
        log_file=server.binlogs()[0],
        log_pos=4,
        resume_stream=True,
        blocking=False,
        only_events=list(OPERATIONS),
        enable_logging=False,
    )
    rows, started = 0, 0.0
    try:
        for number, batch in enumerate(_batches(stream, image)):
            spark.createDataFrame(batch, schema).write.format("noop").mode("append").save()
            if number == 0:
                started = time.perf_counter()
                continue
            rows += len(batch)
            if time.perf_counter() - started > seconds:
                break
        return rows / (time.perf_counter() - started)
    finally:
        stream.close()


def _batches(stream: BinLogStreamReader, image: StructType) -> Iterator[list[tuple[Any, ...]]]:
    fits = [(field.name, _fitting(field.dataType)) for field in image.fields]
    rows: list[tuple[Any, ...]] = []
    size = 0
    for event in stream:
        operation = OPERATIONS[type(event)]
        for row in event.rows:
            values = row["after_values"] if operation == "update" else row["values"]
            rows.append((*(fit(values[name]) for name, fit in fits), operation))
        size += event.event_size
        if len(rows) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield rows
            rows, size = [], 0
    yield rows


def _fitting(kind: DataType) -> Callable[[Any], Any]:
    """The client's value as the one that Spark takes for this type."""
    if isinstance(kind, DecimalType):
        return lambda value: Decimal(value) if isinstance(value, int) else value
    if isinstance(kind, BinaryType):
        return lambda value: value.encode("latin-1") if isinstance(value, str) else value
    return lambda value: value
