"""Starts, crashes and restarts: nothing is lost or doubled whichever of Spark's two logs a crash left behind.

Offsets are written before a batch runs and commits after it, so a crash in between is a checkpoint whose last commit
is missing. Relay folders are taken away where a test says so: the primary is the copy to fall back on.
"""

from __future__ import annotations

import itertools
import json

import pytest

from replica.protocol.gtid import GtidPosition, Order
from streaming_source.offsets.offset import SourceOffset
from tests.spark.queries import PATIENCE_S, Shop, frequent_progress, ids, wait

pytestmark = [pytest.mark.spark, pytest.mark.server]


@pytest.mark.parametrize("relay", [pytest.param("kept", marks=pytest.mark.slow), "lost"])
def test_a_checkpoint_goes_on_wherever_a_crash_left_it(shop: Shop, relay: str) -> None:
    """In the empty batch 0, behind a committed batch, and in the middle of one."""

    def leave_relay() -> None:
        if relay == "lost":
            shop.lose_relay()

    shop.insert(1, 3)
    run = shop.run()
    query = run.start(shop.changes(startingPosition="latest"))
    wait((run.checkpoint / "commits" / "0").exists, "batch 0", query)
    query.stop()
    assert run.batches == {0: []}
    assert run.offsets()[0]["anchor"] is True
    run.forget_commit(0)
    # Spark asks for the initial offset again; "latest" is elsewhere by now, the logged end of batch 0 is not.
    shop.insert(4, 5)
    leave_relay()
    assert ids(run.drain(shop.changes(startingPosition="latest"))) == [*range(4, 9)]
    assert all("anchor" not in offset for offset in run.offsets()[1:])

    shop.insert(9, 4)
    leave_relay()
    before = run.drain(shop.changes())
    assert ids(before) == [*range(4, 13)]
    assert {batch for batch in run.attempts if run.attempts.count(batch) > 1} == {0}

    last = max(run.batches)
    run.forget_commit(last)
    shop.insert(13, 2)
    leave_relay()
    # The batch is what it was, whatever the limits are now.
    rows = run.drain(shop.changes(maxBytesPerTrigger=1, maxRowsPerTrigger=1))
    assert run.attempts.count(last) == 2
    assert rows[: len(before)] == before  # identity and images, byte for byte
    assert ids(rows) == [*range(4, 15)]


@pytest.mark.slow
def test_limits_cut_batches_at_transactions_and_offsets_only_grow(shop: Shop) -> None:
    three = f"INSERT INTO {shop.orders} VALUES (8, 'a', 1), (9, 'b', 1), (10, 'c', 1)"  # goes whole
    shop.insert(1, 7)
    shop.sql("SET gtid_domain_id = 3", three)
    shop.insert(11, 2)
    seen: list[tuple[int, list[int]]] = []
    # The first query takes what is there when it looks; the others find all of it in the relay log.
    query = (
        shop.changes()
        .writeStream.foreachBatch(lambda batch, _: seen.append((batch.count(), ids(batch.collect()))))
        .option("checkpointLocation", str(shop.folder / "two actions"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE_S)
    assert [order for _, found in seen for order in found] == [*range(1, 13)]
    assert all(count == len(found) for count, found in seen)

    run, by_bytes = shop.run(), shop.run("bytes")
    rows = run.drain(shop.changes(maxRowsPerTrigger=2))
    assert ids(rows) == [*range(1, 13)]
    assert [row.transaction.domain_id for row in rows] == [0] * 7 + [3] * 3 + [0] * 2
    assert [len(rows) for _, rows in sorted(run.batches.items()) if rows] == [2, 2, 2, 1, 3, 2]
    assert ids(by_bytes.drain(shop.changes(maxBytesPerTrigger=1))) == [*range(1, 13)]
    assert [len(rows) for _, rows in sorted(by_bytes.batches.items()) if rows] == [1] * 7 + [3, 1, 1]
    for offsets in (run.offsets(), by_bytes.offsets()):
        positions = [SourceOffset.parse(offset).position for offset in offsets]
        assert all(a.compare(b) == Order.BEFORE for a, b in itertools.pairwise(positions))
        assert positions[-1] == GtidPosition.parse(shop.primary.gtid_binlog_pos())


def test_an_idle_query_makes_no_batches_and_reports_how_far_it_is(shop: Shop) -> None:
    run = shop.run()
    shop.insert(1, 2)
    with frequent_progress(shop.spark):
        query = run.start(shop.changes())
    wait(lambda: len(run.rows) == 2, "rows", query)
    batches = len(run.attempts)
    relay_files = set((shop.folder / "relay").glob("relay.*"))
    shop.sql("FLUSH BINARY LOGS")  # a place under another name is no news
    wait(lambda: set((shop.folder / "relay").glob("relay.*")) > relay_files, "the query sees the next binlog", query)
    earlier = query.lastProgress["timestamp"]

    def idle() -> bool:
        # The empty first batch, too, has no rows; rows are with us a moment before the report of their batch.
        progress = query.lastProgress
        return progress["timestamp"] != earlier and progress["numInputRows"] == 0 and progress["batchId"] >= batches

    wait(lambda: idle() or len(run.attempts) > batches, "an idle report", query)
    report = json.loads(query.lastProgress["sources"][0]["latestOffset"])
    assert report["gtid"] == shop.primary.gtid_binlog_pos()
    assert report["bytesBehind"] == 0
    query.stop()
    assert len(run.attempts) == batches
    assert len(run.offsets()) == batches
