"""Files that tasks write: delta-rs and Arrow find each value of each type, and a refused file leaves nothing."""

from __future__ import annotations

import datetime as dt
import json
import math
import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_source.mirroring.writers.native import data_files
from streaming_source.mirroring.writers.native.data_files import DataFile, NativeWriteError, remove_files, write_file
from streaming_source.mirroring.writers.native.delta_rows import TargetShape, append_files
from streaming_source.mirroring.writers.target_format import READS, Commit

if TYPE_CHECKING:
    from pathlib import Path

ODD = 'a"b`c;d.é ${x}'
KINDS = {
    "id": pa.int64(),
    ODD: pa.string(),
    "small": pa.int8(),
    "d": pa.decimal128(20, 0),
    "wide": pa.decimal128(38, 10),
    "f": pa.float64(),
    "g": pa.float32(),
    "t": pa.timestamp("us", "UTC"),
    "n": pa.timestamp("us"),
    "y": pa.date32(),
    "b": pa.binary(),
    "k": pa.bool_(),
}
ARROW = {
    pa.int64(): "Int64",
    pa.string(): "Utf8",
    pa.int8(): "Int8",
    pa.decimal128(20, 0): "Decimal128(20, 0)",
    pa.decimal128(38, 10): "Decimal128(38, 10)",
    pa.float64(): "Float64",
    pa.float32(): "Float32",
    pa.timestamp("us", "UTC"): 'Timestamp(Microsecond, Some("UTC"))',
    pa.timestamp("us"): "Timestamp(Microsecond, None)",
    pa.date32(): "Date32",
    pa.binary(): "Binary",
    pa.bool_(): "Boolean",
}
MIDNIGHT = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
FIRST = dt.datetime(1000, 1, 1, tzinfo=dt.UTC).replace(tzinfo=None)
LAST = dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC).replace(tzinfo=None)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "id": st.sampled_from((-(2**63), 2**63 - 1, 0, 9007199254740993)) | st.integers(-(2**63), 2**63 - 1),
    ODD: st.none() | st.text(max_size=3) | st.sampled_from(("é😀" * 30, "z" * 40, "")),
    "small": st.none() | st.integers(-128, 127),
    "d": st.none() | st.integers(-1, 2**64 - 1).map(Decimal),
    "wide": st.none() | st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(f"{n}E-10")),
    "f": st.none() | st.sampled_from((0.0, -0.0, 5e-324, 1.7e308, -1.5)),
    "g": st.none() | st.sampled_from((0.0, -0.0, 1.5)),
    "t": st.none() | st.integers(0, 10**6).map(lambda us: MIDNIGHT + dt.timedelta(microseconds=us)),
    "n": st.none() | st.sampled_from((FIRST, LAST)),
    "y": st.none() | st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    "b": st.none() | st.binary(max_size=3) | st.just(b"\xff" * 60),
    "k": st.none() | st.booleans(),
}
ROWS = st.lists(st.fixed_dictionaries(VALUES), max_size=6)
TARGET = TargetShape("current", tuple(KINDS), ("id",), ())


def made(folder: Path) -> str:
    DeltaTable.create(str(folder), pa.schema([pa.field(name, kind, name != "id") for name, kind in KINDS.items()]))
    return str(folder)


def schema(folder: str) -> pa.Schema:
    return pa.schema(DeltaTable(folder).schema().to_arrow())


def batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    arrays = [pa.array([row[name] for row in rows], kind) for name, kind in KINDS.items()]
    return pa.RecordBatch.from_arrays(arrays, names=[str(number) for number in range(len(arrays))])


def written(folder: str, rows: list[dict[str, Any]], cut: int = 2) -> DataFile | None:
    batches = [batch(rows[first : first + cut]) for first in range(0, len(rows), cut)]
    return write_file(folder, schema(folder), list(KINDS), batches)


def exact(row: dict[str, Any]) -> list[str]:
    """Values as text, in which 0.0 and -0.0 are two, and a time has no zone."""
    values = [row[name] for name in KINDS]
    times = [one.timestamp() if isinstance(one, dt.datetime) and one.tzinfo else one for one in values]
    return [f"{one:f}" if isinstance(one, Decimal) else repr(one) for one in times]


