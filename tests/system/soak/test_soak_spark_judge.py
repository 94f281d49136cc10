"""`scripts/soak spark` without Spark: its load, its oracle, and its judge on a right sink and on wrong ones."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import VariantVal

from tests.fixtures.mariadb import wait_until
from tests.integration.snapshot.kit.query import SnapshotQuery
from tools.proofs.soak.daemon.pair import DATABASE
from tools.proofs.soak.spark import judge
from tools.proofs.soak.spark.app import LONG_TEXT
from tools.proofs.soak.spark.load import Load
from tools.proofs.soak.spark.oracle import written
from tools.proofs.soak.spark.points import QueryFolders

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.snapshot.kit.query import Row

SEED, TRANSACTIONS = 7, 300
OPTIONS = {"startingPosition": "earliest", "onStatementDml": "ignore", "maxBytesPerTrigger": "16m"}
TYPES = {"key": pa.int64(), "before": pa.string(), "after": pa.string()}


def _text(image: Row | None) -> str | None:
    if image is None:
        return None
    text = VariantVal(image["value"], image["metadata"]).toJson()
    digest = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
    return text if len(text) <= LONG_TEXT else json.dumps({"md5": digest}, separators=(",", ":"))


def _key(row: Row) -> int | None:
    for side in ("after", "before"):
        if (image := row[side]) is not None:
            values: dict[str, Any] = VariantVal(image["value"], image["metadata"]).toPython()
            return next((values[name] for name in ("id", "number") if name in values), None)
    return None


def _columns(row: Row) -> dict[str, Any]:
    transaction = {name: row["transaction"][name] for name in (*judge.IDENTITY, "is_last")}
    images = {side: _text(row[side]) for side in ("before", "after")}
    return transaction | {"op": row["op"], "table": row["table"], "key": _key(row)} | images


def _fill(query: QueryFolders, rows: list[dict[str, Any]]) -> None:
    """Make a sink that has these rows, and nothing else."""
    columns = {name: pa.array([row[name] for row in rows], TYPES.get(name)) for name in rows[0]}
    pq.write_table(pa.table(columns), query.output / "part-0.parquet")
    entry = {"path": f"file://{query.output}/part-0.parquet", "action": "add"}
    (query.sink_log / "0").write_text(f"v1\n{json.dumps(entry)}")


@pytest.mark.server
def test_a_sink_with_every_change_once_is_right_and_others_are_not(tmp_path: Path) -> None:
    sink = QueryFolders("parquet", tmp_path / "checkpoint", tmp_path / "output")
    sink.make()
    with Load(None, SEED, max_backlog=1 << 20) as load:
        wait_until(lambda: load.transactions > TRANSACTIONS, "the load wrote")
        target = load.finish()
        with SnapshotQuery(load.primary, tmp_path, f"{DATABASE}.*", **OPTIONS) as query:
            found: list[Row] = []
            while not query.has(target):
                start, end = query.plan()
                found += query.rows(start, end)
                query.committed(end)
        rows = list(map(_columns, found))
        oracle = written(load.primary, load.binlogs(), load.crashed_logs)
        _fill(sink, rows)
        assert judge.check(sink, oracle, load) == len(rows) > TRANSACTIONS
        last = max(number for number, row in enumerate(rows) if row["table"] == "item" and row["op"] == "update")
        for wrong, said in (
            (rows[:last] + rows[last + 1 :], "row changes are missing"),
            ([*rows, rows[last]], "more than once"),
            ([row | {"after": row["before"]} if number == last else row for number, row in enumerate(rows)], "item"),
        ):
            _fill(sink, wrong)
            with pytest.raises(AssertionError, match=said):
                judge.check(sink, oracle, load)
