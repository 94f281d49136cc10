"""A table that changes under a Spark query: the stop that was asked for, a restart behind it, and unnamed old rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from tests.spark.queries import PATIENCE_S, wait

if TYPE_CHECKING:
    from tests.spark.queries import Shop

pytestmark = [pytest.mark.spark, pytest.mark.server]


def test_new_columns_stop_the_query_and_a_restart_has_them(shop: Shop) -> None:
    run = shop.run()
    live = run.start(shop.changes(onSchemaChange="add"))
    shop.insert(1, 2)
    wait(lambda: len(run.rows) == 2, "the rows before the change", live)
    shop.sql(f"ALTER TABLE {shop.orders} ADD COLUMN city VARCHAR(20) AFTER id")
    shop.sql(f"INSERT INTO {shop.orders} VALUES (3, 'Bonn', 'order 3', 3.25)")
    with pytest.raises(StreamingQueryException, match=r"ColumnsAddedError: .* New columns: city\..* same checkpoint"):
        live.awaitTermination(PATIENCE_S)
    changes = shop.changes(onSchemaChange="add")
    assert changes.schema["after"].dataType.names == ["id", "city", "name", "price"]
    rows = run.drain(changes)
    assert [(row.after.id, row.after.asDict().get("city")) for row in rows] == [(1, None), (2, None), (3, "Bonn")]


def test_a_restart_reads_unnamed_rows_with_the_columns_of_their_time(shop: Shop) -> None:
    shop.sql("SET GLOBAL binlog_row_metadata=NO_LOG")
    try:
        run = shop.run()
        shop.sql(f"ALTER TABLE {shop.orders} ADD COLUMN a INT, ADD COLUMN b INT")
        shop.start = shop.primary.gtid_binlog_pos()
        shop.sql(f"INSERT INTO {shop.orders} (id, a, b) VALUES (1, 10, 20)")
        assert len(run.drain(shop.changes())) == 1
        shop.sql(
            f"INSERT INTO {shop.orders} (id, a, b) VALUES (2, 11, 21)",
            f"ALTER TABLE {shop.orders} RENAME COLUMN a TO b, RENAME COLUMN b TO a",
            f"INSERT INTO {shop.orders} (id, a, b) VALUES (3, 12, 22)",
        )
        shop.lose_relay()
        rows = run.drain(shop.changes())
        assert [(row.after.a, row.after.b) for row in rows] == [(10, 20), (11, 21), (12, 22)]
    finally:
        shop.sql("SET GLOBAL binlog_row_metadata=FULL")
