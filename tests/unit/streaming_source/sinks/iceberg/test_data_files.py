"""Statistics of data files: a filtered read by PyIceberg equals a filter over all rows, for values at the ends."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual, LessThanOrEqual
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator

from streaming_source.schema.row_schema import arrow_type, spark_type
from streaming_source.sinks.iceberg import data_files
from streaming_source.sinks.iceberg.columns import iceberg_schema
from streaming_source.sinks.iceberg.data_files import IcebergFiles, new_files
from streaming_source.transforms.transformed_images import TargetColumn

if TYPE_CHECKING:
    from pathlib import Path

    from pyiceberg.table import Table

VALUES: dict[str, list[Any]] = {
    "INT": [-(2**31), 2**31 - 1, 0],
    "BIGINT": [-(2**63), 2**63 - 1, 0],
    "DECIMAL(20,0)": [Decimal(2**64 - 1), Decimal(0), Decimal(-1)],
    "DECIMAL(38,5)": [Decimal("9" * 33 + ".99999"), Decimal("-" + "9" * 33 + ".99999"), Decimal("0.00001")],
    "DECIMAL(9,2)": [Decimal("-9999999.99"), Decimal("9999999.99"), Decimal("0.00")],
    "FLOAT": [math.nan, -0.0, 0.0, 3.4028234663852886e38, -1.5],
    "DOUBLE": [math.nan, -0.0, 5e-324, -math.inf, 1.7976931348623157e308],
    "STRING": ["", "a" * 16, "a" * 16 + "b", "z" * 5000, "\U0010ffff" * 17, "\ud7ff" * 17, "é" * 40, "a\x00"],
    "BINARY": [b"", b"\xff" * 17, b"\xff" * 5000, b"\x00", b"\xff" * 16 + b"\x00"],
    "DATE": [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1970, 1, 1)],
    "TIMESTAMP": [dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC)],
    "TIMESTAMP_NTZ": [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)],  # noqa: DTZ001
}


def written(tmp_path: Path, kind: str, batches: list[list[Any]]) -> Table:
    """A table with one file, whose batches are row groups of their own."""
    catalog = load_catalog("t", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/lake")
    catalog.create_namespace_if_not_exists("lake")
    columns = [
        TargetColumn("n", "INT", nullable=True, comment=""),
        TargetColumn("a b", kind, nullable=True, comment=""),
    ]
    table = catalog.create_table("lake.t", iceberg_schema(columns))
    numbers = iter(range(1000))
    made = [
        pa.table(
            {
                "n": pa.array([next(numbers) for _ in rows], pa.int32()),
                "a b": pa.array(rows, arrow_type(spark_type(kind))),
            }
        )
        for rows in batches
    ]
    with table.transaction() as begun, begun.update_snapshot().fast_append() as append:
        for file in new_files(IcebergFiles.of(table, table.metadata), made):
            append.append_data_file(file)
    return table


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("apart", [True, False])
def test_no_statistics_hide_a_row(
    tmp_path: Path,
    kind: str,
    apart: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(data_files, "GROUP_BYTES", 1)
    values = [*VALUES[kind], None]
    table = written(tmp_path, kind, [[value] for value in values] if apart else [values])
    (task,) = table.scan().plan_files()
    assert task.file.record_count == len(values)
    whole = table.scan().to_arrow()["a b"].to_pylist()
    assert len(whole) == len(values)
    schema = table.schema()
    for value in values:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            continue
        given = value.isoformat() if isinstance(value, dt.date) else value
        for test in (EqualTo, GreaterThanOrEqual, LessThanOrEqual):
            kept = _InclusiveMetricsEvaluator(schema, test("a b", given)).eval(task.file)
            assert kept, f"{test.__name__} {value!r} does not read the file that has it"


@pytest.mark.parametrize("kind", ["STRING", "BINARY", "BIGINT", "DECIMAL(38,5)", "DATE", "TIMESTAMP"])
def test_bounds_that_are_there_enclose_all_values(tmp_path: Path, kind: str) -> None:
    values = [value for value in VALUES[kind] if not isinstance(value, (str, bytes)) or len(value) < 100]
    table = written(tmp_path, kind, [values])
    (task,) = table.scan().plan_files()
    field = table.schema().fields[1]
    low, high = (bounds.get(field.field_id) for bounds in (task.file.lower_bounds, task.file.upper_bounds))
    assert low is not None
    stored = table.scan().to_arrow()["a b"]
    if kind in ("STRING", "BINARY"):
        least, most = (
            text if isinstance(text, bytes) else text.encode()
            for text in (min(values), max(values, key=lambda v: v if isinstance(v, bytes) else v.encode()))
        )
        assert low <= least
        assert high is None or high >= most
    elif kind in ("BIGINT", "DECIMAL(38,5)"):
        assert from_bytes(field.field_type, low) == min(stored.to_pylist())
        assert from_bytes(field.field_type, high) == max(stored.to_pylist())


def test_columns_that_could_hide_rows_have_no_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "GROUP_BYTES", 1)
    table = written(tmp_path, "STRING", [["b"], ["z" * 5000], [None]])
    (task,) = table.scan().plan_files()
    number = table.schema().fields[1].field_id
    assert number not in task.file.lower_bounds
    assert table.schema().fields[0].field_id in task.file.lower_bounds


def test_a_file_ends_at_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "GROUP_BYTES", 1)
    monkeypatch.setattr(data_files, "FILE_BYTES", 1)
    table = written(tmp_path, "INT", [[1], [2], [], [3]])
    assert sorted(task.file.record_count for task in table.scan().plan_files()) == [1, 1, 1]


def test_the_description_for_tasks_shows_no_secret(tmp_path: Path) -> None:
    table = written(tmp_path, "INT", [[1]])
    files = IcebergFiles.of(table, table.metadata)._replace(properties={"s3.secret-access-key": "hidden-word"})
    assert "hidden-word" not in repr(files)
