"""mirror_tables() under a writer: what two tables hold together is the same in every read; mirror_status()."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

import pytest

from streaming_source.mirroring.control.status import mirror_tables
from tests.fixtures.mariadb import MariaDb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow]

ACCOUNTS = 200
READS = 3
_READ = """
query = mirror(spark, **{arguments!r})
import time
seen, end = {{}}, time.monotonic() + 300
try:
    while len(seen) < {reads}:
        assert query.isActive, query.exception()
        assert time.monotonic() < end, seen
        rows = spark.table({control!r}).select("state").collect() if spark.catalog.tableExists({control!r}) else []
        if [row.state for row in rows] != ["current"] * 2:
            continue
        tables = mirror_tables(spark, into={into!r})
        sums = [tables[name].selectExpr("sum(v)").first()[0] for name in ("shop.a", "shop.b")]
        seen[tables.position] = sums
finally:
    query.stop()
result = [sorted(tables), seen]
"""


@pytest.fixture
def primary() -> Iterator[MariaDb]:
    with MariaDb("10.11") as running:
        running.add_user()
        running.sql(
            "CREATE DATABASE shop",
            *(f"CREATE TABLE shop.{table} (id INT PRIMARY KEY, v INT NOT NULL)" for table in "ab"),
            "USE shop",
            *(f"INSERT INTO {table} SELECT seq, 100 FROM seq_1_to_{ACCOUNTS}" for table in "ab"),
        )
        yield running


def move(primary: MariaDb, ended: threading.Event) -> None:
    """Take from one table what the other gets, in one transaction, until the end."""
    chosen = random.Random(5)
    with primary.connect(database="shop") as connection, connection.cursor() as cursor:
        while not ended.wait(0.02):
            amount, *places = chosen.randrange(50), chosen.randint(1, ACCOUNTS), chosen.randint(1, ACCOUNTS)
            connection.begin()
            for table, sign, place in zip("ab", "-+", places, strict=True):
                cursor.execute(f"UPDATE {table} SET v = v {sign} {amount} WHERE id = {place}")
            connection.commit()


def test_every_read_is_of_one_moment(primary: MariaDb, mirrored: Callable[..., Mirrored]) -> None:
    mirror = mirrored(primary, "shop")
    ended = threading.Event()
    writer = threading.Thread(target=move, args=(primary, ended))
    writer.start()
    told = {"control": f"{mirror.lake}.mirror_control", "into": mirror.arguments["into"]}
    arguments = mirror.arguments | {"trigger": None}
    try:
        names, seen = mirror.workbench.run(
            f"from streaming_source import mirror, {mirror_tables.__name__}\n"
            + _READ.format(arguments=arguments, reads=READS, **told)
        )
    finally:
        ended.set()
        writer.join()
    assert names == ["shop.a", "shop.b"]
    assert {position: sum(sums) for position, sums in seen.items()} == dict.fromkeys(seen, 2 * 100 * ACCOUNTS)
    assert len({tuple(sums) for sums in seen.values()}) > 1


def test_a_table_that_is_not_current_is_refused_and_the_status_tells_it(
    primary: MariaDb, mirrored: Callable[..., Mirrored]
) -> None:
    mirror = mirrored(primary, "shop", onAlter="stop")
    mirror.run()
    primary.sql("ALTER TABLE shop.b ADD COLUMN w INT DEFAULT 5", "UPDATE shop.a SET v = 0 WHERE id = 1")
    mirror.run()
    into = mirror.arguments["into"]
    mirror.workbench.run("from streaming_source import mirror_status, mirror_tables, audit")
    read = f"mirror_tables(spark, into={into!r})"
    assert mirror.workbench.run(f"t = {read}; result = [list(t), t.position]") == [
        ["shop.a"],
        primary.gtid_binlog_pos(),
    ]
    with pytest.raises(AssertionError, match=r"ConfigError: shop\.b is failed: it is not at the position"):
        mirror.workbench.run(f"mirror_tables(spark, into={into!r}, tables=['shop.b'])")
    with pytest.raises(AssertionError, match=r"ConfigError: shop\.nope is not a table of the mirror"):
        mirror.workbench.run(f"mirror_tables(spark, into={into!r}, tables=['shop.nope'])")
    with pytest.raises(AssertionError, match=r"ConfigError: there is no control table `no`\.`mirror_control`"):
        mirror.workbench.run("mirror_tables(spark, into='no.{table}')")
    status = f"mirror_status(spark, into={into!r}).sort('source_table').collect()"
    asked = f"result = [[row.source_table, row.state, row.lag is None, row.audit] for row in {status}]"
    assert mirror.workbench.run(asked) == [["a", "current", False, None], ["b", "failed", True, None]]
    server = {name: mirror.arguments[name] for name in ("host", "port", "user", "password")}
    verdict = f"result = audit(spark, mirror='{mirror.lake}.mirror_control', **{server!r}).equal"
    assert mirror.workbench.run(verdict) is False
    assert mirror.workbench.run(asked) == [["a", "current", False, "equal"], ["b", "failed", True, "left out"]]
