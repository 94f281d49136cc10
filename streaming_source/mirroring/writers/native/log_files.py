"""Log of a Delta table: commits with actions that delta-rs 1.6 does not write, and what it hides.

A commit is a file under the number of the next version. It fails if another writer has taken the number. delta-rs does
not return the deletion vectors and the statistics of files as the log has them. So `logged_files` reads them from the
last checkpoint and the commits after it.

Protocol: https://github.com/delta-io/delta/blob/master/PROTOCOL.md (actions, checkpoints).
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from streaming_source.mirroring.writers.native.data_files import NativeWriteError
from streaming_source.sinks.storage import bucket_of, can_create, files_in, without_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming_source.mirroring.writers.native.data_files import DataFile, TableFile
    from streaming_source.sinks.storage import TableFiles

    Action = Mapping[str, Any]
    Vector = Mapping[str, Any]

LOG: Final = "_delta_log"
_MARKED_STATS: Final = {"tightBounds": False}
"""Statistics of a file with rows that are marked as deleted: the limits may be those of deleted rows."""


class VersionTakenError(NativeWriteError):
    """Another writer wrote the version first. The commit can be tried again with a newer version of the table."""


def write_commit(folder: str, version: int, operation: str, actions: Sequence[Action], metadata: str) -> None:
    """Write a commit.

    Args:
        folder: the folder of the table.
        version: the number of the new version.
        operation: the name of the operation in the table's history.
        actions: the actions in Delta's form, for instance `{"add": {…}}`.
        metadata: the user metadata of the commit.

    Raises:
        VersionTakenError: the version exists already.
        OSError: the commit could not be written. In a bucket it may be there all the same.
    """
    about = {
        "timestamp": now_ms(),
        "operation": operation,
        "operationParameters": {},
        "userMetadata": metadata,
        "engineInfo": "mariadb-binlog mirror",
        "txnId": str(uuid.uuid4()),
    }
    lines = [json.dumps(action, separators=(",", ":")) for action in ({"commitInfo": about}, *actions)]
    content = ("\n".join(lines) + "\n").encode()
    files, path = files_in(folder), _commit_file(version)
    try:
        files.create(path, content)
    except OSError as error:
        if bucket_of(folder) is not None and _has(files, path, content):
            return  # only the answer was lost
        if isinstance(error, FileExistsError):
            raise VersionTakenError(f"another writer wrote version {version} of {folder} first") from None
        raise


def is_over(folder: str, error: BaseException | None) -> bool:
    """Return True if a failed commit cannot arrive any more, so that its files can be removed.

    A store may execute a request after its client gave up: a commit that is not in the log now may be there later. On a
    disk a failed commit is over, and so is one whose version another writer took.

    Args:
        folder: the folder of the table.
        error: the error of the commit.
    """
    return bucket_of(folder) is None or isinstance(error, VersionTakenError)


def _has(files: TableFiles, path: str, content: bytes) -> bool:
    """Return True if a file has this content."""
    try:
        with files.read(path) as file:
            return bool(file.read() == content)
    except FileNotFoundError:
        return False


def added(file: DataFile) -> Action:
    """Return the action that adds a file with rows that are new to the table."""
    return _added(file.path, file.size, now_ms(), file.stats)


def marked(file: TableFile, stats: str, vector: Vector) -> Action:
    """Return the action that adds a file of the table again, with other deleted rows.

    Args:
        file: the file.
        stats: its statistics, as JSON.
        vector: its deletion vector.
    """
    known = json.dumps({**json.loads(stats), **_MARKED_STATS})
    action = _added(file.path, file.size, file.modified_at, known)
    return {"add": {**action["add"], "deletionVector": vector}}


def _added(path: str, size: int, modified_at: int, stats: str) -> Action:
    return {
        "add": {
            "path": path,
            "partitionValues": {},
            "size": size,
            "modificationTime": modified_at,
            "dataChange": True,
            "stats": stats,
        }
    }


def removed(file: TableFile, vector: Vector | None = None) -> Action:
    """Return the action that removes a file; `vector`: its deletion vector, without which readers keep the file."""
    action = {
        "path": file.path,
        "deletionTimestamp": now_ms(),
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": {},
        "size": file.size,
    }
    return {"remove": action if vector is None else {**action, "deletionVector": vector}}


def now_ms() -> int:
    """Return milliseconds since 1970."""
    return int(time.time() * 1000)


# Caches of table versions. To open a table, its log is read since the last checkpoint, which takes as long as
# the rest of a small commit. With a cached value, only the commits since its last use are read.


MOST_TABLES: Final = 200
"""Most tables in a cache of a process."""
MOST_FILES: Final = 100
"""Most files of a cached table. Their log entries take some 100 KB, so a full cache takes 20 MB."""
_Value = TypeVar("_Value")
_lock = threading.Lock()


class VersionCache(OrderedDict[str, tuple[object, int, _Value]], Generic[_Value]):
    """Values by the folder of their table, each for one of its versions.

    `take` takes a value out of the cache, and `keep` puts it back, so no two threads share it.
    """

    def take(self, folder: str) -> _Value | None:
        """Return the value of a folder; None if there is none, or if the folder has other files under the same names.

        The files are others if the folder was removed and created again, or restored.
        """
        with _lock:
            identity, version, value = self.pop(folder, (None, -1, None))
        return value if identity is not None and identity == _commit_identity(folder, version) else None

    def keep(self, folder: str, version: int, value: _Value, files: int) -> None:
        """Keep a value, if its table is small.

        Args:
            folder: the folder of the table.
            version: the version of the table.
            value: the value.
            files: the number of the table's files.
        """
        identity = _commit_identity(folder, version)
        if identity is None or files > MOST_FILES:
            return
        with _lock:
            self[folder] = identity, version, value
            while len(self) > MOST_TABLES:
                self.popitem(last=False)


def _commit_identity(folder: str, version: int) -> object:
    """Return a value that another file of the commit would not have; None if there is no file, or it is not known."""
    return files_in(folder).identity(_commit_file(version)) if can_create(folder) else None


def _commit_file(version: int) -> str:
    return f"{LOG}/{version:020d}.json"


# Checkpoints.

_DEFAULT_INTERVAL: Final = 100
"""Interval of delta-rs for tables without `delta.checkpointInterval`."""


def checkpoint_interval(properties: Mapping[str, str]) -> int:
    """Return the number of versions between two checkpoints of a table's log; `properties`: those of the table."""
    interval = properties.get("delta.checkpointInterval", "")
    return int(interval) if interval.isdigit() else _DEFAULT_INTERVAL


