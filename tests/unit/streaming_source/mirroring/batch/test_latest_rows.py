"""The last change of each key is what a replay of all changes ends with, wherever rows and partitions are cut."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_source.mirroring.batch import latest_rows as module
from streaming_source.mirroring.batch.batch_facts import TableChanges
from streaming_source.mirroring.batch.latest_rows import (
    MOST_BYTES,
    MOST_CHANGES,
    LatestOfTable,
    fits_one_task,
    last_places,
)
from streaming_source.mirroring.batch.manifest import read_manifest
from streaming_source.mirroring.batch.table_rows import RowsOfTable, TablePartition, numbered
from streaming_source.rows.partition import ChangePartition
from streaming_source.schema.row_schema import TableColumn, arrow_schema
from tests.unit.streaming_source.mirroring.batch.test_manifest import FILE, PLAN, READ, _only, partition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PROJECT = Path(__file__).resolve().parents[5]
FLAT = pa.schema(
    [pa.field(name, pa.int32()) for name in "01"]
    + [pa.field("_change_type", pa.string()), pa.field("_history", pa.bool_())]
)
KEYS, VALUES = st.none() | st.integers(0, 3), st.integers(0, 99)
CHANGES = st.one_of(
    st.tuples(st.just("insert"), KEYS, KEYS, VALUES),
    st.tuples(st.just("delete"), KEYS, KEYS, VALUES),
    st.tuples(st.just("update"), KEYS, KEYS, VALUES),
    st.tuples(st.sampled_from(["ended insert", "ended delete", "ended update"]), KEYS, KEYS, VALUES),
)
"""What happens, the key before and behind, and the value behind."""


def flat(changes: Sequence[tuple[str, Any, Any, int]]) -> list[tuple[Any, int, str, bool | None]]:
    """Return flat rows, an update as two."""
    rows: list[tuple[Any, int, str, bool | None]] = []
    for what, old, new, value in changes:
        ended, _, kind = what.rpartition(" ")
        mark = True if ended else None
        if kind == "update":
            rows += [(old, value, "update_preimage", None), (new, value, "update_postimage", mark)]
        else:
            rows.append((old, value, kind, mark))
    return rows


def replayed(changes: Sequence[tuple[str, Any, Any, int]]) -> dict[Any, int | None]:
    """Return the value of each key that something happened to; None where it is gone."""
    found: dict[Any, int | None] = {}
    for what, old, new, value in changes:
        ended, _, kind = what.rpartition(" ")
        if kind == "update":
            found[old] = None
            found[new] = None if ended else value
        elif not ended:
            found[old] = value if kind == "insert" else None
    return found


@given(parts=st.lists(st.lists(CHANGES, max_size=12), max_size=4), cut=st.integers(1, 5), data=st.data())
def test_a_replay_ends_the_same(parts: list[list[Any]], cut: int, data: st.DataObject) -> None:
    def batches(partition: ChangePartition, _plan: Any) -> Iterator[pa.RecordBatch]:
        rows = flat(parts[partition.ranges[0].start])  # type: ignore[union-attr]
        for first in range(0, len(rows), cut):
            some = [dict(zip(FLAT.names, row, strict=True)) for row in rows[first : first + cut]]
            yield pa.RecordBatch.from_pylist(some, schema=FLAT)

    told = [
        TablePartition(number, ChangePartition((replace(partition().ranges[0], start=number),)), PLAN, None)
        for number in range(len(parts))
    ]
    shuffled = data.draw(st.permutations(told))
    columns = (TableColumn("id", "INT"), TableColumn("v", "INT"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "table_partitions", lambda _: iter(shuffled))
        patch.setattr("streaming_source.rows.reader.read_changes", batches)
        made = [row for batch in LatestOfTable(("shop", "orders"), columns, ("0",))([]) for row in batch.to_pylist()]
    found = {row["0"]: None if row["2"] else row["1"] for row in made}
    assert len(found) == len(made)
    assert found == replayed([change for part in parts for change in part])


@given(st.lists(st.tuples(st.none() | st.text("ab", max_size=2), st.none() | st.integers(0, 3), st.booleans())))
def test_keys_of_several_columns_are_told_apart(rows: list[tuple[Any, ...]]) -> None:
    kinds = {"0": pa.string(), "1": pa.int64(), "2": pa.bool_()}
    batch = pa.RecordBatch.from_pylist(
        [dict(zip(kinds, row, strict=True)) for row in rows], schema=pa.schema(list(kinds.items()))
    )
    for keys in (["0"], ["0", "1"], ["2", "0", "1"]):
        last = {tuple(row[int(key)] for key in keys): place for place, row in enumerate(rows)}
        assert last_places(batch, keys).to_pylist() == sorted(last.values())


def test_real_changes_end_as_their_rows_do() -> None:
    name = ("v.1", "prefix_key")
    manifest = _only(list(read_manifest(partition(), PLAN)), name)
    rows = [row for batch in RowsOfTable(*name, None)(manifest) for row in batch.to_pylist()]
    assert {row["op"] for row in rows} == {"insert", "update", "delete"}
    columns = (*(TableColumn(one, "INT") for one in ("a", "b", "x1", "x2", "x3")), TableColumn("c", "STRING"))
    (batch,) = LatestOfTable(name, columns, ("0", "5"))(manifest)
    assert batch.schema == arrow_schema(numbered(columns).add("6", "boolean"))
    assert batch.to_pylist() == [{"0": 1, "1": 3, "2": 3, "3": 4, "4": 5, "5": "abc", "6": True}]


def test_rows_that_were_read_are_left_to_who_appends_them() -> None:
    name = ("v.1", "simple_key")
    columns = (TableColumn("a", "INT"), TableColumn("b", "INT"), TableColumn("c", "STRING"))
    manifest = _only(list(read_manifest(partition(READ), PLAN)), name)
    assert list(LatestOfTable(name, columns, ("0",))(manifest)) == []


@pytest.mark.parametrize(
    ("changes", "kind", "expected"),
    [
        (TableChanges(changes=MOST_CHANGES, bytes=MOST_BYTES, domains=1), "INT", True),
        (TableChanges(changes=1, reads=10**9, domains=1), "DECIMAL(10,2)", True),
        (TableChanges(changes=MOST_CHANGES + 1, domains=1), "INT", False),
        (TableChanges(changes=1, bytes=MOST_BYTES + 1, domains=1), "INT", False),
        (TableChanges(changes=1, partial=True, domains=1), "INT", False),
        (TableChanges(changes=2, domains=2), "INT", False),
        (TableChanges(changes=1, domains=1), "DOUBLE", False),
        (TableChanges(changes=1, domains=1), "ARRAY<STRING>", False),
    ],
)
def test_what_one_task_cannot_tell_is_left_to_spark(changes: TableChanges, kind: str, *, expected: bool) -> None:
    columns = (TableColumn("id", kind), TableColumn("v", "FLOAT"))
    assert fits_one_task(changes, columns, ["id"]) is expected
    assert not fits_one_task(changes, columns, ["id", "other"])


def test_the_task_imports_no_pandas() -> None:
    script = (
        "import sys; from tests.unit.streaming_source.mirroring.batch import test_latest_rows as t; "
        "import pyarrow as pa; brought = 'pandas' in sys.modules; "
        "from streaming_source.mirroring.batch.latest_rows import last_places, with_deleted; "
        "from replica.rows.types.arrow_arrays import array_of_values as made; "
        "rows = pa.RecordBatch.from_arrays([made([1, 1], pa.int32()), made([2, 3], pa.int32()), "
        "made(['insert', 'delete'], pa.string()), made([None, True], pa.bool_())], schema=t.FLAT); "
        "told = with_deleted(rows, 2); last = told.take(last_places(told, ['0'])); "
        "print(last.num_rows, brought, 'pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout == "1 False False\n"
    assert FILE.exists()
