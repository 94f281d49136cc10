"""Rows of XA transactions in a query: once, at the XA COMMIT, whatever was stopped or lost since the XA PREPARE."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pymysql
import pytest

from tests.fixtures.mariadb import wait_until
from tests.spark.queries import Shop, ids

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Row

pytestmark = [pytest.mark.spark, pytest.mark.server]


def _gtids(rows: list[Row]) -> list[tuple[str, int]]:
    return [(row.transaction.gtid, row.transaction.ordinal) for row in rows]


@pytest.fixture
def xid(shop: Shop) -> Iterator[str]:
    """One of the test's own; what a failed test leaves prepared would lock its tables."""
    name = f"X'{shop.database.encode()[-60:].hex()}'"
    yield name
    with contextlib.suppress(pymysql.err.OperationalError):
        shop.sql(f"XA ROLLBACK {name}")


@pytest.mark.slow
@pytest.mark.parametrize("relay", ["kept", "lost"])
def test_a_query_stopped_between_prepare_and_commit(shop: Shop, xid: str, relay: str) -> None:
    run = shop.run()
    shop.insert(1)
    values = ",".join(f"({i}, 'xa', 1)" for i in (10, 11))
    shop.sql(f"XA START {xid}", f"INSERT INTO {shop.orders} VALUES {values}", f"XA END {xid}", f"XA PREPARE {xid}")
    shop.insert(2)
    assert ids(run.drain(shop.changes())) == [1, 2]
    offset = run.offsets()[-1]
    assert offset["resume"] != offset["gtid"]
    if relay == "lost":
        shop.lose_relay()
    shop.insert(3)
    # The connection that prepared may not have let go of the transaction yet.
    wait_until(lambda: _committed(shop, xid), f"XA COMMIT {xid}")
    # Other tests have written to other domains.
    (commit,) = (gtid for gtid in shop.primary.gtid_binlog_pos().split(",") if gtid.startswith("0-"))
    rows = run.drain(shop.changes(maxBytesPerTrigger=1))
    assert ids(rows) == [1, 2, 3, 10, 11]
    assert _gtids(rows)[3:] == [(commit, 0), (commit, 1)]
    assert run.offsets()[-1]["resume"] == run.offsets()[-1]["gtid"]
    # Once more the batch with the commit, its bytes on board this time.
    last = max(run.batches)
    assert ids(run.batches[last]) == [10, 11]
    run.forget_commit(last)
    if relay == "lost":
        shop.lose_relay()
    assert run.drain(shop.changes(transport="inline")) == rows
    assert run.attempts.count(last) == 2


def _committed(shop: Shop, xid: str) -> bool:
    try:
        shop.sql(f"XA COMMIT {xid}")
    except pymysql.err.OperationalError as error:
        if "Unknown XID" not in str(error):
            raise
        return False
    return True
