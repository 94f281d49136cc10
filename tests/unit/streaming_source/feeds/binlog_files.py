"""Batch reads without Spark: `.load()` and every task of it, one after the other."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from replica.protocol.constants import EventType, GtidFlag
from streaming_source.files.load_files import LoadedFiles, load_files
from streaming_source.files.partition import read_file_changes
from tests.kit.binlog.real_rows import TABLE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.binlog.primary import Primary

BARE = TABLE[:18]
"""The same table map as a server with binlog_row_metadata=NO_LOG writes it: types, and nothing else."""


def ddl(stream: Primary, sql: bytes) -> None:
    stream.gtid(None, GtidFlag.STANDALONE | GtidFlag.DDL)
    stream.query(sql)


def crash(stream: Primary, body: bytes = TABLE) -> None:
    """The beginning of a transaction."""
    stream.gtid()
    stream.event(EventType.TABLE_MAP, body)


def load(path: Path | str, **options: Any) -> LoadedFiles:
    given = {"table": "d.t"} if "tables" not in options else {}
    given["gtidStrictMode"] = "false"  # files that are made by hand begin with 1, each of them
    return load_files({"path": str(path), **given, **{key: str(value) for key, value in options.items()}})


def rows(loaded: LoadedFiles) -> list[dict[str, Any]]:
    """Of all partitions, each read as a task reads it: after a pickle, and twice with the same result."""
    found = []
    for partition in pickle.loads(pickle.dumps(loaded.partitions)):  # noqa: S301
        once = [row for batch in read_file_changes(partition, loaded.plan) for row in batch.to_pylist()]
        assert once == [row for batch in read_file_changes(partition, loaded.plan) for row in batch.to_pylist()]
        found += once
    return found


def values(loaded: LoadedFiles) -> list[tuple[int, Any]]:
    """Sequence number and column `a` of each row."""
    return [(row["transaction"]["sequence_number"], row["after"]["a"]) for row in rows(loaded)]
