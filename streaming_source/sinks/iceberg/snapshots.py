"""Snapshots of Iceberg targets: chosen by the micro-batch of a mirror, and read as DataFrames.

`snapshot_of` returns the last snapshot before the mirror's first commit of a later micro-batch. The snapshot has the
commits of other writers until then, such as a compaction. The choice follows the parents of the current snapshot, so
snapshots that a rollback left out have no effect. Snapshots that may belong to a later micro-batch are refused.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from replica.errors import ConfigError, DataLossError
from streaming_source.sinks.iceberg.catalogs import catalog_errors, parts_of
from streaming_source.sinks.iceberg.data_files import IcebergFiles, read_rows

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot
    from pyspark.sql import DataFrame, SparkSession

LAST_COMMIT: Final = "mariadb.commit."
"""Property with the last micro-batch of a mirror and its parts; the id of the mirror follows the dot."""


def tokens(table: Table, mirror: str) -> tuple[int, list[str]]:
    """Return the last micro-batch of a mirror and its parts; -1 if there is none."""
    batch, parts = json.loads(table.properties.get(f"{LAST_COMMIT}{mirror}", "[-1, []]"))
    return batch, parts


def snapshot_of(table: Table, name: str, mirror: str, batch: int) -> Snapshot:
    """Return the snapshot of a target after a micro-batch and before the next one of its mirror.

    Args:
        table: the target.
        name: its name, for the error.
        mirror: the id of the mirror.
        batch: the micro-batch.

    Raises:
        DataLossError: the snapshot was expired.
    """
    from pyiceberg.table.snapshots import ancestors_of

    found: Snapshot | None = None
    later = False
    for snapshot in ancestors_of(table.current_snapshot(), table.metadata):  # the newest first
        committed = _batch_of(snapshot, mirror)
        if committed is not None and committed > batch:
            found, later = None, True
            continue
        found = found or snapshot
        if committed is not None:
            return found
    # No snapshot of the mirror is left up to the batch. The oldest ones left are of other writers. They have the rows
    # of the batch only if the mirror has committed nothing since.
    if found is not None and not later and tokens(table, mirror)[0] <= batch:
        return found
    raise DataLossError(
        f"{name} does not keep its rows of the micro-batch {batch} any more.",
        hint="Try again, because the control table has advanced. Expire snapshots later.",
    )


def newest_snapshot(table: Table) -> int:
    """Return the id of the current snapshot.

    Raises:
        ConfigError: the table has none, so nothing ever wrote to it.
    """
    current = table.current_snapshot()
    if current is None:
        raise ConfigError(f"{'.'.join(table.name())} has no snapshot.", hint="Write the copy before the audit.")
    return int(current.snapshot_id)


def _batch_of(snapshot: Snapshot, mirror: str) -> int | None:
    """Return the micro-batch of a snapshot; None for snapshots of other writers."""
    summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
    if summary.get("mariadb.mirror") != mirror or "mariadb.batch" not in summary:
        return None
    return int(summary["mariadb.batch"])


def snapshot_rows(spark: SparkSession, table: Table, name: str, snapshot: int) -> DataFrame:
    """Return the rows of a snapshot, with the columns of that time.

    Args:
        spark: the session that reads them.
        table: the table.
        name: its name, for errors.
        snapshot: the id of the snapshot.

    Raises:
        ConfigError: the table has no such snapshot.
        SchemaError: a column has a type that no mirror creates.
    """
    if table.snapshot_by_id(snapshot) is None:
        raise ConfigError(f"{name} has no snapshot {snapshot}.", hint="Name a snapshot that was not expired.")
    with catalog_errors(parts_of(name)[0], name):
        scan = table.scan(snapshot_id=snapshot)
        files = IcebergFiles.of(table, table.metadata, scan.projection())
        return read_rows(spark, files, list(scan.plan_files()))
