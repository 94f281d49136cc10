"""mirror_resnapshot(): a table that was suspended comes back while the query runs, and the others go on meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fixtures.mariadb import MariaDb

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1800)]

WAIT = """
import time
def wait(states):
    end = time.monotonic() + 300
    read = lambda: {{r.source_table: r.state for r in spark.table({control!r}).collect()}}
    while read() != states:
        assert query.isActive, query.exception()
        assert time.monotonic() < end, read()
        time.sleep(0.3)
"""
START = """
from streaming_source import mirror, mirror_resnapshot
query = mirror(spark, **{arguments!r})
"""
CURRENT = "wait({'a': 'current', 'b': 'current'})"


@pytest.mark.quick_on("newest")
def test_a_table_that_was_set_aside_comes_back_without_a_start(
    server_version: str, mirrored: Callable[..., Mirrored]
) -> None:
    with MariaDb(server_version, "--binlog-row-metadata=FULL") as primary:
        primary.add_user()
        primary.sql("CREATE DATABASE shop")
        for table in "ab":
            primary.sql(
                "USE shop",
                f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(20))",
                f"INSERT INTO {table} SELECT seq, seq FROM seq_1_to_50",
            )
        mirror = mirrored(primary, "shop", onAlter="stop")
        mirror.run()
        bench, into = mirror.workbench, mirror.arguments["into"]
        bench.run(WAIT.format(control=f"{mirror.lake}.mirror_control"))
        bench.run(START.format(arguments=mirror.arguments | {"trigger": None}))
        try:
            # A type that the target's column cannot hold.
            primary.sql("USE shop", "ALTER TABLE b MODIFY v INT", "INSERT INTO b VALUES (60, 7)")
            primary.sql("INSERT INTO shop.a VALUES (60, 'x')")
            bench.run("wait({'a': 'current', 'b': 'failed'})")
            assert "mirror_resnapshot" in str(mirror.states()["b"][1])
            primary.sql("UPDATE shop.b SET v = v + 1 WHERE id > 40")
            with pytest.raises(AssertionError, match=r"ConfigError: shop\.c: not among the mirror's tables"):
                bench.run(f"mirror_resnapshot(spark, tables=['shop.a', 'shop.c'], into={into!r})")
            bench.run(f"mirror_resnapshot(spark, tables=['shop.b'], into={into!r})")
            primary.sql("USE shop", "INSERT INTO a VALUES (61, 'y')", "DELETE FROM b WHERE id = 1")
            bench.run(CURRENT)
        finally:
            bench.run("query.stop()")
        mirror.run()
        mirror.assert_equal("a", "b")
        primary.sql("UPDATE shop.b SET v = -1 WHERE id = 2")
        bench.run(f"mirror_resnapshot(spark, tables=['shop.b'], into={into!r})")  # taken by the next start
        mirror.run()
        mirror.assert_equal("a", "b")
        kind = bench.run(f"result = spark.table('{mirror.lake}.b').schema['v'].dataType.simpleString()")
        assert kind == "int"
