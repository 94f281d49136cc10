"""Where batches end on a real server: at its own position under AvailableNow and Once while it is written to, inside a
large transaction where that is allowed, and not before enough rows are there.
"""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from replica.protocol.gtid import Gtid, GtidPosition
from streaming_source.ranges.places import covers
from tests.spark.queries import Run, Shop, ids, wait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.server]

IDLE_PROGRESS = "spark.sql.streaming.noDataProgressEventInterval"
PAUSE_S = 0.002
"""Between two transactions: a few hundred a second, so that a limited query can keep up with what it must read."""


@contextmanager
def _written(shop: Shop, first: int) -> Iterator[list[tuple[int, Gtid]]]:
    """One order a transaction, in two domains in turn, for as long as the block runs: ids, and GTIDs."""
    written: list[tuple[int, Gtid]] = []
    stopping = threading.Event()

    def write() -> None:
        with shop.primary.connect(autocommit=True) as connection, connection.cursor() as cursor:
            number = first
            while not stopping.wait(PAUSE_S):
                cursor.execute(f"SET gtid_domain_id = {number % 2 * 3}")
                cursor.execute(f"INSERT INTO {shop.orders} VALUES ({number}, 'under load', 1)")
                cursor.execute("SELECT @@last_gtid")
                written.append((number, Gtid.parse(cursor.fetchone()[0])))
                number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        wait(lambda: len(written) > 100, "the load")
        yield written
    finally:
        stopping.set()
        writer.join()


def _end(run: Run) -> GtidPosition:
    return GtidPosition.parse(run.offsets()[-1]["gtid"])


def test_available_now_and_once_end_where_the_primary_was_under_load(shop: Shop) -> None:
    """Each reads what was committed when it began and nothing after; Once in one batch, also without a relay log."""
    limits = {
        "maxRowsPerTrigger": 120,
        "maxTransactionsPerTrigger": 100,
        "minRowsPerTrigger": 120,
        "maxBytesPerTrigger": "1m",
    }
    run, fresh = shop.run(), shop.run("once")
    with _written(shop, 1) as written:
        for reading, once in ((run, False), (run, True), (fresh, True)):
            batches = len(reading.batches)
            before = GtidPosition.parse(shop.primary.gtid_binlog_pos())
            if once and batches:
                shop.lose_relay()
            folder = shop.folder / ("relay" if reading is run else "another relay")
            rows = reading.drain(shop.changes(**limits, relayDir=folder), once=once)
            after = GtidPosition.parse(shop.primary.gtid_binlog_pos())
            end = _end(reading)
            assert covers(end, before)
            assert covers(after, end)
            assert after != end
            due = {number for number, gtid in list(written) if gtid.seq_no <= end[gtid.domain_id].seq_no}
            assert sorted(ids(rows)) == sorted(due)
            more = [len(found) for number, found in sorted(reading.batches.items()) if number >= batches]
            assert len(more) == 1 if once else max(more) <= 100
    assert len(run.batches) > 3  # the anchor, two or more of AvailableNow, one of Once


@pytest.mark.parametrize("kind", ["plain", "xa"])
def test_a_transaction_in_pieces_is_whole_after_a_crash_between_them(shop: Shop, kind: str) -> None:
    rows = 900
    first = ",".join(f"({i}, 'many', 1)" for i in range(rows - 100))
    last = ",".join(f"({i}, 'many', 1)" for i in range(rows - 100, rows))
    begin, commit = ("BEGIN",), ("COMMIT",)
    if kind == "xa":
        begin, commit = ("XA START 'p'",), ("XA END 'p'", "XA PREPARE 'p'", "XA COMMIT 'p'")
    shop.insert(5000)
    shop.sql(*begin, f"INSERT INTO {shop.orders} VALUES {first}", f"INSERT INTO {shop.orders} VALUES {last}", *commit)
    shop.insert(6000)
    limits = {"maxRowsPerTrigger": 400, "splitLargeTransactions": "true"}
    run = shop.run()
    whole = ids(run.drain(shop.changes(**limits)))
    assert whole == [5000, *range(rows), 6000]
    sizes = {number: len(found) for number, found in run.batches.items() if found}
    assert list(sizes.values()) == [1, 400, 400, 100, 1]
    parts = [offset["part"]["rows"] for offset in run.offsets() if "part" in offset]
    assert parts == [400, 800]
    # As a crash in the second piece leaves it, with nothing of the relay log.
    for number in [n for n in run.batches if n >= list(sizes)[2]]:
        run.forget_commit(number)
        (run.checkpoint / "offsets" / str(number + 1)).unlink(missing_ok=True)
        (run.checkpoint / "offsets" / f".{number + 1}.crc").unlink(missing_ok=True)
        del run.batches[number]
    shop.lose_relay()
    again = run.drain(shop.changes(**limits))
    assert ids(again) == whole
    large = [row.transaction for row in again if row.after.name == "many"]
    assert [row.ordinal for row in large] == list(range(rows))
    assert [row.ordinal for row in large if row.is_last] == [rows - 1]
    assert len({row.gtid for row in large}) == 1


def test_a_batch_waits_for_its_rows_and_the_progress_says_so(shop: Shop) -> None:
    run = shop.run()
    shop.spark.conf.set(IDLE_PROGRESS, "100ms")
    try:
        query = run.start(shop.changes(minRowsPerTrigger=5, maxTriggerDelay="10m"))
        wait((run.checkpoint / "commits" / "0").exists, "the first batch, which is empty", query)
        shop.insert(1, 3)
        wait(lambda: _reported(query).get("rowsWaiting") == 3, "three rows that wait", query)
        assert _reported(query)["bytesBehind"] > 0
        assert 500 < _reported(query)["waitsAtMostSeconds"] <= 600
        assert run.rows == []
        shop.insert(4, 2)
        wait(lambda: run.rows, "rows", query)
        query.stop()
    finally:
        shop.spark.conf.unset(IDLE_PROGRESS)
    assert [ids(rows) for rows in run.batches.values() if rows] == [[1, 2, 3, 4, 5]]


def _reported(query: StreamingQuery) -> dict[str, Any]:
    progress = query.lastProgress
    report: dict[str, Any] | None = json.loads(progress["sources"][0]["latestOffset"] or "null") if progress else None
    return report or {}
