"""A small table that is written again has the rows that a dictionary of its keys holds; others are left to a MERGE."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_source.mirroring.writers.native import small_tables
from streaming_source.mirroring.writers.native.data_files import NativeWriteError
from streaming_source.mirroring.writers.native.small_tables import is_small, written_again
from streaming_source.mirroring.writers.native.table_files import files_of

if TYPE_CHECKING:
    from pathlib import Path

    from streaming_source.mirroring.writers.native.data_files import DataFile

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


def rows_in(folder: Path, file: DataFile | None, schema: pa.Schema, keys: tuple[str, ...]) -> list[tuple[Any, Any]]:
    """The rows of a file, by a table that has it alone."""
    if file is None:
        return []
    table = DeltaTable.create(str(folder / "read"), schema)
    (folder / file.path).rename(folder / "read" / file.path)
    table.create_write_transaction([file.added(data_change=True)], "append", table.schema())
    found = pa.table(DeltaTable(str(folder / "read")).to_pyarrow_table()).to_pylist()
    return sorted(((tuple(row[name] for name in keys), row["v"]) for row in found), key=repr)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_rows_are_those_of_a_dictionary(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    keys = tuple(data.draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=3, unique=True)))
    schema, key = schema_of(keys), st.tuples(*(KEYS[name][1] for name in keys))
    folder = tmp_path_factory.mktemp("table")
    table = DeltaTable.create(str(folder), schema)
    model: Rows = {}
    for number in range(data.draw(st.integers(0, 3))):  # files, of other keys each
        rows = {one: f"{number}" for one in data.draw(st.lists(key, unique=True)) if one not in model}
        model |= rows
        write_deltalake(str(folder), table_of(schema, keys, rows), mode="append")
    changes = dict.fromkeys(data.draw(st.lists(key, min_size=1, unique=True)), "new")
    gone = data.draw(st.none() | st.lists(st.booleans(), min_size=len(changes), max_size=len(changes)))
    for one, goes in zip(changes, gone or [False] * len(changes), strict=True):
        model.pop(one, None)
        if not goes:
            model[one] = "new"
    table = DeltaTable(str(folder))
    files = files_of(table)
    assert is_small(table, files, schema, "current", keys)
    ends = None if gone is None else pa.chunked_array([pa.array(gone, pa.bool_())])
    before = set(folder.glob("*.parquet"))
    file = written_again(str(folder), files, schema, keys, table_of(schema, keys, changes), ends)
    assert {path.name for path in {*folder.glob("*.parquet")} - before} == ({file.path} if file else set())
    assert rows_in(folder, file, schema, keys) == sorted(model.items(), key=repr)


KEYED = ("whole",)


def made(folder: Path, schema: pa.Schema | None = None, **configuration: str) -> DeltaTable:
    schema = schema_of(KEYED) if schema is None else schema
    DeltaTable.create(str(folder), schema, configuration=configuration, raise_if_key_not_exists=False)
    rows: Rows = {(number,): "x" for number in range(3)}
    write_deltalake(str(folder), table_of(schema_of(KEYED), KEYED, rows).cast(schema), mode="append")
    return DeltaTable(str(folder))


def small(table: DeltaTable, schema: pa.Schema, mode: str = "current") -> bool:
    return is_small(table, files_of(table), schema, mode, KEYED)


def test_a_table_that_is_too_large_is_merged_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, schema = made(tmp_path), schema_of(KEYED)
    assert small(table, schema)
    assert small(table, schema, "soft_delete")
    assert not small(table, schema, "history")
    for name, most in (("MOST_ROWS", 2), ("MOST_BYTES", 10)):
        with monkeypatch.context() as patch:
            patch.setattr(small_tables, name, most)
            assert not small(table, schema)


def test_a_table_whose_rows_may_not_go_or_have_conditions_is_merged_into(tmp_path: Path) -> None:
    assert not small(made(tmp_path / "log", **{"delta.appendOnly": "true"}), schema_of(KEYED))
    ruled = pa.schema([field.with_metadata({b"delta.invariants": b"{}"}) for field in schema_of(KEYED)])
    assert not small(made(tmp_path / "t"), ruled)
    floats = pa.schema([pa.field("whole", pa.float64()), pa.field("v", pa.string())])
    assert not small(made(tmp_path / "f", floats), floats)


def test_a_file_without_the_rows_that_the_log_counts_is_refused(tmp_path: Path) -> None:
    table, schema = made(tmp_path), schema_of(KEYED)
    (file,) = files_of(table)
    there = sorted(tmp_path.glob("*.parquet"))
    with pytest.raises(NativeWriteError, match="do not have the rows that the log counts"):
        written_again(
            str(tmp_path), [file._replace(rows=4)], schema, KEYED, table_of(schema, KEYED, {(1,): "new"}), None
        )
    assert sorted(tmp_path.glob("*.parquet")) == there, "no new file is left"
