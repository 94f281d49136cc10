"""Deletion vectors are read by delta-rs as they were written; their files stay as long as a version needs them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_source.mirroring.writers.native import deletion_vectors, log_files, rewritten_files
from streaming_source.mirroring.writers.native.data_files import NativeWriteError, TableFile, files_of, write_file
from streaming_source.mirroring.writers.native.deletion_vectors import (
    commit_marks,
    deleted_rows,
    unused_vector_files,
    write_vectors,
)
from streaming_source.mirroring.writers.native.delta_rows import (
    TargetShape,
    append_files,
    merge_rows,
    refused,
    remove_rows,
)
from streaming_source.mirroring.writers.native.log_files import VersionTakenError, logged_files, write_commit
from streaming_source.mirroring.writers.native.rewritten_files import ChangedFiles
from streaming_source.mirroring.writers.native.table_commits import create
from streaming_source.mirroring.writers.native.upkeep import Upkeep
from streaming_source.mirroring.writers.target_format import READS, Commit
from streaming_source.transforms.transformed_images import TargetColumn

ROWS = 200_000
TARGET = TargetShape("current", ("id", "v"), ("id",), ())
HOUR = 3600
POSITIONS = st.one_of(
    st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=50),
    st.sampled_from((0, 1, 65_535, 65_536, ROWS - 1)).map(lambda one: [one]),
    st.tuples(st.integers(0, ROWS - 1), st.integers(1, 70_000)).map(
        lambda part: list(range(part[0], min(sum(part), ROWS)))
    ),
)
"""A few rows, ends of the containers of 65,536 of a bitmap, and runs that fill one."""


def made(folder: Path, rows: int, **configuration: str) -> str:
    columns = [TargetColumn(name, "BIGINT", nullable=name != "id", comment="") for name in ("id", "v")]
    create(str(folder), columns, "", {"delta.enableDeletionVectors": "true", **configuration}, "{}")
    schema = pa.schema(DeltaTable(str(folder)).schema().to_arrow())
    table = pa.table({"id": np.arange(rows), "v": np.zeros(rows, np.int64)})
    file = write_file(str(folder), schema, schema.names, table.to_batches())
    assert file is not None
    append_files(str(folder), [file], TARGET, Commit("m", 0, "", READS), once=True)
    return str(folder)


def marked(folder: str, positions: list[int], batch: int) -> None:
    """Delete rows of the first file by a deletion vector."""
    table = DeltaTable(folder)
    file = min(files_of(table), key=lambda file: file.modified_at)
    deleted = np.array(sorted({*positions, *deleted_rows(table).get(file.path, [])}))
    commit_marks(table, folder, ChangedFiles([], {file: deleted}), [], Commit("m", batch, ""))


def ids(folder: str, version: int | None = None) -> set[int]:
    query = QueryBuilder().register("t", DeltaTable(folder, version=version)).execute("SELECT id FROM t")
    return set(pa.table(query.read_all()).column(0).to_pylist())


@settings(max_examples=25, deadline=None)
@given(positions=st.lists(POSITIONS, min_size=1, max_size=3))
def test_delta_rs_reads_the_rows_that_are_left(
    tmp_path_factory: pytest.TempPathFactory, positions: list[list[int]]
) -> None:
    folder = made(tmp_path_factory.mktemp("table"), ROWS, **{"delta.checkpointInterval": "2"})
    model = set(range(ROWS))
    for batch, gone in enumerate(positions, 1):
        marked(folder, gone, batch)
        model -= set(gone)
        assert ids(folder) == model
        log_files._known.clear()  # as another process would read the log


def test_the_vectors_of_several_files_are_one_file(tmp_path: Path) -> None:
    wanted = {"a": np.array([1, 2, 70_000]), "b": np.array([0])}
    written = write_vectors(str(tmp_path), wanted)
    assert [path.name for path in tmp_path.iterdir()] == [written.path]
    assert [vector["cardinality"] for vector in written.vectors.values()] == [3, 1]
    first, second = (vector["offset"] for vector in written.vectors.values())
    assert (first, second) == (1, 1 + 4 + written.vectors["a"]["sizeInBytes"] + 4)
    named = {deletion_vectors._file_of(log_files.vector_name(vector)) for vector in written.vectors.values()}
    assert named == {written.path}


def test_a_file_of_which_many_rows_are_deleted_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewritten_files, "MARKED_BYTES", 0)
    monkeypatch.setattr(rewritten_files, "SMALL_BYTES", -1)
    folder = made(tmp_path / "t", 1000)
    (first,) = files_of(DeltaTable(folder))
    seen = []
    for batch in range(1, 7):  # 50 rows each, of 1,000
        changed = {"0": list(range(batch * 50, batch * 50 + 50)), "1": [batch] * 50}
        merge_rows(folder, pa.table(changed), TARGET, Commit("m", batch, ""))
        seen.append(first.path in {file.path for file in files_of(DeltaTable(folder))})
    assert seen == [True] * 5 + [False], "up to a quarter of the rows is marked"
    assert ids(folder) == set(range(1000))
    assert not deleted_rows(DeltaTable(folder)).get(first.path)


def test_a_change_of_deleted_rows_alone_leaves_their_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewritten_files, "MARKED_BYTES", 0)
    monkeypatch.setattr(rewritten_files, "SMALL_BYTES", -1)
    folder = made(tmp_path / "t", 1000)
    for batch in (1, 2):
        gone = pa.table({"0": [5, 7], "1": [0, 0], "2": [True, True]})
        merge_rows(folder, gone, TARGET, Commit("m", batch, ""))
    assert ids(folder) == set(range(1000)) - {5, 7}
    assert len(list(Path(folder).glob("*.bin"))) == 1, "the second commit marks nothing"
    assert DeltaTable(folder).transaction_version(Commit("m", 2, "").writer) == 2


@pytest.mark.parametrize(
    ("limit", "most", "reason"),
    [
        ("MOST_MARKED_BYTES", 1, "its changes are in more than 0 GB of its files"),
        ("MOST_POSITIONS", 2, "more than 2 rows of its files are deleted"),
    ],
)
def test_spark_marks_rows_of_more_than_one_task_can_read_or_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int, reason: str
) -> None:
    monkeypatch.setattr(rewritten_files, "MARKED_BYTES", 0)
    monkeypatch.setattr(rewritten_files, "SMALL_BYTES", -1)
    monkeypatch.setattr(rewritten_files, "MOST_BYTES", 1)
    folder = made(tmp_path / "t", 1000)
    merge_rows(folder, pa.table({"0": [5], "1": [1]}), TARGET, Commit("m", 1, ""))
    monkeypatch.setattr(rewritten_files, limit, most)
    version = DeltaTable(folder).version()
    with pytest.raises(NativeWriteError, match=reason):
        merge_rows(folder, pa.table({"0": [6, 7], "1": [1, 1]}), TARGET, Commit("m", 2, ""))
    assert DeltaTable(folder).version() == version
    assert ids(folder) == set(range(1000))


def test_without_the_property_rows_are_not_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewritten_files, "MARKED_BYTES", 0)
    monkeypatch.setattr(rewritten_files, "SMALL_BYTES", -1)
    folder = made(tmp_path / "t", 100, **{"delta.enableDeletionVectors": "false"})
    merge_rows(folder, pa.table({"0": [5], "1": [1]}), TARGET, Commit("m", 1, ""))
    assert not deleted_rows(DeltaTable(folder))
    assert ids(folder) == set(range(100))


def test_all_rows_go_with_their_vectors(tmp_path: Path) -> None:
    folder = made(tmp_path / "t", 100)
    marked(folder, [1, 2], 1)
    remove_rows(folder, TARGET, "{}")
    assert ids(folder) == set()
    assert logged_files(folder, DeltaTable(folder).version()) == {}


def test_of_two_commits_of_one_version_one_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    folder = made(tmp_path / "t", 100)
    table = DeltaTable(folder)
    (file,) = files_of(table)
    commit_marks(table, folder, ChangedFiles([], {file: np.array([1])}), [], Commit("m", 1, ""))
    there = set(Path(folder).glob("*.bin"))
    with pytest.raises(VersionTakenError, match="another writer wrote version 2"):
        commit_marks(table, folder, ChangedFiles([], {file: np.array([2])}), [], Commit("m", 2, ""))
    assert set(Path(folder).glob("*.bin")) == there
    assert ids(folder) == set(range(100)) - {1}


def test_the_log_is_read_from_its_checkpoint(tmp_path: Path) -> None:
    folder = made(tmp_path / "t", 100)
    marked(folder, [1], 1)
    marked(folder, [2], 2)
    table = DeltaTable(folder)
    before = logged_files(folder, table.version())
    table.create_checkpoint()
    for version in range(table.version() + 1):
        Path(folder, "_delta_log", f"{version:020d}.json").unlink()
    log_files._known.clear()
    assert logged_files(folder, table.version()) == before
    marked(folder, [3], 3)
    assert ids(folder) == set(range(100)) - {1, 2, 3}


def test_a_log_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    folder = made(tmp_path / "t", 100)
    version = DeltaTable(folder).version()
    log = Path(folder, "_delta_log")
    (log / "_last_checkpoint").write_text(json.dumps({"version": version, "size": 3, "parts": 2}))
    log_files._known.clear()
    with pytest.raises(NativeWriteError, match="checkpoint in several files"):
        logged_files(folder, version)
    (log / "_last_checkpoint").unlink()
    with pytest.raises(NativeWriteError, match="cannot be read: FileNotFoundError"):
        logged_files(folder, version + 1)


def test_a_restored_folder_is_read_again(tmp_path: Path) -> None:
    folder = made(tmp_path / "t", 100)
    marked(folder, [1], 1)
    known = logged_files(folder, 2)
    (file,) = files_of(DeltaTable(folder))
    commit = Path(folder, "_delta_log", f"{2:020d}.json")
    commit.unlink()
    write_commit(folder, 2, "TEST", [], "{}")
    assert logged_files(folder, 2)[file.path].vector is None
    assert known[file.path].vector is not None


@pytest.mark.parametrize("vectors_in_use", [0, 1])
def test_files_of_vectors_stay_as_long_as_a_version_needs_them(tmp_path: Path, vectors_in_use: int) -> None:
    folder = made(tmp_path / "t", 100)
    marked(folder, [1], 1)
    marked(folder, [2], 2)  # the first vector was removed now: version 2 can be read for an hour
    old, live = sorted(Path(folder).glob("*.bin"), key=lambda path: path.stat().st_mtime_ns)
    orphan = Path(folder, write_vectors(folder, {"a": np.array([1])}).path)
    for path in (old, live, orphan):
        os.utime(path, (time.time() - 2 * HOUR,) * 2)
    fresh = write_vectors(folder, {"a": np.array([1])}).path
    version = DeltaTable(folder).version()
    assert unused_vector_files(folder, version, HOUR) == [orphan.name]
    assert ids(folder, 2) == set(range(100)) - {1}
    time.sleep(0.01)
    found = set(unused_vector_files(folder, version, 0))
    assert found - {fresh} == {old.name, orphan.name}
    if vectors_in_use:
        remove_rows(folder, TARGET, "{}")
        time.sleep(0.01)
        assert live.name in unused_vector_files(folder, version + 1, 0)


def test_upkeep_removes_old_vectors_and_the_table_stays(tmp_path: Path) -> None:
    kept = {"delta.logRetentionDuration": "interval 0 hours", "delta.deletedFileRetentionDuration": "interval 0 hours"}
    folder = made(tmp_path / "t", 100, **kept)
    for batch in range(1, 5):
        marked(folder, [batch], batch)
    time.sleep(1.1)
    Upkeep().after_batch([folder])
    assert len(list(Path(folder).glob("*.bin"))) == 1
    assert ids(folder) == set(range(100)) - {1, 2, 3, 4}


def test_a_file_without_statistics_is_not_marked(tmp_path: Path) -> None:
    folder = made(tmp_path / "t", 100)
    table = DeltaTable(folder)
    (file,) = files_of(table)
    action = {"path": file.path, "partitionValues": {}, "size": file.size, "modificationTime": 0, "dataChange": True}
    write_commit(folder, 2, "TEST", [log_files.removed(file), {"add": action}], "{}")
    with refused(folder), pytest.raises(NativeWriteError, match="no statistics"):
        commit_marks(
            DeltaTable(folder),
            folder,
            ChangedFiles([], {TableFile(file.path, file.size, 0, 100): np.array([1])}),
            [],
            Commit("m", 1, ""),
        )
    assert not list(Path(folder).glob("*.bin"))
