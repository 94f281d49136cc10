"""Expired snapshots: which they are, and that no file disappears which a snapshot has that is left."""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo

from streaming_source.mirroring.writers.iceberg import upkeep
from streaming_source.mirroring.writers.iceberg.upkeep import (
    KEPT_MS,
    LEAST_KEPT,
    MAX_AGE,
    REMOVES,
    SnapshotExpiry,
    expire,
)
from streaming_source.sinks.iceberg.catalogs import catalog_of, name_in, register

if TYPE_CHECKING:
    from pathlib import Path

    from pyiceberg.table import Table

NUMBERS = itertools.count(1)


class Lake:
    """One table whose rows are changed copy-on-write, and what its snapshots hold."""

    def __init__(self, folder: Path, properties: dict[str, str]) -> None:
        given = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}/lake"}
        known = register({"name": f"expiry{next(NUMBERS)}", **given})
        catalog = catalog_of(known)
        catalog.create_namespace_if_not_exists("lake")
        self.name = name_in(known, "lake.t")
        self.folder = folder / "lake"
        small = {"write.target-file-size-bytes": "8"}  # each row has a file, and an append one list of two files
        schema = pa.schema([("id", pa.int64())])
        self.table: Table = catalog.create_table("lake.t", schema, properties={**small, **properties})

    def commit(self, number: int) -> None:
        """Append two rows, and delete one of them, so the list of files that has the other one is rewritten."""
        self.table.refresh()
        self.table.append(pa.table({"id": [number, -number]}))
        self.table.delete(EqualTo("id", -number))

    def held(self) -> dict[int, list[int]]:
        """Read the rows of every snapshot."""
        self.table.refresh()
        return {
            each.snapshot_id: sorted(self.table.scan(snapshot_id=each.snapshot_id).to_arrow()["id"].to_pylist())
            for each in self.table.snapshots()
        }

    def files(self) -> set[str]:
        return {each.name for each in self.folder.glob("**/*") if each.is_file()}

    def reachable(self) -> set[str]:
        """Return the files that a snapshot has, and the metadata files."""
        paths = {each.name for each in self.folder.glob("**/*.metadata.json")}
        for snapshot in self.table.refresh().snapshots():
            paths.add(snapshot.manifest_list.rpartition("/")[2])
            for manifest in snapshot.manifests(self.table.io):
                paths.add(manifest.manifest_path.rpartition("/")[2])
                paths |= {
                    entry.data_file.file_path.rpartition("/")[2]
                    for entry in manifest.fetch_manifest_entry(self.table.io)
                }
        return paths


def moment(lake: Lake, number: int) -> int:
    """Return the time just after a snapshot."""
    return lake.table.refresh().snapshots()[number].timestamp_ms + 1


def test_snapshots_that_were_replaced_long_ago_expire_with_their_files(tmp_path: Path) -> None:
    lake = Lake(tmp_path, {MAX_AGE: "1000"})
    for number in range(1, 6):
        lake.commit(number)
    before, files = lake.held(), lake.files()
    assert expire(lake.name, moment(lake, 4) + 1000) == 1000
    kept = list(before)[4:]
    assert lake.held() == {each: before[each] for each in kept}
    assert len(lake.files()) < len(files)
    assert lake.files() == lake.reachable()
    lake.commit(6)
    assert expire(lake.name, moment(lake, -1) + 10**9) == 1000
    assert list(lake.held().values()) == [[1, 2, 3, 4, 5, 6]]
    assert lake.files() == lake.reachable()


@pytest.mark.parametrize(
    ("properties", "left"), [({LEAST_KEPT: "4"}, 4), ({MAX_AGE: str(10**12)}, 10), ({}, 10), ({MAX_AGE: "5000"}, 1)]
)
def test_properties_of_the_table_bound_the_expiry(tmp_path: Path, properties: dict[str, str], left: int) -> None:
    lake = Lake(tmp_path, {MAX_AGE: str(KEPT_MS)} | properties if properties else {})
    for number in range(1, 6):
        lake.commit(number)
    before = lake.held()
    expire(lake.name, moment(lake, -1) + KEPT_MS)
    assert lake.held() == {each: before[each] for each in list(before)[-left:]}
    assert lake.files() == lake.reachable()


def test_tags_and_other_lines_of_snapshots_keep_their_files(tmp_path: Path) -> None:
    lake = Lake(tmp_path, {MAX_AGE: "0"})
    for number in range(1, 4):
        lake.commit(number)
    first, second = (each.snapshot_id for each in lake.table.refresh().snapshots()[1:3])
    with lake.table.manage_snapshots() as refs:
        refs.create_tag(first, "audit of the year")
    lake.table.manage_snapshots().rollback_to_snapshot(second).commit()
    lake.commit(4)
    before = lake.held()
    expire(lake.name, moment(lake, -1) + 10**9)
    assert lake.held() == {each: rows for each, rows in before.items() if each in (first, list(before)[-1])}
    assert lake.files() == lake.reachable()


def test_a_table_that_forbids_it_keeps_its_files(tmp_path: Path) -> None:
    lake = Lake(tmp_path, {MAX_AGE: "0", REMOVES: "false"})
    for number in range(1, 4):
        lake.commit(number)
    files = lake.files()
    expire(lake.name, moment(lake, -1) + 10**9)
    assert len(lake.held()) == 1
    assert lake.files() >= files


def test_an_error_is_logged_and_other_tables_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path, {MAX_AGE: "0"})
    for number in range(1, 4):
        lake.commit(number)
    expiry = SnapshotExpiry()
    with caplog.at_level(logging.WARNING):
        expiry.after_batch([f"{lake.name[:-1]}none`", lake.name])
    assert "cannot be used: Table does not exist" in caplog.text
    assert len(lake.held()) < 6
    known = len(lake.held())
    lake.commit(4)
    expiry.after_batch([lake.name])  # is not due yet
    assert len(lake.held()) == known + 2
    monkeypatch.setattr(upkeep.time, "monotonic", lambda: 10.0**9)
    expiry.after_batch([lake.name])
    assert len(lake.held()) < known + 2