@settings(max_examples=15, deadline=None)
@given(files=st.lists(st.one_of(ROWS, ROWS.map(lambda rows: 2 * rows)), min_size=1, max_size=3))
def test_each_value_is_found_by_itself(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[dict[str, Any]]]
) -> None:
    """Files have dictionaries where each row comes twice, and most often none where it does not."""
    folder = made(tmp_path_factory.mktemp("table"))
    found = [file for rows in files if (file := written(folder, rows)) is not None]
    if not found:
        return
    assert append_files(folder, found, TARGET, Commit("m", 1, "0-1-1", READS), once=True)
    rows = [row for some in files for row in some]
    table = DeltaTable(folder)
    held = pa.table(table.to_pyarrow_table()).to_pylist()
    assert sorted(map(exact, held)) == sorted(map(exact, rows))
    look = QueryBuilder().register("t", table)
    for name, kind in KINDS.items():
        value = next((row[name] for row in rows if row[name] is not None), None)
        if value is None:
            continue
        expected = sum(row[name] == value for row in rows)
        where = f"{quoted(name, chr(34))} = {literal(value, ARROW[kind])}"
        found = pa.table(look.execute(f"SELECT count(*) FROM t WHERE {where}").read_all())
        assert found.column(0).to_pylist() == [expected], where
        sought = pa.compute.field(name) == pa.scalar(value, kind)
        assert pq.read_table(folder, filters=sought).num_rows == expected, where


def literal(value: Any, kind: str) -> str:
    """Write a value as SQL of delta-rs."""
    text = value.hex() if isinstance(value, bytes) else f"{value:f}" if isinstance(value, Decimal) else str(value)
    return f"X'{text}'" if kind == "Binary" else f"arrow_cast({quoted(text, chr(39))}, {quoted(kind, chr(39))})"


def quoted(text: str, mark: str) -> str:
    return mark + text.replace(mark, mark * 2) + mark


def test_only_integers_and_dates_have_limits(tmp_path: Path) -> None:
    folder = made(tmp_path / "t")
    row: dict[str, Any] = dict.fromkeys(KINDS) | {
        "id": 3,
        "small": -4,
        "y": dt.date(1, 2, 3),
        "d": Decimal(7),
        "f": -0.0,
    }
    file = written(folder, [row, {**row, "id": 5, "y": None}])
    assert file is not None
    stats = json.loads(file.stats)
    assert stats["numRecords"] == 2
    assert stats["minValues"] == {"id": 3, "small": -4, "y": "0001-02-03"}
    assert stats["maxValues"] == {"id": 5, "small": -4, "y": "0001-02-03"}
    assert stats["nullCount"] == {"id": 0, "small": 0, "y": 1}
    group = pq.ParquetFile(f"{folder}/{file.path}").metadata.row_group(0)
    columns = {group.column(number).path_in_schema: group.column(number) for number in range(group.num_columns)}
    limited = {name for name, column in columns.items() if column.statistics is not None}
    assert limited == {"id", "small", "y"}
    dictionaries = {name for name, column in columns.items() if "RLE_DICTIONARY" in column.encodings}
    assert dictionaries == {ODD, "small", "y"}  # values of `id` do not repeat


def test_groups_of_rows_are_written_as_they_fill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "ROW_GROUP_BYTES", 1)
    folder = made(tmp_path / "t")
    row: dict[str, Any] = dict.fromkeys(KINDS)
    file = written(folder, [{**row, "id": number} for number in (4, 2, 9, 1, 7)])
    assert file is not None
    assert pq.ParquetFile(f"{folder}/{file.path}").num_row_groups == 3
    assert json.loads(file.stats)["minValues"] == {"id": 1}
    assert json.loads(file.stats)["maxValues"] == {"id": 9}


