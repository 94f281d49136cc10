"""Upkeep of the Delta tables that a mirror writes natively, between its micro-batches.

`Upkeep.after_batch` takes the folders that a micro-batch wrote, opens a table once in `CHECK_EVERY` of its commits, and
does the due steps:

- a warning if something else changed rows;
- a checkpoint of the log;
- compaction of small files;
- removal of log files and data files after their retention.

It works on one table at a time, in turn, and stops after `BUDGET_S`; the next micro-batch continues. An error is logged
once for each table and step, and the step is retried later: upkeep never fails a micro-batch. No file is removed before
the table's own retention (`delta.logRetentionDuration`, `delta.deletedFileRetentionDuration`) has passed.
"""

from __future__ import annotations

import json
import logging
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streaming_source.mirroring.writers.native.data_files import (
    files_of,
    rows_of,
    with_deletion_vectors,
    write_file,
)
from streaming_source.mirroring.writers.native.deletion_vectors import unused_vector_files
from streaming_source.mirroring.writers.native.delta_rows import (
    after_commit,
    may_have_landed,
    plain,
    remove_uncommitted,
)
from streaming_source.mirroring.writers.native.log_files import checkpoint_interval, last_checkpoint
from streaming_source.sinks.storage import bucket_of, delta_table, files_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from deltalake import DeltaTable

    from streaming_source.mirroring.writers.native.data_files import DataFile, TableFile
# A MERGE that only inserts adds a file to its table, and each file makes the next MERGE slower. delta-rs 1.6 does not
# compact tables with column mapping, which every target has. So `compact` copies the rows of small files into one new
# file. It commits both sides as one transaction of delta-rs with dataChange=false: rows stay the same, and streams
# that read the table skip the commit. If another writer changed one of the files meanwhile, the commit is refused.


FEW_FILES: Final = 20
"""Number of small files from which a table is compacted."""
SMALL_BYTES: Final = 8 << 20
"""Bytes from which a file is not compacted, so that a row is copied a few times at most."""
MOST_BYTES: Final = 32 << 20
"""Most bytes of small files that one commit joins: reading and writing them takes about a second."""
_LAST_COMMITS: Final = 50
"""Commits that are searched for one of the mirror; commits of other writers may be between."""


def compact(folder: str) -> int:
    """Join the small files of a table, and return how many there were; 0 if there are too few.

    Raises:
        NativeWriteError: a file does not have the rows that the log says.
        deltalake.exceptions.DeltaError: delta-rs cannot read or write the table, or another commit came first.
    """
    import pyarrow as pa

    table = delta_table(folder)
    small = _small_files(table)
    if len(small) < FEW_FILES or table.metadata().partition_columns:
        return 0
    schema = pa.schema(table.schema().to_arrow())
    about = _last_metadata(table)
    new = write_file(folder, schema, schema.names, rows_of(folder, small, schema))
    try:
        _commit(table, small, new, about)
    except BaseException as error:
        added = [] if new is None else [new]
        if not may_have_landed(folder, added, None):
            remove_uncommitted(folder, added, error)
            raise
    return len(small)


def _commit(table: DeltaTable, small: list[TableFile], new: DataFile | None, about: dict[str, str]) -> None:
    """Replace the small files by the new file."""
    from deltalake import CommitProperties

    added = [] if new is None else [new.added(data_change=False)]
    table.create_write_transaction(
        [*added, *(file.removed(data_change=False) for file in small)],
        "append",
        table.schema(),
        commit_properties=CommitProperties(custom_metadata=about),
        post_commithook_properties=after_commit(),
    )


def is_due(table: DeltaTable) -> bool:
    """Return True if a table has so many small files that `compact` should join them."""
    return len(_plain_files(table)) >= FEW_FILES


def _small_files(table: DeltaTable) -> list[TableFile]:
    """Return the smallest files, up to MOST_BYTES, in the order in which they were written."""
    marked = with_deletion_vectors(table)  # a later change copies these
    chosen, size = [], 0
    for file in sorted(_plain_files(table), key=lambda file: file.size):
        size += file.size
        if size > MOST_BYTES:
            break
        if file.path not in marked:
            chosen.append(file)
    return sorted(chosen, key=lambda file: file.modified_at)


