"""The snapshot of a target that belongs to a micro-batch, among snapshots of other writers and expired ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from replica.errors import ConfigError, DataLossError
from streaming_source.sinks.iceberg.snapshots import LAST_COMMIT, newest_snapshot, snapshot_of, snapshot_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyiceberg.table import Table

NAME = "`iceberg:t`.`lake`.`t`"
OTHER = None
"""A commit of another writer."""
COMMITS = [OTHER, ("m1", 3), ("m2", 9), ("m1", 4), ("m1", 4), OTHER, ("m1", 6)]


def written(folder: Path, *commits: tuple[str, int] | None) -> Table:
    """Write a table with one snapshot for each commit, and the property with the last micro-batch of each mirror."""
    folder.mkdir(exist_ok=True)
    catalog = load_catalog("t", type="sql", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}/lake")
    catalog.create_namespace_if_not_exists("lake")
    rows = pa.table({"id": [1]})
    table = catalog.create_table("lake.t", rows.schema)
    for commit in commits:
        with table.transaction() as begun:
            summary = {}
            if commit is not None:
                mirror, batch = commit
                summary = {"mariadb.mirror": mirror, "mariadb.batch": str(batch)}
                begun.set_properties({f"{LAST_COMMIT}{mirror}": json.dumps([batch, ["changes"]])})
            begun.append(rows, snapshot_properties=summary)
    return table


def expire(table: Table, *numbers: int) -> Table:
    ids = [snapshot.snapshot_id for snapshot in table.snapshots()]
    table.maintenance.expire_snapshots().by_ids([ids[number] for number in numbers]).commit()
    return table.refresh()


@pytest.mark.parametrize(("batch", "number"), [(3, 2), (4, 5), (5, 5), (6, 6), (99, 6)])
def test_a_batch_has_the_snapshot_before_the_first_later_commit(tmp_path: Path, batch: int, number: int) -> None:
    table = written(tmp_path, *COMMITS)
    assert snapshot_of(table, NAME, "m1", batch) == table.snapshots()[number]
    assert newest_snapshot(table) == table.snapshots()[-1].snapshot_id


@pytest.mark.parametrize(
    ("commits", "expired", "batch"),
    [
        pytest.param([("m1", 5)], [], 4, id="only a later batch is left"),
        pytest.param([("m1", 3), ("m1", 4), OTHER, ("m1", 6)], [0, 1], 3, id="a later batch may be in the oldest one"),
        pytest.param([("m1", 3), ("m1", 4), OTHER], [0, 1], 3, id="a later batch is in the only one"),
        pytest.param([], [], 3, id="no snapshot"),
    ],
)
def test_a_batch_without_a_snapshot_that_is_kept_is_refused(
    tmp_path: Path, commits: list[tuple[str, int] | None], expired: list[int], batch: int
) -> None:
    table = expire(written(tmp_path, *commits), *expired)
    with pytest.raises(DataLossError, match=f"does not keep its rows of the micro-batch {batch}"):
        snapshot_of(table, NAME, "m1", batch)


def test_a_compacted_table_without_other_snapshots_belongs_to_its_last_batch(tmp_path: Path) -> None:
    table = expire(written(tmp_path, ("m1", 3), ("m1", 4), OTHER), 0, 1)
    assert snapshot_of(table, NAME, "m1", 4) == table.current_snapshot()
    assert snapshot_of(table, NAME, "m1", 7) == table.current_snapshot()


def test_snapshots_before_a_rollback_have_no_effect(tmp_path: Path) -> None:
    table = written(tmp_path, ("m1", 3), ("m1", 4), ("m1", 5))
    with table.transaction() as begun:
        staged = begun._set_ref_snapshot(table.snapshots()[0].snapshot_id, "main", "branch")
        begun._stage(*staged)
        begun.append(pa.table({"id": [2]}))
    table.refresh()
    assert snapshot_of(table, NAME, "m1", 4) == table.current_snapshot()


def test_a_snapshot_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no snapshot 7"):
        snapshot_rows(None, written(tmp_path, OTHER), NAME, 7)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="has no snapshot"):
        newest_snapshot(written(tmp_path / "another"))