def test_memory_that_is_used_again_is_copied(tmp_path: Path) -> None:
    folder = made(tmp_path / "t")
    memory = bytearray(16)
    others = batch([dict.fromkeys(KINDS) | {"id": 0}] * 2).columns[1:]

    def batches() -> Any:
        for first in (10, 20):
            memory[:] = first.to_bytes(8, "little") + (first + 1).to_bytes(8, "little")
            numbers = pa.Array.from_buffers(pa.int64(), 2, [None, pa.py_buffer(memory)])
            yield pa.RecordBatch.from_arrays([numbers, *others], names=[str(number) for number in range(len(KINDS))])

    file = write_file(folder, schema(folder), list(KINDS), batches())
    assert file is not None
    assert pq.read_table(f"{folder}/{file.path}").column("id").to_pylist() == [10, 11, 20, 21]


@pytest.mark.parametrize(
    ("names", "rows", "reason"),
    [
        (("id", "other", *list(KINDS)[2:]), [dict.fromkeys(KINDS) | {"id": 1}], "and rows have id, other"),
        (tuple(KINDS), [dict.fromkeys(KINDS)], "its column id is NOT NULL"),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_nothing(
    tmp_path: Path, names: tuple[str, ...], rows: list[dict[str, Any]], reason: str
) -> None:
    folder = made(tmp_path / "t")
    with pytest.raises(NativeWriteError, match=reason):
        write_file(folder, schema(folder), names, [batch([rows[0] | {"id": 1}]), batch(rows)])
    assert not list((tmp_path / "t").glob("*.parquet"))


def test_values_too_large_for_the_table_are_refused(tmp_path: Path) -> None:
    folder = str(tmp_path / "t")
    DeltaTable.create(folder, pa.schema([pa.field("id", pa.int32())]))
    large = pa.RecordBatch.from_arrays([pa.array([2**40])], names=["0"])
    with pytest.raises(NativeWriteError, match="its columns have other types"):
        write_file(folder, schema(folder), ["id"], [large])
    assert not list((tmp_path / "t").glob("*.parquet"))


def test_without_rows_there_is_no_file(tmp_path: Path) -> None:
    folder = made(tmp_path / "t")
    assert written(folder, []) is None
    assert not list((tmp_path / "t").glob("*.parquet"))


def test_files_that_no_commit_names_are_removed(tmp_path: Path) -> None:
    folder = made(tmp_path / "t")
    file = written(folder, [dict.fromkeys(KINDS) | {"id": 1}])
    assert file is not None
    remove_files(folder, [file, file])
    assert not list((tmp_path / "t").glob("*.parquet"))
    assert math.isfinite(file.size)


@pytest.mark.parametrize("many", [1, 5, 20_000])
def test_values_that_do_not_shrink_are_not_compressed(tmp_path: Path, many: int) -> None:
    chance = random.Random(7)
    columns = {
        "id": list(range(many)),
        "d.hash": [chance.randbytes(16).hex() for _ in range(many)],
        "word": [f"{number}{'-' * 90}" for number in range(many)],
        "kind": [number // 2 for number in range(many)],
        "picture": [chance.randbytes(100) for _ in range(many)],
        "near": [[chance.random() for _ in range(8)] for _ in range(many)],
        "zeros": [[0.0] * 8 for _ in range(many)],
        "empty": [None] * many,
    }
    kinds = [pa.int64(), pa.string(), pa.string(), pa.int32(), pa.binary(), *[pa.list_(pa.float32())] * 2, pa.string()]
    wanted = pa.schema(zip(columns, kinds, strict=True))
    arrays = [pa.array(values, kind) for values, kind in zip(columns.values(), kinds, strict=True)]
    rows = pa.record_batch(arrays, wanted)
    file = write_file(str(tmp_path), wanted, list(columns), [rows[:1], rows[1:]])
    assert file is not None
    group = pq.ParquetFile(tmp_path / file.path).metadata.row_group(0)
    found = {group.column(at).path_in_schema: group.column(at).compression for at in range(group.num_columns)}
    assert {path for path, codec in found.items() if codec == "UNCOMPRESSED"} >= {
        "d.hash",
        "picture",
        "near.list.element",
    }
    assert found["word"] == found["zeros.list.element"] == "SNAPPY"
    if many > 5:
        assert found["id"] == found["kind"] == found["empty"] == "SNAPPY"
    assert pq.read_table(tmp_path / file.path).to_pylist() == rows.to_pylist()