def _plain_files(table: DeltaTable) -> list[TableFile]:
    return [file for file in files_of(table) if file.size < SMALL_BYTES and file.is_plain]


def _last_metadata(table: DeltaTable) -> dict[str, str]:
    """Return the metadata of the mirror's last commit, for a commit that changes no rows.

    So the version after a compaction belongs to the same micro-batch as the version before it. A table has a commit of
    a micro-batch only if the micro-batch changed it (`target_format.py`).
    """
    for commit in table.history(_LAST_COMMITS):
        try:
            about = json.loads(commit.get("userMetadata") or "{}")
        except ValueError:
            continue
        if isinstance(about, dict) and "mirror" in about and "batch" in about:
            return {"userMetadata": json.dumps({**about, "upkeep": "compaction"})}
    return {}


BUDGET_S: Final = 1.0
"""Seconds of upkeep after one micro-batch, because the next one waits.

A step that has begun is finished: each takes some 0.1 s, the largest compaction about a second.
"""

CHECK_EVERY: Final = 20
"""Commits of a table between two checks. A check costs 5 to 20 ms, so less than a millisecond for each commit."""
LEAST_PERIOD_S: Final = 600.0
MOST_PERIOD_S: Final = 3600.0
"""Limits of the time between two removals of expired files; each removal lists a whole folder.

Within the limits the time is a sixth of the retention, so a table keeps files for up to a sixth longer.
"""
KEPT: Final = "interval 1 hours"
"""Retention of log files and data files, for new targets and the control table.

With one commit a second this is 3,600 versions. A commit lists the log, and reads the removed files in the last
checkpoint. This costs 15 ms more CPU time than with 100 versions, and with 50,000 versions 0.2 s more.
"""
_AT_ONCE: Final = 1000
"""Files that are removed between two readings of the clock: on a local disk, some 20 ms."""
_OBJECTS_AT_ONCE: Final = 20
"""The same for objects, each of which is a request."""
_CHECKPOINT_INTERVAL: Final = 20
"""Versions between two checkpoints of a new target's log.

Each commit reads the log since the last checkpoint. An interval of 100 versions takes 1.3 to 1.6 times the CPU time of
20 versions. An interval of 10 versions saves nothing more.
"""
_LOG_RETENTION: Final = "delta.logRetentionDuration"
_FILE_RETENTION: Final = "delta.deletedFileRetentionDuration"
_FILE_RETENTION_DAYS: Final = 7
"""Retention of data files of tables without the property."""
_PARTS: Final = re.compile(r"(\d+)\s+(second|minute|hour|day|week)s?", re.IGNORECASE)
_SECONDS: Final = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_MOST_COMMITS: Final = 50
"""Most commits that one check searches for other writers."""
_OF_ROWS: Final = ("WRITE", "DELETE", "UPDATE", "MERGE", "TRUNCATE", "RESTORE", "COPY", "STREAMING")
"""Prefixes of Delta's operations that change rows."""
_VERSION: Final = re.compile(r"(\d{20})\.(?:json|checkpoint\..*parquet|checkpoint\.parquet)")
_CHECKSUM: Final = re.compile(r"\.?(\d{20})\..*\.?crc")
_OF_NEW_TARGETS: Final = {
    _LOG_RETENTION: KEPT,
    _FILE_RETENTION: KEPT,  # Delta refuses one that is longer than the log's
    "delta.checkpointInterval": str(_CHECKPOINT_INTERVAL),
}
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Table:
    """State of one table.

    Attributes:
        commits: the commits since the last check. A new table is due at once.
        version: the version at the last check.
    """

    commits: int = CHECK_EVERY - 1
    version: int = -1
    log_cleaned_at: float | None = None
    files_removed_at: float | None = None
    reported: set[str] = field(default_factory=set)


