"""Tables first, then their changes (startingPosition=initial): a strict sink is as the server at the end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streaming_source.rows.read_plan import FIRST_ORDINAL
from tests.fixtures.load.beside import moving_keys
from tests.spark.queries import Shop, wait
from tests.spark.strict_sink import StrictSink, fill, state

pytestmark = [pytest.mark.spark, pytest.mark.server]


@pytest.mark.parametrize("shape", [pytest.param("envelope", marks=pytest.mark.slow), "flat"])
def test_a_table_under_writers_with_a_crash_behind_every_step(shop: Shop, shape: str) -> None:
    fill(shop, 3000)
    run, sink = shop.run(), StrictSink()

    def changes() -> Any:
        pace = {"snapshotChunkRows": 200, "snapshotRowsPerSecond": 300, "maxRowsPerTrigger": 1000}
        return shop.changes(startingPosition="initial", rowShape=shape, **pace)

    def rows_read() -> int:
        texts = (row["_sequence"] for row in run.rows) if shape == "flat" else None
        ordinals = [int(text[-12:]) for text in texts] if texts else [row.transaction.ordinal for row in run.rows]
        return sum(ordinal >= FIRST_ORDINAL for ordinal in ordinals)

    with moving_keys(shop.primary, shop.orders, keys=3500):
        for step in range(2):
            before, query = rows_read() if step else 0, run.start(changes())
            wait(lambda: rows_read() > before, "rows", query)  # noqa: B023  (it is called at once)
            query.stop()
            if max(run.batches, default=0):
                run.forget_commit(max(run.batches))
            if step:
                shop.lose_relay()
            if run.offsets()[-1].get("snapshot", {"done": True}).get("done"):
                break
    run.drain(changes())
    rows = run.rows
    (sink.apply_flat if shape == "flat" else sink.apply_envelope)(rows)
    assert sink.rows == state(shop)
    assert sink.reads > 300
    offsets = run.offsets()
    assert max(len(json.dumps(offset)) for offset in offsets) < 4096
    assert len({(offset["gtid"], json.dumps(offset.get("snapshot"))) for offset in offsets}) == len(offsets)


@pytest.mark.slow
def test_many_tables_as_variant_available_now(shop: Shop) -> None:
    database = shop.database
    fill(shop, 500)
    shop.sql(
        f"CREATE TABLE {database}.empty (id INT PRIMARY KEY)",
        f"CREATE TABLE {database}.lines (a INT, b VARCHAR(20) COLLATE utf8mb4_unicode_ci, n INT, PRIMARY KEY (a, b))",
        f"INSERT INTO {database}.lines SELECT seq % 3, CONCAT('L', seq), seq FROM {database}.seq_1_to_200",
        f"CREATE TABLE {database}.one (id BIGINT UNSIGNED PRIMARY KEY, v VARCHAR(9))",
        f"INSERT INTO {database}.one VALUES (18446744073709551615, 'last')",
    )
    run = shop.run()
    with moving_keys(shop.primary, shop.orders, keys=600):
        rows = run.drain(shop.changes(tables=f"{database}.*", startingPosition="initial", snapshotChunkRows=100))
    rows = run.drain(shop.changes(tables=f"{database}.*", startingPosition="initial"))
    sinks: dict[str, dict[Any, Any]] = {}
    for row in rows:
        before, after = (None if image is None else json.loads(image.toJson()) for image in (row.before, row.after))
        key = (lambda image: (image["a"], image["b"])) if row.table == "lines" else (lambda image: image["id"])
        sink = sinks.setdefault(row.table, {})
        if before is not None:
            assert sink.pop(key(before)) == before
        if after is not None:
            assert key(after) not in sink
            sink[key(after)] = after
    assert {key: image["n"] for key, image in sinks["lines"].items()} == {
        (a, b): n for a, b, n in shop.sql(f"SELECT a, b, n FROM {database}.lines")
    }
    assert sinks["one"] == {18446744073709551615: {"id": 18446744073709551615, "v": "last"}}
    assert {key: image["name"] for key, image in sinks["orders"].items()} == {
        key: row[1] for key, row in state(shop).items()
    }
    assert "empty" not in sinks


@pytest.mark.slow
def test_once_is_one_batch_with_all_rows_and_goes_on(shop: Shop) -> None:
    fill(shop, 300)
    run, sink = shop.run(), StrictSink()
    first = shop.changes(startingPosition="initial", snapshotChunkRows=50)
    assert len(run.drain(first, once=True)) == 300
    shop.sql(f"DELETE FROM {shop.orders} WHERE id <= 100")
    run.forget_commit(max(run.batches))
    shop.lose_relay()
    run.drain(shop.changes(startingPosition="initial"), once=True)
    run.drain(shop.changes(startingPosition="initial"), once=True)
    sink.apply_envelope(run.rows)
    assert sink.rows == state(shop)
    assert sink.reads == 300


def test_what_cannot_be_read_is_refused_at_the_start_by_name(shop: Shop) -> None:
    shop.sql(
        f"CREATE TABLE {shop.database}.nokey (a INT)",
        f"CREATE TABLE {shop.database}.old (a INT PRIMARY KEY) ENGINE=MyISAM",
    )
    query = shop.run().start(shop.changes(tables=f"{shop.database}.*", startingPosition="initial"))
    with pytest.raises(Exception, match=r"(?s)nokey.*old"):
        query.awaitTermination(60)
    with pytest.raises(Exception, match=r"startingPosition=initial is for spark\.readStream"):
        shop.spark.read.format("mariadb-binlog").options(
            host=shop.primary.host,
            port=str(shop.primary.port),
            user="repl",
            password="replica-secret",
            table=shop.orders,
            startingPosition="initial",
        ).load().collect()
