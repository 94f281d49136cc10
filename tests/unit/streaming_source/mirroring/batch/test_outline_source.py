"""The source of a mirror is that of streams, with outlines for rows."""

from __future__ import annotations

import pickle

import pytest

from replica.errors import ConfigError
from streaming_source.driver.refused_stream import RefusedStream
from streaming_source.mirroring.batch.outline_columns import outline_schema
from streaming_source.mirroring.batch.outline_reader import read_outline
from streaming_source.mirroring.batch.outline_source import NumberedPartition, OutlineSource, OutlineStreamReader
from streaming_source.options.source_options import SourceOptions
from tests.unit.streaming_source.mirroring.batch.test_outline_reader import PLAN, partition

OPTIONS = {"host": "db1", "user": "repl", "password": "secret word", "tables": "*.*", "includeddl": "true"}


def test_tasks_make_outlines_and_have_no_options() -> None:
    source = OutlineSource(OPTIONS)
    reader = source._stream_of(SourceOptions.parse(OPTIONS), PLAN, outline_schema())
    assert isinstance(reader, OutlineStreamReader)
    packed = pickle.dumps(reader)
    assert b"secret word" not in packed
    found = list(pickle.loads(packed).read(NumberedPartition(partition().ranges, 7)))  # noqa: S301  (it was made above)
    assert found == list(read_outline(partition(), PLAN, 7)) != list(read_outline(partition(), PLAN))


def test_what_streams_refuse_it_refuses() -> None:
    assert OutlineSource.name() == "mariadb-binlog-outline"
    with pytest.raises(ConfigError, match="tables"):
        OutlineSource({"host": "db1", "user": "repl"}).schema()
    refused = OutlineSource({"host": "db1", "user": "repl"}).streamReader(outline_schema())
    assert isinstance(refused, RefusedStream)
