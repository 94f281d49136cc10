"""The source of a mirror is that of streams, with manifests for rows."""

from __future__ import annotations

import pickle

import pytest

from replica.errors import ConfigError
from streaming_source.driver.refused_stream import RefusedStream
from streaming_source.mirroring.batch.manifest import (
    ManifestSource,
    ManifestStreamReader,
    NumberedPartition,
    manifest_schema,
    read_manifest,
)
from streaming_source.options.source_options import SourceOptions
from tests.unit.streaming_source.mirroring.batch.test_manifest import PLAN, partition

OPTIONS = {"host": "db1", "user": "repl", "password": "secret word", "tables": "*.*", "includeddl": "true"}


def test_tasks_make_manifests_and_have_no_options() -> None:
    source = ManifestSource(OPTIONS)
    reader = source._stream_of(SourceOptions.parse(OPTIONS), PLAN, manifest_schema())
    assert isinstance(reader, ManifestStreamReader)
    packed = pickle.dumps(reader)
    assert b"secret word" not in packed
    found = list(pickle.loads(packed).read(NumberedPartition(partition().ranges, number=7)))  # noqa: S301  (it was made above)
    assert found == list(read_manifest(partition(), PLAN, 7)) != list(read_manifest(partition(), PLAN))


def test_what_streams_refuse_it_refuses() -> None:
    assert ManifestSource.name() == "mariadb-binlog-manifest"
    with pytest.raises(ConfigError, match="tables"):
        ManifestSource({"host": "db1", "user": "repl"}).schema()
    refused = ManifestSource({"host": "db1", "user": "repl"}).streamReader(manifest_schema())
    assert isinstance(refused, RefusedStream)
