"""Deletion vectors of a Delta table: rows of its files that are marked as deleted, so that the files stay as they are.

A deletion vector is a Roaring bitmap of the positions of a file's deleted rows. The vectors of one commit are one file
in the folder of the table. delta-rs 1.6 reads deletion vectors and does not write them.

Protocol: https://github.com/delta-io/delta/blob/master/PROTOCOL.md (deletion vectors, their files and descriptors).
"""

from __future__ import annotations

import logging
import struct
import time
import uuid
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming_source.mirroring.writers.native.data_files import NativeWriteError, selection_vectors
from streaming_source.mirroring.writers.native.log_files import (
    added,
    checkpoint_interval,
    is_over,
    logged_files,
    marked,
    now_ms,
    read_log,
    removed,
    vector_name,
    write_commit,
)
from streaming_source.sinks.storage import files_in, without_secrets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt
    from deltalake import DeltaTable

    from streaming_source.mirroring.writers.native.data_files import DataFile
    from streaming_source.mirroring.writers.native.log_files import Action, Vector
    from streaming_source.mirroring.writers.native.rewritten_files import ChangedFiles
    from streaming_source.mirroring.writers.target_format import Commit

    Positions = npt.NDArray[np.int64]

FEATURE: Final = "deletionVectors"
ENABLED: Final = "delta.enableDeletionVectors"
_VERSION: Final = b"\x01"
_MAGIC: Final = struct.pack("<I", 1_681_511_377)
_PREFIX, _SUFFIX = "deletion_vector_", ".bin"
_IN_FOLDER: Final = "u"
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
"""Digits of Z85 (https://rfc.zeromq.org/spec/32/), in which Delta writes the UUID in the name of a file."""
_UUID_DIGITS: Final = 20
_log = logging.getLogger(__name__)


class WrittenVectors(NamedTuple):
    """File with the deletion vectors of a commit; `vectors`: their descriptors, by the path of the data file."""

    path: str
    vectors: dict[str, Vector]


def takes_vectors(table: DeltaTable) -> bool:
    """Return True if writers may mark rows of a table as deleted."""
    features = table.protocol().writer_features or ()
    return FEATURE in features and table.metadata().configuration.get(ENABLED, "").lower() == "true"


def deleted_rows(table: DeltaTable) -> dict[str, Positions]:
    """Return the positions of rows that are marked as deleted, by the path of their file.

    Returns:
        Positions of shape (deleted rows,), int64, ascending.
    """
    import numpy as np

    from streaming_source.mirroring.writers.native.merge.equal_rows import flags

    return {path: np.flatnonzero(~flags(kept)) for path, kept in selection_vectors(table)}


def write_vectors(folder: str, deleted: Mapping[str, Positions]) -> WrittenVectors:
    """Write the deletion vectors of a commit as one file.

    Args:
        folder: the folder of the table.
        deleted: the positions of all deleted rows by data file.

    Raises:
        NativeWriteError: pyroaring is not installed.
    """
    import numpy as np

    try:
        from pyroaring import BitMap64
    except ImportError:
        raise NativeWriteError("the package pyroaring is not installed on this executor") from None
    number = uuid.uuid4()
    path = f"{_PREFIX}{number}{_SUFFIX}"
    vectors: dict[str, Vector] = {}
    content = bytearray(_VERSION)
    for data_file, positions in deleted.items():
        vector = _MAGIC + BitMap64(positions.astype(np.uint64)).serialize()
        vectors[data_file] = {
            "storageType": _IN_FOLDER,
            "pathOrInlineDv": _z85(number.bytes),
            "offset": len(content),
            "sizeInBytes": len(vector),
            "cardinality": len(positions),
        }
        content += struct.pack(">I", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))
    with files_in(folder).write(path) as file:
        file.write(bytes(content))
    return WrittenVectors(path, vectors)


