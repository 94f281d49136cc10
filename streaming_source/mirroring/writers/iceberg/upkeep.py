"""Expiry of old snapshots of the Iceberg tables of a mirror, between its micro-batches.

`SnapshotExpiry.after_batch` checks the tables in turn, at most for BUDGET_S after one micro-batch. A snapshot expires
when a later one replaced it longer ago than the property `history.expire.max-snapshot-age-ms` of the table. Branches,
tags and `history.expire.min-snapshots-to-keep` are respected. Then files that no snapshot has any more are removed,
unless `gc.enabled` is false. An error is logged, and the expiry is tried again later: it never fails a micro-batch.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from replica.protocol.plain_text import one_line
from streaming_source.sinks.iceberg.catalogs import catalog_errors, load_table, parts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

MAX_AGE: Final = "history.expire.max-snapshot-age-ms"
LEAST_KEPT: Final = "history.expire.min-snapshots-to-keep"
REMOVES: Final = "gc.enabled"
KEPT_MS: Final = 3_600_000
"""Value of MAX_AGE for new tables: an hour, as for Delta tables. Each commit writes the list of all snapshots."""
BUDGET_S: Final = 1.0
"""Seconds of upkeep after one micro-batch. An expiry that has begun is finished."""
_DEFAULT_MS: Final = 432_000_000
"""Iceberg's own default of MAX_AGE, five days."""
_CHECKS: Final = 10
"""Checks of a table in the time of MAX_AGE, so snapshots are kept up to a tenth longer."""
_LEAST_WAIT_S: Final = 60.0
_log = logging.getLogger(__name__)


class SnapshotExpiry:
    """Expiry of snapshots of a mirror's tables. It may only run between two micro-batches."""

    def __init__(self) -> None:
        self._due_s: dict[str, float] = {}

    def after_batch(self, names: Iterable[str]) -> None:
        """Expire snapshots of the tables whose check is due, the longest waiting first.

        Args:
            names: the tables of the mirror. A table whose running re-snapshot may be undone must not be among them.
        """
        begun_s = time.monotonic()
        for name in sorted(names, key=lambda name: self._due_s.get(name, 0.0)):
            now_s = time.monotonic()
            if self._due_s.get(name, 0.0) > now_s or now_s - begun_s > BUDGET_S:
                return
            wait_s = _LEAST_WAIT_S
            try:
                wait_s = max(wait_s, expire(name, int(time.time() * 1000)) / 1000 / _CHECKS)
            except Exception as error:  # noqa: BLE001  (a catalog may raise anything, and the batch is complete)
                _log.warning("the snapshots of %s are not expired: %s", name, one_line(str(error)))
            self._due_s[name] = time.monotonic() + wait_s


def expire(name: str, now_ms: int) -> int:
    """Expire the old snapshots of a table, and remove the files that only they have.

    Args:
        name: the table.
        now_ms: the current time in milliseconds since 1970.

    Returns:
        The milliseconds for which the table keeps replaced snapshots.

    Raises:
        StorageError: the catalog or its storage does not answer, or another writer committed meanwhile.
    """
    table = load_table(name)
    kept_ms = int(table.properties.get(MAX_AGE, _DEFAULT_MS))
    old = old_snapshots(table.metadata, now_ms - kept_ms, int(table.properties.get(LEAST_KEPT, 1)))
    if old:
        kept = _kept_snapshots(table.metadata, old)
        with catalog_errors(parts_of(name)[0], name):
            table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in old]).commit()
            left = table.refresh().metadata
        if any(left.snapshot_by_id(each.snapshot_id) for each in old):  # a tag came first
            return kept_ms
        if table.properties.get(REMOVES, "true").lower() != "false":
            with catalog_errors(parts_of(name)[0], name):
                _remove_files(table.io, old, kept)
    return kept_ms


def old_snapshots(metadata: TableMetadata, before_ms: int, least: int) -> list[Snapshot]:
    """Return the snapshots that expire: replaced before a time, and outside of branches, tags and the newest ones.

    Args:
        metadata: the metadata of the table.
        before_ms: the time in milliseconds since 1970.
        least: the number of newest snapshots that are kept.
    """
    heads = {ref.snapshot_id for ref in metadata.refs.values()}
    listed = sorted(metadata.snapshots, key=lambda each: each.sequence_number or 0)
    return [
        snapshot
        for snapshot, later in list(pairwise(listed))[: max(0, len(listed) - max(least, 1))]
        if later.timestamp_ms < before_ms and snapshot.snapshot_id not in heads
    ]


def _kept_snapshots(metadata: TableMetadata, expired: Sequence[Snapshot]) -> Sequence[Snapshot]:
    """Return snapshots that together have all files of the snapshots that are left, among the files of `expired`.

    In one line of snapshots, a file that a snapshot dropped never returns. So the oldest snapshot left is enough.
    """
    from pyiceberg.table.snapshots import ancestors_of

    line = list(ancestors_of(metadata.current_snapshot(), metadata))[::-1]
    if len(line) == len(metadata.snapshots) and line[: len(expired)] == list(expired):
        return line[len(expired) : len(expired) + 1]
    gone = {each.snapshot_id for each in expired}
    return [each for each in metadata.snapshots if each.snapshot_id not in gone]


def _remove_files(io: FileIO, expired: Sequence[Snapshot], kept: Sequence[Snapshot]) -> None:
    """Remove the files of expired snapshots that no kept snapshot has."""
    from pyiceberg.utils.concurrent import ExecutorFactory

    run = ExecutorFactory.get_or_create().map

    def manifests(snapshots: Sequence[Snapshot]) -> dict[str, ManifestFile]:
        return {each.manifest_path: each for found in run(lambda one: one.manifests(io), snapshots) for each in found}

    def files(found: Iterable[ManifestFile]) -> set[str]:
        read = run(lambda one: [entry.data_file.file_path for entry in one.fetch_manifest_entry(io)], found)
        return {path for paths in read for path in paths}

    left = manifests(kept)
    gone = {path: each for path, each in manifests(expired).items() if path not in left}
    old = files(gone.values())
    unused = old - files(left.values()) if old else old
    lists = [each.manifest_list for each in expired if each.manifest_list]
    for _ in run(partial(_remove, io), [*unused, *gone, *lists]):
        pass


def _remove(io: FileIO, path: str) -> None:
    try:
        io.delete(path)
    except FileNotFoundError:  # another engine removed it
        _log.debug("%s is already removed", path)
