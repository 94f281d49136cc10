"""startingPosition as a time, batch reads of a server, and a loss that is gone over, as users of Spark see them."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from replica.errors import ConfigError
from replica.options.values import shown_instant
from streaming_source.source.data_source import MariaDbBinlogSource
from tests.spark.queries import PATIENCE_S, frequent_progress, ids, wait

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tests.spark.queries import Shop

pytestmark = [pytest.mark.spark, pytest.mark.server]


def _options(shop: Shop, **options: object) -> dict[str, str]:
    """Of a source over `orders`, from where the test began unless told otherwise."""
    given: dict[str, object] = {
        "host": shop.primary.host,
        "port": shop.primary.port,
        "user": "repl",
        "password": "replica-secret",
        "table": shop.orders,
        "startingPosition": shop.start,
        "relayDir": shop.folder / "ranges",
    }
    return {key: str(value) for key, value in (given | options).items()}


def _range(shop: Shop, **options: object) -> DataFrame:
    return shop.spark.read.format("mariadb-binlog").options(**_options(shop, **options)).load()


def _next_second() -> int:
    """A time that everything before lies before."""
    second = int(time.time()) + 1
    while time.time() < second:
        time.sleep(0.01)
    return second


@pytest.mark.slow
def test_a_stream_and_a_range_begin_at_a_time(shop: Shop) -> None:
    shop.insert(0, 3)
    second = _next_second()
    shop.insert(10, 3)
    third = _next_second()
    shop.insert(20, 3)
    changes = shop.changes(startingPosition=shown_instant(second), relayDir=None)
    assert ids(shop.run().drain(changes)) == [10, 11, 12, 20, 21, 22]
    between = _range(shop, endingPosition=shown_instant(third))
    assert ids(between.collect()) == [0, 1, 2, 10, 11, 12]
    everything = _range(shop)
    shop.insert(100)
    assert everything.count() == 9, "it ends where the binlog did at load()"
    assert sorted(ids(everything.where("op = 'insert' AND after.id >= 12").collect())) == [12, 20, 21, 22]
    assert everything.count() == 9
    assert everything.schema == changes.schema
    refused = shop.run("refused").start(shop.changes(endingPosition="latest"))
    with pytest.raises(Exception, match=r"endingPosition would end it.*availableNow"):
        refused.awaitTermination(PATIENCE_S)


def test_filters_are_pushed_into_a_range_only(shop: Shop) -> None:
    source = MariaDbBinlogSource(_options(shop, pushFilters="true"))
    schema = source.schema()
    with pytest.raises(ConfigError, match=r"pushFilters is for spark\.read:.*operations, columns and skipUnchanged"):
        source.streamReader(schema).getDefaultReadLimit()


def test_a_purged_checkpoint_is_refused_before_a_row_and_gone_over_when_told(shop: Shop) -> None:
    run = shop.run()
    shop.insert(1, 2)
    assert ids(run.drain(shop.changes())) == [1, 2]
    lost = shop.primary.gtid_binlog_pos()
    shop.insert(3, 2)
    shop.sql("FLUSH BINARY LOGS")
    last = shop.primary.binlogs()[-1]

    def purged() -> bool:
        shop.sql(f"PURGE BINARY LOGS TO '{last}'")
        return shop.primary.binlogs() == [last]

    wait(purged, "the binlogs are purged")
    upto = shop.primary.gtid_binlog_pos()
    shop.lose_relay()
    shop.insert(5, 1)
    with pytest.raises(Exception, match=r"Could not find GTID state.*failOnDataLoss=false continues"):
        run.drain(shop.changes())
    assert ids(run.rows) == [1, 2]
    with frequent_progress(shop.spark):
        query = run.start(shop.changes(failOnDataLoss="false"))
    wait(lambda: ids(run.rows) == [1, 2, 5], "the row behind the gap arrives", query)

    def told() -> bool:
        sources = query.lastProgress["sources"] if query.lastProgress else []
        losses = [json.loads(source["latestOffset"] or "{}").get("dataLoss") for source in sources]
        # Only the domains that have lost something are named.
        return bool(losses and losses[0] and _gtids(losses[0][0]["after"]) == _gtids(lost) - _gtids(upto))

    wait(told, f"the progress tells of {lost} to {upto}", query)
    query.stop()


def _gtids(position: str) -> set[str]:
    """The server lists the domains in an order of its own."""
    return set(position.split(","))