def commit_marks(
    table: DeltaTable, folder: str, changed: ChangedFiles, new: Sequence[DataFile], commit: Commit
) -> None:
    """Commit changes of which some mark rows as deleted, as the next version of a table.

    Args:
        table: the table, at the version whose files were read.
        folder: its folder. Files can be created in it (`can_create`).
        changed: the files that the changes concern.
        new: the files that replace `changed.copied`, with the new rows.
        commit: the token of the commit.

    Raises:
        VersionTakenError: another writer wrote the version first. Nothing was written.
        NativeWriteError: the log cannot be read, or a file that is to be marked has no statistics.
        OSError: a file could not be written. In a bucket the commit may be there all the same.
    """
    logged = logged_files(folder, table.version())
    stats = {file: logged[file.path].stats for file in changed.marked}
    lacking = next((file for file, text in stats.items() if text is None), None)
    if lacking is not None:
        raise NativeWriteError(f"its log has no statistics of {lacking.path}")
    written = write_vectors(folder, {file.path: rows for file, rows in changed.marked.items()})
    actions: list[Action] = [{"txn": {"appId": commit.writer, "version": commit.batch, "lastUpdated": now_ms()}}]
    actions += [removed(file, logged[file.path].vector) for file in (*changed.copied, *changed.marked)]
    actions += [added(file) for file in new]
    actions += [marked(file, text or "{}", written.vectors[file.path]) for file, text in stats.items()]
    try:
        write_commit(folder, table.version() + 1, "MERGE", actions, commit.metadata)
    except BaseException as error:
        if is_over(folder, error):
            files_in(folder).remove([written.path])
        raise
    _write_checkpoint_if_due(table)


def _write_checkpoint_if_due(table: DeltaTable) -> None:
    """Write a checkpoint of the log at the versions at which delta-rs does. `Upkeep` writes one that fails here."""
    if (table.version() + 2) % checkpoint_interval(table.metadata().configuration):
        return
    try:
        table.update_incremental()
        table.create_checkpoint()
    except Exception as error:  # noqa: BLE001  (the commit is done)
        _log.debug("a checkpoint of %s failed: %s", table.table_uri, without_secrets(str(error)))


def unused_vector_files(folder: str, version: int, retention_s: float) -> list[str]:
    """Return the files of deletion vectors in the folder of a table that no version within the retention needs.

    Files of Spark may be in folders below it; they are left.

    Args:
        folder: the folder of the table.
        version: the version of the table.
        retention_s: seconds for which old versions can be read.

    Raises:
        NativeWriteError: the log cannot be read.
    """
    files = [each for each in files_in(folder).times() if each[0].startswith(_PREFIX) and each[0].endswith(_SUFFIX)]
    if not files:
        return []
    logged, begin = read_log(folder, version), time.time() - retention_s
    live = (vector_name(file.vector) for file in logged.files.values() if file.vector is not None)
    recent = (name for name, at_ms in logged.old_vectors.items() if at_ms / 1000 >= begin)
    used = {_file_of(name) for names in (live, recent) for name in names}
    return [name for name, written_at in files if written_at < begin and name not in used]


def _file_of(name: str) -> str:
    """Return the file of a deletion vector by its `vector_name`."""
    text = name.removeprefix(_IN_FOLDER).rpartition("@")[0]
    return f"{_PREFIX}{uuid.UUID(bytes=_from_z85(text[-_UUID_DIGITS:]))}{_SUFFIX}" if name[:1] == _IN_FOLDER else ""


def _z85(data: bytes) -> str:
    digits = ""
    for (number,) in struct.iter_unpack(">I", data):
        digits += "".join(_DIGITS[number // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return digits


def _from_z85(text: str) -> bytes:
    groups: Iterable[str] = (text[first : first + 5] for first in range(0, len(text), 5))
    return b"".join(
        struct.pack(
            ">I", sum(_DIGITS.index(digit) * 85**power for digit, power in zip(group, (4, 3, 2, 1, 0), strict=True))
        )
        for group in groups
    )
