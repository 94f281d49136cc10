"""What Spark is handed for a batch read, and what of it travels to tasks: the plan, and nothing of the other files."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import IntegerType, StructField, StructType

from replica.errors import ConfigError, SchemaError
from streaming_source.source.batch.reader import BinlogFilesReader
from streaming_source.source.data_source import MariaDbBinlogSource
from tests.vectors.load import HERE

OPTIONS = {"path": str(HERE / "11.8" / "rotation.*.binlog"), "table": "v.t", "rowshape": "flat"}


def _travelled(value: object) -> object:
    return pickle.loads(pickle.dumps(value))  # noqa: S301


def test_load_looks_once_and_tasks_get_what_they_need() -> None:
    source = MariaDbBinlogSource(OPTIONS)
    schema = source.schema()
    planner = _travelled(source)
    assert isinstance(planner, MariaDbBinlogSource)
    planner.options = {**OPTIONS, "path": "/nowhere"}  # it does not look again
    reader = planner.reader(schema)
    partitions = reader.partitions()
    assert len(partitions) == 4
    task = _travelled(reader)
    assert isinstance(task, BinlogFilesReader)
    assert task.partitions() == []
    read = [value for partition in partitions for batch in task.read(partition) for value in batch["a"].to_pylist()]
    assert read == [1, 2, 3, 4]
    carried = pickle.dumps(planner)
    assert b"rotation" not in carried
    assert b"nowhere" not in carried


def test_a_partition_that_spark_makes_up_has_no_rows() -> None:
    reader = MariaDbBinlogSource({**OPTIONS, "table": "v.t"}).reader(MariaDbBinlogSource(OPTIONS).schema())
    assert list(reader.read(InputPartition(None))) == []


def test_a_schema_of_the_users_own_is_a_part_of_ours_or_refused() -> None:
    reader = MariaDbBinlogSource(OPTIONS).reader(StructType([StructField("a", IntegerType())]))
    (batch,) = reader.read(reader.partitions()[2])
    assert batch.to_pylist() == [{"a": 3}]
    with pytest.raises(SchemaError, match="names a column b, which the rows do not have"):
        MariaDbBinlogSource(OPTIONS).reader(StructType([StructField("b", IntegerType())]))


def test_each_way_of_reading_is_told_what_it_lacks() -> None:
    with pytest.raises(ConfigError, match=r"path names binlog files: they are read with spark\.read"):
        MariaDbBinlogSource(OPTIONS).streamReader(StructType()).getDefaultReadLimit()
    with pytest.raises(ConfigError, match=r"option user is missing.*To read binlog files, set path"):
        MariaDbBinlogSource({"table": "v.t"}).reader(StructType())
    with pytest.raises(ConfigError, match=r"endingPosition is for a server, and path reads files without one"):
        MariaDbBinlogSource({"path": "/v", "table": "v.t", "endingPosition": "latest"}).schema()