def last_checkpoint(folder: str) -> int:
    """Return the version of the last checkpoint; -1 if there is none."""
    try:
        with files_in(folder).read(f"{LOG}/_last_checkpoint") as file:
            return int(json.loads(file.read())["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return -1


# Files of a version, as the log has them.

_COLUMNS: Final = (
    *("add.path", "add.stats", "add.deletionVector"),
    *("remove.path", "remove.deletionTimestamp", "remove.deletionVector"),
)
_VECTOR: Final = ("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality")


class LoggedFile(NamedTuple):
    """File of a table; `stats`: its statistics as JSON, or None; `vector`: its deletion vector, or None."""

    stats: str | None
    vector: Vector | None


class LoggedFiles(NamedTuple):
    """Files in the log of a table.

    Attributes:
        version: the version of the table.
        files: the files of the version, by their paths in the log.
        old_vectors: the time at which a commit removed a deletion vector, in milliseconds, by the vector's name. Only
            those of the read commits and of the checkpoint, which has those within the table's retention.
    """

    version: int
    files: dict[str, LoggedFile]
    old_vectors: dict[str, int]


_known: VersionCache[LoggedFiles] = VersionCache()


def logged_files(folder: str, version: int) -> dict[str, LoggedFile]:
    """Return the files of a table by their paths in its log. Only the commits since the last call are read.

    Args:
        folder: the folder of the table.
        version: the version of the table.

    Raises:
        NativeWriteError: the log cannot be read, or its checkpoint has a form that is not known.
    """
    known = _known.take(folder)
    found = read_log(folder, version, None if known is None or known.version > version else known)
    _known.keep(folder, version, found._replace(old_vectors={}), len(found.files))
    return found.files


def read_log(folder: str, version: int, since: LoggedFiles | None = None) -> LoggedFiles:
    """Read the log of a table.

    Args:
        folder: the folder of the table.
        version: the version of the table.
        since: the files of an older version. None: the last checkpoint is read.

    Raises:
        NativeWriteError: the log cannot be read, or its checkpoint has a form that is not known.
    """
    try:
        known = _from_checkpoint(folder, version) if since is None else since._replace(files=dict(since.files))
        files = files_in(folder)
        for number in range(known.version + 1, version + 1):
            with files.read(_commit_file(number)) as file:
                lines = file.read().splitlines()
            for line in lines:
                _take(json.loads(line), known)
    except (OSError, ValueError, KeyError) as error:
        text = f"the log of {folder} cannot be read: {type(error).__name__}: {without_secrets(str(error))}"
        raise NativeWriteError(text) from (error if bucket_of(folder) is None else None)
    return known._replace(version=version)


def vector_name(vector: Vector) -> str:
    """Return a text that identifies a deletion vector."""
    return f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}"


def _from_checkpoint(folder: str, version: int) -> LoggedFiles:
    """Return the files of the last checkpoint; no files if there is none, or if it is newer than the version."""
    import pyarrow.parquet as pq

    number = last_checkpoint(folder)
    if not 0 <= number <= version:
        return LoggedFiles(-1, {}, {})
    try:
        file = files_in(folder).read(f"{LOG}/{number:020d}.checkpoint.parquet")
    except FileNotFoundError:
        raise NativeWriteError("its log has a checkpoint in several files") from None
    found = LoggedFiles(number, {}, {})
    with file, pq.ParquetFile(file) as checkpoint:
        for batch in checkpoint.iter_batches(columns=list(_COLUMNS)):
            for actions in batch.to_pylist():
                _take(actions, found)
    return found


def _take(actions: Action, into: LoggedFiles) -> None:
    """Take the actions of one line of a commit, or of one row of a checkpoint."""
    remove, add = actions.get("remove"), actions.get("add")
    if remove is not None:
        vector = _vector(remove)
        if vector is not None:
            into.old_vectors[vector_name(vector)] = int(remove.get("deletionTimestamp") or 0)
        if remove["path"] in into.files and into.files[remove["path"]].vector == vector:
            del into.files[remove["path"]]
    if add is not None:
        into.files[add["path"]] = LoggedFile(add.get("stats"), _vector(add))


def _vector(action: Action) -> Vector | None:
    """Return the deletion vector of an action. In checkpoints, fields without a value are None."""
    vector = action.get("deletionVector")
    return None if vector is None else {name: vector[name] for name in _VECTOR if vector.get(name) is not None}