def upkeep_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that bound the logs of new targets; `given`: the user's properties, which override them.

    If only one of the two retentions is given, the other one gets the same value, because Delta refuses some
    combinations.
    """
    lower = {name.lower(): value for name, value in given.items()}
    kept = lower.get(_FILE_RETENTION.lower()) or lower.get(_LOG_RETENTION.lower())
    own = _OF_NEW_TARGETS if kept is None else _OF_NEW_TARGETS | {_LOG_RETENTION: kept, _FILE_RETENTION: kept}
    return {name: value for name, value in own.items() if name.lower() not in lower}


class Upkeep:
    """Upkeep of the tables of one mirror, since its start. Only one thread may call it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, budget_s: float = BUDGET_S) -> None:
        self._clock = clock
        self._budget_s = budget_s
        self._tables: dict[str, _Table] = {}
        self._work: dict[str, Iterator[None]] = {}
        """Due steps by folder, in the order of work."""

    def after_batch(self, folders: Iterable[str]) -> None:
        """Do due steps, for BUDGET_S seconds.

        Args:
            folders: the tables that the micro-batch wrote.
        """
        end = self._clock() + self._budget_s
        for folder in folders:
            table = self._tables.setdefault(folder, _Table())
            table.commits += 1
            if table.commits >= CHECK_EVERY and folder not in self._work:
                table.commits = 0
                self._work[folder] = self._steps(folder, table)
        while self._work and self._clock() < end:
            folder = next(iter(self._work))
            steps = self._work.pop(folder)
            if next(steps, self) is None:  # more steps are left; another table is next
                self._work[folder] = steps

    def _steps(self, folder: str, table: _Table) -> Iterator[None]:
        """Do the due steps of a table; yield after each piece."""
        try:
            due = list(self._due(folder, table))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001  (a panic of delta-rs is no Exception)
            self._log_failure(folder, table, "check of the log", error)
            return
        for what, step in due:
            yield
            try:
                yield from step(folder)
            except (KeyboardInterrupt, SystemExit, GeneratorExit):
                raise
            except BaseException as error:  # noqa: BLE001
                self._log_failure(folder, table, what, error)

    def _due(self, folder: str, state: _Table) -> Iterator[tuple[str, Callable[[str], Iterator[None]]]]:
        """Yield the due steps of a table. Each step opens the table again when it runs."""
        table = delta_table(folder)
        _warn_of_others(folder, table, state.version)
        state.version = table.version()
        properties = table.metadata().configuration
        if table.version() - last_checkpoint(folder) > checkpoint_interval(properties):
            yield "checkpoint", _write_checkpoint
        if is_due(table):
            yield "compaction", _compact
        wanted = properties.get("delta.enableExpiredLogCleanup", "true").lower() != "false"
        if wanted and self._is_time(state.log_cleaned_at, properties.get(_LOG_RETENTION), 30):
            state.log_cleaned_at = self._clock()
            yield "removal of expired log files", _clean_log
        if self._is_time(state.files_removed_at, properties.get(_FILE_RETENTION), _FILE_RETENTION_DAYS):
            state.files_removed_at = self._clock()
            yield "removal of expired data files", _remove_files

    def _is_time(self, last: float | None, retention: str | None, days: int) -> bool:
        """Return True if a removal is due.

        Args:
            last: the time of the last removal; None: none in this run.
            retention: the retention of the table, if it has one.
            days: the retention of tables without one.
        """
        period = min(MOST_PERIOD_S, max(LEAST_PERIOD_S, _seconds(retention, days * 86_400) / 6))
        return last is None or self._clock() - last >= period

    def _log_failure(self, folder: str, table: _Table, what: str, error: BaseException) -> None:
        """Log an error once for each table, step and type of error; a conflict with another commit is no error."""
        from deltalake.exceptions import CommitFailedError, TableNotFoundError

        key = f"{what}: {type(error).__name__}"
        if isinstance(error, CommitFailedError | TableNotFoundError):
            _log.debug("The %s of %s is postponed: %s", what, folder, plain(error))
        elif key not in table.reported:
            table.reported.add(key)
            _log.warning(
                "The %s of %s failed, and is tried again later: %s: %s",
                what,
                folder,
                type(error).__name__,
                plain(error),
            )


