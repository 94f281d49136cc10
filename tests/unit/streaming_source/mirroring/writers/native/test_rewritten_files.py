"""Files that are written again have the rows that a dictionary of their keys holds; some tables are left to a MERGE."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_source.mirroring.writers.native import rewritten_files
from streaming_source.mirroring.writers.native.data_files import (
    NativeWriteError,
    TableFile,
    files_of,
    old_bytes,
    rows_of,
    write_file,
)
from streaming_source.mirroring.writers.native.rewritten_files import (
    FileKeys,
    files_with_keys,
    is_rewritable,
    rewritten,
)

if TYPE_CHECKING:
    from pathlib import Path

    Rows = dict[tuple[Any, ...], str]

KEYS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "whole": (pa.int64(), st.sampled_from((0, 1, -1, 2**63 - 1))),
    "unsigned": (pa.decimal128(20, 0), st.sampled_from((0, 2**63, 2**64 - 1)).map(Decimal)),
    "text": (pa.string(), st.sampled_from(("", "a", "A", "a ", "é", "e\u0301", "a\0"))),
    "bytes": (pa.binary(), st.sampled_from((b"", b"\0", b"\0\0", b"\xff"))),
    "day": (pa.date32(), st.sampled_from((dt.date(1, 1, 1), dt.date(9999, 12, 31)))),
    "time": (pa.timestamp("us", "UTC"), st.integers(0, 2).map(lambda us: dt.datetime(2024, 1, 1, 0, 0, 0, us, dt.UTC))),
    "local": (pa.timestamp("us"), st.integers(0, 2).map(lambda us: dt.datetime(2024, 1, 1, 0, 0, 0, us))),  # noqa: DTZ001
    "truth": (pa.bool_(), st.booleans()),
}


def schema_of(keys: tuple[str, ...]) -> pa.Schema:
    fields = [pa.field(name, KEYS[name][0], nullable=False) for name in keys]
    return pa.schema([*fields[:1], pa.field("v", pa.string()), *fields[1:]])


def table_of(schema: pa.Schema, keys: tuple[str, ...], rows: Rows) -> pa.Table:
    columns = {name: [key[number] for key in rows] for number, name in enumerate(keys)} | {"v": list(rows.values())}
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


def rows_in(folder: Path, schema: pa.Schema, keys: tuple[str, ...]) -> list[tuple[Any, Any]]:
    """The rows of a table, by delta-rs."""
    found = pa.table(DeltaTable(str(folder)).to_pyarrow_table()).to_pylist()
    return sorted(((tuple(row[name] for name in keys), row["v"]) for row in found), key=repr)


@pytest.mark.parametrize(
    ("small", "joined"), [(rewritten_files.SMALL_BYTES, rewritten_files.JOINED_BYTES), (-1, 1 << 20), (-1, 1)]
)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_rows_are_those_of_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, small: int, joined: int
) -> None:
    keys = tuple(data.draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=3, unique=True)))
    schema, key = schema_of(keys), st.tuples(*(KEYS[name][1] for name in keys))
    folder = tmp_path_factory.mktemp("table")
    table = DeltaTable.create(str(folder), schema)
    model: Rows = {}
    of_file: dict[str, set[tuple[Any, ...]]] = {}
    for number in range(data.draw(st.integers(0, 3))):  # files, of other keys each
        rows = {one: f"{number}" for one in data.draw(st.lists(key, unique=True)) if one not in model}
        model |= rows
        before = {file.path for file in files_of(DeltaTable(str(folder)))}
        write_deltalake(str(folder), table_of(schema, keys, rows), mode="append")
        of_file |= {file.path: set(rows) for file in files_of(DeltaTable(str(folder))) if file.path not in before}
    changes = dict.fromkeys(data.draw(st.lists(key, min_size=1, unique=True)), "new")
    gone = data.draw(st.none() | st.lists(st.booleans(), min_size=len(changes), max_size=len(changes)))
    for one, goes in zip(changes, gone or [False] * len(changes), strict=True):
        model.pop(one, None)
        if not goes:
            model[one] = "new"
    table = DeltaTable(str(folder))
    files = files_of(table)
    assert is_rewritable(table, files, schema, "current", keys)
    ends = None if gone is None else pa.chunked_array([pa.array(gone, pa.bool_())])
    changed = table_of(schema, keys, changes)
    there = set(folder.glob("*.parquet"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewritten_files, "SMALL_BYTES", small)
        patch.setattr(rewritten_files, "JOINED_BYTES", joined)
        changed_keys = FileKeys(schema, changed.select(list(keys)))
        met = files_with_keys(str(folder), files, changed_keys, {}, marks=False).copied
        new = rewritten(str(folder), met, schema, changed_keys, changed, ends)
    if small < 0:
        assert {file.path for file in met} == {path for path, rows in of_file.items() if rows & set(changes)}
    assert {path.name for path in {*folder.glob("*.parquet")} - there} == {file.path for file in new}
    actions = [file.added(data_change=True) for file in new]
    table.create_write_transaction(
        [*actions, *(file.removed(data_change=True) for file in met)], "append", table.schema()
    )
    assert rows_in(folder, schema, keys) == sorted(model.items(), key=repr)


KEYED = ("whole",)


def made(folder: Path, schema: pa.Schema | None = None, **configuration: str) -> DeltaTable:
    schema = schema_of(KEYED) if schema is None else schema
    DeltaTable.create(str(folder), schema, configuration=configuration, raise_if_key_not_exists=False)
    rows: Rows = {(number,): "x" for number in range(3)}
    write_deltalake(str(folder), table_of(schema_of(KEYED), KEYED, rows).cast(schema), mode="append")
    return DeltaTable(str(folder))


def key_table(number: int) -> pa.Table:
    return pa.table({"whole": pa.array([number], pa.int64())})


def rewritable(table: DeltaTable, schema: pa.Schema, mode: str = "current") -> bool:
    return is_rewritable(table, files_of(table), schema, mode, KEYED)


def test_versions_of_rows_are_merged(tmp_path: Path) -> None:
    table, schema = made(tmp_path), schema_of(KEYED)
    assert rewritable(table, schema)
    assert rewritable(table, schema, "soft_delete")
    assert not rewritable(table, schema, "history")


def test_a_file_whose_limits_exclude_the_keys_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewritten_files, "SMALL_BYTES", -1)
    table, schema = made(tmp_path), schema_of(KEYED)
    write_deltalake(str(tmp_path), table_of(schema, KEYED, {(100,): "x", (102,): "x"}), mode="append")
    files = files_of(DeltaTable(str(tmp_path)))
    looked: list[int] = []
    met = FileKeys._changed_rows

    def seen(keys: Any, rows: pa.RecordBatch) -> Any:
        looked.append(rows.num_rows)
        return met(keys, rows)

    monkeypatch.setattr(FileKeys, "_changed_rows", seen)
    for number, rows in ((1, [3]), (100, [2]), (101, [2]), (50, [])):
        looked.clear()
        found = files_with_keys(str(tmp_path), files, FileKeys(schema, key_table(number)), {}, marks=False)
        assert (looked, len(found.copied)) == (rows, int(number in (1, 100)))
    assert table.version() == 1


def test_old_bytes_are_those_of_files_that_no_version_of_now_has(tmp_path: Path) -> None:
    made(tmp_path)
    assert old_bytes(str(tmp_path), files_of(DeltaTable(str(tmp_path)))) == 0
    (tmp_path / "ab").mkdir()
    (tmp_path / "ab" / "old.parquet").write_bytes(b"x" * 10)
    (tmp_path / "ab" / "gone.parquet").symlink_to(tmp_path / "removed meanwhile")
    DeltaTable(str(tmp_path)).create_checkpoint()
    assert old_bytes(str(tmp_path), files_of(DeltaTable(str(tmp_path)))) == 10


def test_long_rows_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("v", pa.binary())])
    batch = pa.RecordBatch.from_arrays([pa.array([bytes([number]) * (12 << 20) for number in range(5)])], schema=schema)
    file = write_file(str(tmp_path), schema, ["v"], [batch])
    assert file is not None
    read = rows_of(str(tmp_path), [TableFile(file.path, file.size, 0, 5)], schema)
    assert max(rows.num_rows for rows in read) == 2


def test_a_table_whose_rows_may_not_go_or_have_conditions_is_merged_into(tmp_path: Path) -> None:
    assert not rewritable(made(tmp_path / "log", **{"delta.appendOnly": "true"}), schema_of(KEYED))
    ruled = pa.schema([field.with_metadata({b"delta.invariants": b"{}"}) for field in schema_of(KEYED)])
    assert not rewritable(made(tmp_path / "t"), ruled)
    floats = pa.schema([pa.field("whole", pa.float64()), pa.field("v", pa.string())])
    assert not rewritable(made(tmp_path / "f", floats), floats)


def test_a_file_without_the_rows_that_the_log_counts_is_refused(tmp_path: Path) -> None:
    table, schema = made(tmp_path), schema_of(KEYED)
    (file,) = files_of(table)
    there = sorted(tmp_path.glob("*.parquet"))
    changes, keys = table_of(schema, KEYED, {(1,): "new"}), FileKeys(schema, key_table(1))
    with pytest.raises(NativeWriteError, match="do not have as many rows as the log says"):
        rewritten(str(tmp_path), [file._replace(rows=4)], schema, keys, changes, None)
    assert sorted(tmp_path.glob("*.parquet")) == there, "no new file is left"
