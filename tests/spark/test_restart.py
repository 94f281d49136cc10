"""Starts, crashes and restarts: nothing is lost or doubled whichever of Spark's two logs a crash left behind.

Offsets are written before a batch runs and commits after it, so a crash in between is a checkpoint whose last commit
is missing. Relay folders are taken away where a test says so: the primary is the copy to fall back on.
"""

from __future__ import annotations

import itertools
import json
import threading
import time

import pytest

from replica.protocol.gtid import GtidPosition, Order
from streaming_source.offsets.offset import SourceOffset
from tests.spark.queries import Shop, ids, wait

pytestmark = [pytest.mark.spark, pytest.mark.server]


def test_latest_starts_where_the_query_began_and_the_first_batch_is_the_anchor(shop: Shop) -> None:
    shop.insert(1, 3)
    run = shop.run()
    query = run.start(shop.changes(startingPosition="latest"))
    wait((run.checkpoint / "commits" / "0").exists, "batch 0", query)
    shop.insert(4, 3)
    wait(lambda: len(run.rows) == 3, "rows after the start", query)
    query.stop()
    assert ids(run.rows) == [4, 5, 6]
    offsets = run.offsets()
    assert offsets[0]["anchor"] is True
    assert run.batches[0] == []
    assert all("anchor" not in offset for offset in offsets[1:])


@pytest.mark.parametrize("relay", ["kept", "lost"])
def test_a_crash_in_batch_0_does_not_move_the_start(shop: Shop, relay: str) -> None:
    run = shop.run()
    query = run.start(shop.changes(startingPosition="latest"))
    wait((run.checkpoint / "commits" / "0").exists, "batch 0", query)
    query.stop()
    run.forget_commit(0)
    # Spark asks for the initial offset again; "latest" is elsewhere by now, the logged end of batch 0 is not.
    shop.insert(1, 5)
    if relay == "lost":
        shop.lose_relay()
    assert ids(run.drain(shop.changes(startingPosition="latest"))) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("relay", ["kept", "lost"])
def test_a_committed_checkpoint_goes_on_behind_its_last_batch(shop: Shop, relay: str) -> None:
    run = shop.run()
    shop.insert(1, 4)
    assert ids(run.drain(shop.changes())) == [1, 2, 3, 4]
    shop.insert(5, 4)
    if relay == "lost":
        shop.lose_relay()
    assert ids(run.drain(shop.changes())) == [*range(1, 9)]
    assert len(run.attempts) == len(set(run.attempts))


@pytest.mark.parametrize("relay", ["kept", "lost"])
def test_an_uncommitted_batch_is_replayed_with_the_same_rows_whatever_the_limits_are_now(
    shop: Shop, relay: str
) -> None:
    run = shop.run()
    shop.insert(1, 6)
    before = run.drain(shop.changes())
    last = max(run.batches)
    run.forget_commit(last)
    shop.insert(7, 2)
    if relay == "lost":
        shop.lose_relay()
    rows = run.drain(shop.changes(maxBytesPerTrigger=1, maxRowsPerTrigger=1))
    assert run.attempts.count(last) == 2
    assert rows[: len(before)] == before  # identity and images, byte for byte
    assert ids(rows) == [*range(1, 9)]


def test_limits_cut_batches_at_transactions_and_offsets_only_grow(shop: Shop) -> None:
    shop.insert(1, 7)
    shop.sql(f"INSERT INTO {shop.orders} VALUES (8, 'a', 1), (9, 'b', 1), (10, 'c', 1)")  # goes whole
    shop.insert(11, 2)
    run = shop.run()
    rows = run.drain(shop.changes(maxRowsPerTrigger=2))
    assert ids(rows) == [*range(1, 13)]
    sizes = [len(rows) for _, rows in sorted(run.batches.items()) if rows]
    assert sizes == [2, 2, 2, 1, 3, 2]
    by_bytes = shop.run("bytes")
    assert ids(by_bytes.drain(shop.changes(maxBytesPerTrigger=1, relayDir=None))) == [*range(1, 13)]
    assert [len(rows) for _, rows in sorted(by_bytes.batches.items()) if rows] == [1] * 7 + [3, 1, 1]
    for offsets in (run.offsets(), by_bytes.offsets()):
        positions = [SourceOffset.parse(offset).position for offset in offsets]
        assert all(a.compare(b) == Order.BEFORE for a, b in itertools.pairwise(positions))


def test_available_now_drains_what_was_there_and_ends_although_the_server_goes_on(shop: Shop) -> None:
    shop.insert(1, 50)
    stop, written = threading.Event(), 50

    def write() -> None:
        nonlocal written
        while not stop.is_set():
            written += 1
            shop.insert(written)
            time.sleep(0.01)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        run = shop.run()
        rows = run.drain(shop.changes(maxRowsPerTrigger=100))
    finally:
        stop.set()
        writer.join()
    found = ids(rows)
    assert found == [*range(1, len(found) + 1)]
    assert 50 <= len(found) < written
    assert ids(run.drain(shop.changes())) == [*range(1, written + 1)]


def test_an_idle_query_makes_no_batches_and_reports_how_far_it_is(shop: Shop) -> None:
    run = shop.run()
    shop.insert(1, 2)
    query = run.start(shop.changes())
    wait(lambda: len(run.rows) == 2, "rows", query)
    batches = len(run.attempts)
    # Other sessions' key order, a rotated binlog, an unselected table: none of these is news.
    shop.sql("FLUSH BINARY LOGS")

    def idle() -> bool:
        # The empty first batch, too, has no rows; rows are with us a moment before the report of their batch.
        progress = query.lastProgress
        return progress["numInputRows"] == 0 and progress["batchId"] >= batches

    wait(lambda: idle() or len(run.attempts) > batches, "an idle report", query)
    report = json.loads(query.lastProgress["sources"][0]["latestOffset"])
    assert report["gtid"] == shop.primary.gtid_binlog_pos()
    assert report["bytesBehind"] == 0
    query.stop()
    assert len(run.attempts) == batches
    assert len(run.offsets()) == batches


def test_several_domains_make_one_position(shop: Shop) -> None:
    shop.sql(
        f"INSERT INTO {shop.orders} VALUES (1, 'a', 1)",
        "SET gtid_domain_id = 7",
        f"INSERT INTO {shop.orders} VALUES (2, 'b', 1)",
        "SET gtid_domain_id = 0",
        f"INSERT INTO {shop.orders} VALUES (3, 'c', 1)",
    )
    run = shop.run()
    rows = run.drain(shop.changes(maxRowsPerTrigger=1))
    assert ids(rows) == [1, 2, 3]
    assert [row.transaction.domain_id for row in rows] == [0, 7, 0]
    assert run.offsets()[-1]["gtid"] == str(GtidPosition.parse(shop.primary.gtid_binlog_pos()))


def test_two_actions_on_a_batch_see_the_same_rows(shop: Shop) -> None:
    shop.insert(1, 5)
    seen: list[tuple[int, list[int]]] = []
    query = (
        shop.changes()
        .writeStream.foreachBatch(lambda batch, _: seen.append((batch.count(), ids(batch.collect()))))
        .option("checkpointLocation", str(shop.folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(90)
    assert [pair for pair in seen if pair[0]] == [(5, [1, 2, 3, 4, 5])]
