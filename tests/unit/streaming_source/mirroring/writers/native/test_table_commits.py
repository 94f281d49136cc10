"""Commits that this project writes itself: a new table, its columns, and a commit that came second."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from replica.errors import ConfigError
from streaming_source.mirroring.writers.folder_target import altered
from streaming_source.mirroring.writers.native.data_files import NativeWriteError, write_file
from streaming_source.mirroring.writers.native.delta_rows import TargetShape, append_files, is_as_created
from streaming_source.mirroring.writers.native.log_files import write_commit
from streaming_source.mirroring.writers.native.table_commits import create, set_columns
from streaming_source.mirroring.writers.target_format import (
    AddColumns,
    Commit,
    DropColumns,
    DropNotNull,
    RenameColumn,
    TargetAction,
)
from streaming_source.transforms.transformed_images import TargetColumn

PROPERTIES = {
    "delta.columnMapping.mode": "name",
    "delta.enableDeletionVectors": "true",
    "delta.feature.timestampNtz": "supported",
    "mariadb.mirror": "m",
}
COLUMNS = (
    TargetColumn("id", "INT", nullable=False, comment="the key"),
    TargetColumn("a, b;", "STRING", nullable=True, comment=""),
    TargetColumn("d", "DECIMAL(20,0)", nullable=True, comment=""),
    TargetColumn("at", "TIMESTAMP_NTZ", nullable=True, comment=""),
)
ROWS = {"id": [1, 2], "a, b;": ["x", None], "d": [Decimal(2**63), None], "at": [dt.datetime(2026, 1, 1), None]}  # noqa: DTZ001
SHAPE = TargetShape("current", (), ("id",), (("mariadb.mirror", "m"),))


@pytest.fixture
def folder(tmp_path: Path) -> str:
    place = str(tmp_path / "t")
    create(place, COLUMNS, "it's a table", PROPERTIES, '{"batch": 0}')
    return place


def fill(folder: str, rows: dict[str, list[object]], batch: int = 1) -> None:
    schema = pa.schema(DeltaTable(folder).schema().to_arrow())
    table = pa.table(rows, schema=pa.schema([pa.field(one.name, one.type) for one in schema]))
    file = write_file(folder, schema, schema.names, table.to_batches())
    assert file is not None
    append_files(folder, [file], SHAPE, Commit("m", batch, "0-1-1"), once=True)


def rows(folder: str) -> list[dict[str, object]]:
    query = QueryBuilder().register("t", DeltaTable(folder)).execute("SELECT * FROM t ORDER BY 1")
    return pa.table(query.read_all()).to_pylist()


def act(folder: str, *actions: TargetAction) -> None:
    for action in actions:
        set_columns(folder, lambda fields, action=action: altered(fields, action), "{}")


def test_a_new_table_is_as_spark_would_create_it(folder: str) -> None:
    assert is_as_created(folder, COLUMNS, "it's a table", PROPERTIES)
    protocol = DeltaTable(folder).protocol()
    assert set(protocol.reader_features or ()) == {"columnMapping", "deletionVectors", "timestampNtz"}
    assert DeltaTable(folder).history()[0]["userMetadata"] == '{"batch": 0}'
    fill(folder, ROWS)
    assert rows(folder) == [dict(zip(ROWS, row, strict=True)) for row in zip(*ROWS.values(), strict=True)]


def test_columns_are_added_renamed_and_dropped_and_rows_stay(folder: str) -> None:
    fill(folder, ROWS)
    new = TargetColumn("n", "BIGINT", nullable=False, comment="new")
    act(folder, RenameColumn("a, b;", "d2"), DropColumns(("d",)), RenameColumn("d2", "d"), AddColumns((new,)))
    assert [row["d"] for row in rows(folder)] == ["x", None]
    assert [row["n"] for row in rows(folder)] == [None, None]
    fields = {field.name: field for field in DeltaTable(folder).schema().fields}
    assert list(fields) == ["id", "d", "at", "n"]
    assert fields["n"].nullable
    assert fields["n"].metadata["delta.columnMapping.id"] == 5, "the number of a dropped column is not used again"
    assert not fields["id"].nullable
    act(folder, DropNotNull("id"), AddColumns((new,)))
    assert [field.nullable for field in DeltaTable(folder).schema().fields] == [True] * 4
    fill(folder, {"id": [3], "d": ["y"], "at": [None], "n": [2**40]}, 2)
    assert rows(folder)[2]["n"] == 2**40


def test_a_table_that_is_created_again_has_no_rows_and_keeps_its_versions(folder: str) -> None:
    fill(folder, ROWS)
    create(folder, COLUMNS[:1], "", PROPERTIES, "{}")
    assert rows(folder) == []
    assert is_as_created(folder, COLUMNS[:1], "", PROPERTIES)
    assert [field.name for field in DeltaTable(folder, version=1).schema().fields] == list(ROWS)


def test_without_column_mapping_columns_are_added_and_not_renamed(tmp_path: Path) -> None:
    folder = str(tmp_path / "t")
    create(folder, COLUMNS[:1], "", {}, "{}")
    act(folder, AddColumns((COLUMNS[2],)))
    assert [field.metadata for field in DeltaTable(folder).schema().fields] == [{"comment": "the key"}, {}]
    with pytest.raises(NativeWriteError, match="its column id cannot be renamed or dropped"):
        act(folder, RenameColumn("id", "other"))


def test_a_commit_that_comes_second_is_refused_and_leaves_no_file(folder: str) -> None:
    with pytest.raises(NativeWriteError, match="another writer wrote version 0"):
        write_commit(folder, 0, "TEST", [], "{}")
    assert [one.name for one in Path(folder, "_delta_log").iterdir()] == [f"{0:020d}.json"]


@pytest.mark.parametrize(
    "more",
    [{"delta.enableTypeWidening": "true"}, {"delta.enableChangeDataFeed": "true"}, {"delta.columnMapping.mode": "id"}],
)
def test_a_property_that_delta_rs_cannot_write_is_refused(tmp_path: Path, more: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=f"need {next(iter(more))}, which delta-rs cannot write"):
        create(str(tmp_path / "t"), COLUMNS, "", PROPERTIES | more, "{}")
    create(str(tmp_path / "t"), COLUMNS, "", PROPERTIES | {"delta.enableTypeWidening": "false"}, "{}")


def test_a_folder_with_other_files_and_a_type_without_a_form_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("1")
    with pytest.raises(ConfigError, match="has files and no Delta table"):
        create(str(tmp_path), COLUMNS, "", PROPERTIES, "{}")
    with pytest.raises(NativeWriteError, match="its column v is VARIANT"):
        create(str(tmp_path / "v"), [TargetColumn("v", "VARIANT", True, "")], "", PROPERTIES, "{}")