def _warn_of_others(folder: str, table: DeltaTable, since: int) -> None:
    """Log the commits after a version that changed rows and do not belong to a mirror."""
    found = []
    for commit in table.history(min(_MOST_COMMITS, table.version() - since)):
        operation = str(commit.get("operation", ""))
        if operation.startswith(_OF_ROWS) and '"mirror"' not in (commit.get("userMetadata") or ""):
            found.append(f"{operation} in version {commit['version']}")
    if found:
        _log.warning(
            "Another writer changed rows of %s: %s, and %d more since. The mirror does not undo that. Audit the "
            "table, or re-snapshot it (mirror_resnapshot).",
            folder,
            found[-1],
            len(found) - 1,
        )


def _write_checkpoint(folder: str) -> Iterator[None]:
    """Write a checkpoint of the log that the writers did not write.

    delta-rs writes one if the next version is a multiple of `delta.checkpointInterval`, Spark if the current version
    is. If they write in turn, each may meet only the versions of the other, and neither writes a checkpoint.
    """
    delta_table(folder).create_checkpoint()
    yield


def _compact(folder: str) -> Iterator[None]:
    number = compact(folder)
    if number:
        _log.info("Joined %d small files of %s", number, folder)
    yield


def _clean_log(folder: str) -> Iterator[None]:
    """Remove log files that no version within the retention needs."""
    delta_table(folder).cleanup_metadata()
    yield
    _remove_checksums(f"{folder}/_delta_log")


def _remove_files(folder: str) -> Iterator[None]:
    """Remove data files and deletion vectors that no version within the retention needs."""
    expired = _expired_files(delta_table(folder))
    at_once = _AT_ONCE if bucket_of(folder) is None else _OBJECTS_AT_ONCE
    for first in range(0, len(expired), at_once):
        yield  # another micro-batch may come between, and may restore an old version
        _remove(folder, set(expired[first : first + at_once]) - _files(delta_table(folder)))
    yield
    table = delta_table(folder)
    retention = _seconds(table.metadata().configuration.get(_FILE_RETENTION), _FILE_RETENTION_DAYS * 86_400)
    _remove(folder, unused_vector_files(folder, table.version(), retention)[:at_once])


def _expired_files(table: DeltaTable) -> list[str]:
    """Return data files that VACUUM would remove, by their paths in the folder.

    delta-rs makes the list with the table's retention, and counts every deletion vector file as unused.
    """
    found = table.vacuum(dry_run=True, enforce_retention_duration=True, full=True)
    return [path for path in found if path.endswith(".parquet") and not Path(path).name.startswith(".")]


def _files(table: DeltaTable) -> set[str]:
    import pyarrow as pa

    return {str(path) for path in pa.table(table.get_add_actions()).column("path").to_pylist()}


def _remove(folder: str, paths: Iterable[str]) -> None:
    """Remove files, and the checksums that Hadoop keeps for them on a local disk."""
    files = files_in(folder)
    for path in paths:
        parent, slash, name = path.rpartition("/")
        files.remove([path] if bucket_of(folder) is not None else [path, f"{parent}{slash}.{name}.crc"])


def _remove_checksums(log: str) -> None:
    """Remove checksums of versions that are no longer in the log: Spark writes them, delta-rs does not remove them."""
    files = files_in(log)
    names = [path for path, _ in files.sizes() if "/" not in path]
    first = min((int(found[1]) for name in names if (found := _VERSION.fullmatch(name))), default=0)
    checksums = ((name, _CHECKSUM.fullmatch(name)) for name in names)
    files.remove(name for name, found in checksums if found and int(found[1]) < first)


def _seconds(interval: str | None, default: int) -> float:
    """Return the seconds of an interval in a Delta property; `default` if it is missing or invalid."""
    parts = _PARTS.findall(interval or "")
    return sum(int(number) * _SECONDS[unit.lower()] for number, unit in parts) if parts else default
