"""Where batches end on a real server: at its own position under AvailableNow and Once while it is written to, inside a
large transaction where that is allowed, and not before enough rows are there.
"""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from replica.protocol.gtid import Gtid, GtidPosition, covers
from tests.spark.queries import Run, Shop, frequent_progress, ids, wait

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.server]

AT_FIRST = 101
"""Transactions before a query begins: one more than a batch may have."""
PAUSE_S = 0.02
"""Between those that come later: what a slow start of the queries adds must stay a few batches."""


@contextmanager
def _written(shop: Shop, first: int) -> Iterator[list[tuple[int, Gtid]]]:
    """One order a transaction, in two domains in turn, for as long as the block runs: ids, and GTIDs."""
    written: list[tuple[int, Gtid]] = []
    stopping = threading.Event()

    def write() -> None:
        with shop.primary.connect(autocommit=True) as connection, connection.cursor() as cursor:
            number = first
            while not stopping.wait(PAUSE_S if len(written) >= AT_FIRST else 0):
                cursor.execute(f"SET gtid_domain_id = {number % 2 * 3}")
                cursor.execute(f"INSERT INTO {shop.orders} VALUES ({number}, 'under load', 1)")
                cursor.execute("SELECT @@last_gtid")
                written.append((number, Gtid.parse(cursor.fetchone()[0])))
                number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        wait(lambda: len(written) >= AT_FIRST, "the load")
        yield written
    finally:
        stopping.set()
        writer.join()


class _UnderLoad(Run):
    """Holds each batch until the primary has gone on behind its end."""

    def __init__(self, folder: Path, written: list[tuple[int, Gtid]]) -> None:
        super().__init__(folder)
        self._written = written

    def _keep(self, batch: DataFrame, batch_id: int) -> None:
        super()._keep(batch, batch_id)
        known = len(self._written)  # the next one was perhaps committed when the batch was planned
        wait(lambda: len(self._written) >= known + 2, "the primary goes on")


def _end(run: Run) -> GtidPosition:
    return GtidPosition.parse(run.offsets()[-1]["gtid"])


@pytest.mark.slow  # test_initial_start.py has availableNow
def test_available_now_and_once_end_where_the_primary_was_under_load(shop: Shop) -> None:
    """Each reads what was committed when it began and nothing after; Once in one batch, also without a relay log."""
    limits = {
        "maxRowsPerTrigger": 120,
        "maxTransactionsPerTrigger": 100,
        "minRowsPerTrigger": 120,
        "maxBytesPerTrigger": "1m",
    }
    with _written(shop, 1) as written:
        run, fresh = (_UnderLoad(shop.folder / name, written) for name in ("run", "once"))
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


@pytest.mark.parametrize("kind", ["plain", pytest.param("xa", marks=pytest.mark.slow)])
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
    with frequent_progress(shop.spark):
        query = run.start(shop.changes(minRowsPerTrigger=5, maxTriggerDelay="1h"))
    wait((run.checkpoint / "commits" / "0").exists, "the first batch, which is empty", query)
    shop.insert(1, 3)
    wait(lambda: _reported(query).get("rowsWaiting") == 3, "three rows that wait", query)
    report = _reported(query)
    assert report["bytesBehind"] > 0
    assert 1800 < report["waitsAtMostSeconds"] <= 3600
    assert run.rows == []
    shop.insert(4, 2)
    wait(lambda: run.rows, "rows", query)
    query.stop()
    assert [ids(rows) for rows in run.batches.values() if rows] == [[1, 2, 3, 4, 5]]


def _reported(query: StreamingQuery) -> dict[str, Any]:
    progress = query.lastProgress
    report: dict[str, Any] | None = json.loads(progress["sources"][0]["latestOffset"] or "null") if progress else None
    return report or {}
