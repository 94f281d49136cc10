"""Compaction changes files alone: rows, limits, batches and what others commit meanwhile stay as they are."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from streaming_source.auditing.mirror.from_mirror import version_of
from streaming_source.mirroring.writers.native import upkeep
from streaming_source.mirroring.writers.native.data_files import NativeWriteError
from streaming_source.mirroring.writers.native.upkeep import FEW_FILES, compact
from streaming_source.mirroring.writers.target_format import Commit, parts_in

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

KINDS = {
    "id": pa.int64(),
    "t": pa.string(),
    "d": pa.decimal128(20, 0),
    "f": pa.float64(),
    "at": pa.timestamp("us", "UTC"),
    "day": pa.date32(),
    "b": pa.binary(),
}
SCHEMA = pa.schema([pa.field(name, kind, nullable=name != "id") for name, kind in KINDS.items()])
ENDS = (
    ["é😀" * 30, 2**64 - 1, -0.0, dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, dt.UTC), dt.date(1, 1, 1), b"\0\xff"],
    ["", -1, 0.0, dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.date(9999, 12, 31), b""],
    [None, None, None, None, None, None],
)


def insert(folder: str, number: int, batch: int, mirror: str = "m") -> None:
    """Append a row by a commit of the mirror, as a file of its own."""
    text, decimal, *more = ENDS[number % len(ENDS)]
    values = [number, text, decimal if decimal is None else Decimal(cast("int", decimal)), *more]
    write_deltalake(
        folder,
        pa.table([[value] for value in values], schema=SCHEMA),
        mode="append",
        commit_properties=CommitProperties(custom_metadata={"userMetadata": Commit(mirror, batch, "0-1-1").metadata}),
    )


def made(folder: Path, rows: int = FEW_FILES) -> str:
    DeltaTable.create(str(folder), SCHEMA)
    for number in range(rows):
        insert(str(folder), number, number)
    return str(folder)


def rows_of(folder: str) -> list[str]:
    table = pa.table(DeltaTable(folder).to_pyarrow_table()).select(list(KINDS))
    return [repr(row) for row in sorted(table.to_pylist(), key=lambda row: cast("int", row["id"]))]


SPARK = cast("SparkSession", None)
"""A table that its path names is looked at without Spark."""


def named(folder: str) -> str:
    return f"`delta`.`{folder}`"


def test_small_files_become_one_with_the_same_rows(tmp_path: Path) -> None:
    folder = made(tmp_path / "t")
    before = rows_of(folder)
    assert compact(folder) == FEW_FILES
    assert rows_of(folder) == before
    (file,) = DeltaTable(folder).file_uris()
    version = DeltaTable(folder).version()
    log = (tmp_path / f"t/_delta_log/{version:020}.json").read_text().splitlines()
    changes = [
        change for action in map(json.loads, log) for kind, change in action.items() if kind in ("add", "remove")
    ]
    assert len(changes) == FEW_FILES + 1
    assert not any(change["dataChange"] for change in changes)
    limits = json.loads(changes[0]["stats"])
    assert limits["numRecords"] == FEW_FILES
    assert limits["minValues"] == {"id": 0, "day": "0001-01-01"}
    assert limits["maxValues"] == {"id": FEW_FILES - 1, "day": "9999-12-31"}
    group = pq.ParquetFile(file).metadata.row_group(0)
    columns = {group.column(number).path_in_schema: group.column(number) for number in range(group.num_columns)}
    assert {name for name, column in columns.items() if column.statistics is not None} == {"id", "day"}
    assert compact(folder) == 0
    assert DeltaTable(folder).version() == version


def test_a_table_of_few_files_stays(tmp_path: Path) -> None:
    folder = made(tmp_path / "t", FEW_FILES - 1)
    version = DeltaTable(folder).version()
    assert compact(folder) == 0
    assert DeltaTable(folder).version() == version


def test_only_the_smallest_files_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made(tmp_path / "t", FEW_FILES)
    sizes = sorted(pa.table(DeltaTable(folder).get_add_actions()).column("size_bytes").to_pylist())
    monkeypatch.setattr(upkeep, "MOST_BYTES", sum(sizes[:FEW_FILES]) - 1)
    monkeypatch.setattr(upkeep, "FEW_FILES", FEW_FILES - 1)
    before = rows_of(folder)
    assert compact(folder) == FEW_FILES - 1
    assert len(DeltaTable(folder).file_uris()) == 2
    assert rows_of(folder) == before


def test_a_column_that_is_younger_than_a_file_is_null_in_its_rows(tmp_path: Path) -> None:
    folder = made(tmp_path / "t")
    DeltaTable(folder).alter.add_columns(
        DeltaTable(folder).schema().from_arrow(pa.schema([("new", pa.int32())])).fields
    )
    before = rows_of(folder)
    assert compact(folder) == FEW_FILES
    assert rows_of(folder) == before
    assert pa.table(DeltaTable(folder).to_pyarrow_table()).column("new").null_count == FEW_FILES


def test_a_version_belongs_to_the_batch_that_it_had_before(tmp_path: Path) -> None:
    folder = made(tmp_path / "t")
    last = FEW_FILES - 1
    insert(folder, 1000, 7, mirror="another")
    versions = {batch: version_of(SPARK, named(folder), "m", batch) for batch in range(last)}
    compact(folder)
    joined = DeltaTable(folder).version()
    assert version_of(SPARK, named(folder), "m", last) == joined
    assert version_of(SPARK, named(folder), "m", last + 5) == joined, "no batch since has changed the table"
    assert not parts_in(SPARK, named(folder), Commit("m", last + 1, "")), "a batch that comes again is still to be done"
    insert(folder, 1001, last + 2)
    assert version_of(SPARK, named(folder), "m", last) == joined
    assert version_of(SPARK, named(folder), "m", last + 1) == joined
    assert version_of(SPARK, named(folder), "m", last + 2) == joined + 1
    assert {batch: version_of(SPARK, named(folder), "m", batch) for batch in range(last)} == versions
    parts = [parts_in(SPARK, named(folder), Commit("m", last + after, "")) for after in range(3)]
    assert parts == [{"changes"}, set(), {"changes"}]


def test_a_row_that_another_deletes_meanwhile_stays_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made(tmp_path / "t")
    whole = upkeep.write_file

    def beside(*arguments: Any) -> Any:
        file = whole(*arguments)
        DeltaTable(folder).delete("id = 3")
        return file

    monkeypatch.setattr(upkeep, "write_file", beside)
    with pytest.raises(CommitFailedError):
        compact(folder)
    assert len(rows_of(folder)) == FEW_FILES - 1
    assert not list((tmp_path / "t").glob("part-????????-????-????-????-????????????.snappy.parquet")), "it is removed"


def test_a_row_that_another_appends_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made(tmp_path / "t")
    whole = upkeep.write_file

    def beside(*arguments: Any) -> Any:
        insert(folder, 500, 50)
        return whole(*arguments)

    monkeypatch.setattr(upkeep, "write_file", beside)
    assert compact(folder) == FEW_FILES
    assert len(rows_of(folder)) == FEW_FILES + 1


def test_files_with_other_rows_than_the_log_counts_are_left_alone(tmp_path: Path) -> None:
    folder = made(tmp_path / "t")
    file = DeltaTable(folder).file_uris()[0]
    pq.write_table(pa.table([[]] * len(KINDS), schema=SCHEMA), file)
    with pytest.raises(NativeWriteError, match="as many rows as the log says"):
        compact(folder)
    assert len(DeltaTable(folder).file_uris()) == FEW_FILES
