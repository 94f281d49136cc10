"""Tables first, by the other ways that their rows come to tasks: inside of them, and beside a daemon's relay log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streaming_source.rows.read_plan import FIRST_ORDINAL
from tests.fixtures.load.beside import moving_keys
from tests.spark.daemons import Daemon
from tests.spark.queries import Shop, wait
from tests.spark.strict_sink import StrictSink, fill, state

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from tests.spark.queries import Run

pytestmark = [pytest.mark.spark, pytest.mark.server]

PACE = {
    "startingPosition": "initial",
    "rowShape": "flat",
    "snapshotChunkRows": 200,
    "snapshotRowsPerSecond": 300,
    "maxRowsPerTrigger": 1000,
}


def begin_and_replay(shop: Shop, run: Run, changes: Callable[[], DataFrame]) -> None:
    """Read a part of the table beside writers, twice, and let the last batch of each be planned again."""

    def rows_read() -> int:
        return sum(int(row["_sequence"][-12:]) >= FIRST_ORDINAL for row in run.rows)

    with moving_keys(shop.primary, shop.orders, keys=3500):
        for _ in range(2):
            before, query = rows_read(), run.start(changes())
            wait(lambda: rows_read() > before or is_read(run), "rows", query)  # noqa: B023  (it is called at once)
            query.stop()
            run.forget_commit(max(run.batches))


def is_read(run: Run) -> bool:
    """Tell whether nothing of the tables is left."""
    return len(run.batches) > 1 and bool(run.offsets()[-1].get("snapshot", {"done": True}).get("done"))


def is_as_the_server(shop: Shop, run: Run) -> None:
    sink = StrictSink()
    sink.apply_flat(run.rows)
    assert sink.rows == state(shop)
    assert sink.reads > 300


@pytest.mark.slow
def test_rows_travel_inside_of_tasks(shop: Shop) -> None:
    fill(shop, 3000)
    run = shop.run()

    def changes() -> DataFrame:
        return shop.changes(**PACE, transport="inline")

    begin_and_replay(shop, run, changes)
    run.drain(changes())
    is_as_the_server(shop, run)


@pytest.mark.slow
def test_rows_beside_the_relay_log_of_a_daemon(shop: Shop) -> None:
    fill(shop, 3000)
    run = shop.run()
    with Daemon(shop.primary, shop.folder / "daemon", "--start", shop.start) as daemon:

        def changes() -> DataFrame:
            return shop.changes(**PACE, relayDir=daemon.relay_dir)

        begin_and_replay(shop, run, changes)
        daemon.catch_up()
        run.drain(changes())
    is_as_the_server(shop, run)
