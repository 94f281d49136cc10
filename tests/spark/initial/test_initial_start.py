"""The beginning of a query that reads tables first: what Spark is told before a row has come, and whose log it reads.

A row can be delivered some ten seconds after the last commit of the server at the earliest; no answer meanwhile may
say that there is nothing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.load.beside import moving_keys
from tests.spark.daemons import Daemon
from tests.spark.initial.test_initial import StrictSink, fill, state
from tests.spark.queries import PATIENCE_S, Shop, wait

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.server]


def test_all_that_is_available_is_all_rows_of_the_tables(shop: Shop) -> None:
    fill(shop, 700)
    run, sink = shop.run(), StrictSink()
    query = run.start(shop.changes(startingPosition="initial", snapshotChunkRows=200))
    query.processAllAvailable()
    assert sum(row.op == "read" for row in run.rows) == 700
    shop.sql(f"UPDATE {shop.orders} SET price = price + 1 WHERE id <= 3", f"DELETE FROM {shop.orders} WHERE id = 9")
    query.processAllAvailable()
    query.stop()
    sink.apply_envelope(run.rows)
    assert sink.rows == state(shop)


@pytest.mark.slow
def test_a_query_that_waits_for_its_first_row_can_be_stopped(shop: Shop) -> None:
    fill(shop, 50)
    run = shop.run()
    query = run.start(shop.changes(startingPosition="initial"))
    wait(lambda: max(run.batches, default=-1) == 0 or run.rows, "the empty first batch", query)
    began = time.monotonic()
    query.stop()
    assert time.monotonic() - began < PATIENCE_S
    assert query.exception() is None
    run.drain(shop.changes(startingPosition="initial"))
    assert sorted(row.after.id for row in run.rows) == sorted(state(shop))


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["path", "inline"])
def test_the_changes_come_from_a_daemons_log_and_the_rows_from_the_server(
    shop: Shop, tmp_path: Path, transport: str
) -> None:
    fill(shop, 900)
    run, sink = shop.run(), StrictSink()
    with Daemon(shop.primary, tmp_path / "daemon", "--start", shop.start) as daemon:
        daemon.catch_up()
        options = {"relayDir": daemon.relay_dir, "transport": transport, "snapshotChunkRows": 100}
        changes = shop.changes(startingPosition="initial", maxRowsPerTrigger=300, **options)
        threads = set(shop.primary.dump_threads())
        with moving_keys(shop.primary, shop.orders, keys=1000):
            query = run.start(changes)
            wait(lambda: any(row.op == "read" for row in run.rows), "rows", query)
            assert set(shop.primary.dump_threads()) <= threads
            query.stop()
            run.forget_commit(max(run.batches))
        daemon.catch_up()
        run.drain(changes)
        sink.apply_envelope(run.rows)
        assert sink.rows == state(shop)
        assert sink.reads
