"""Compaction of the small files of one Delta table, in one commit, without Spark.

A MERGE that only inserts adds a file to its table, and each file makes the next MERGE slower. delta-rs 1.6 does not
compact tables with column mapping, which every target has. So `compact` copies the rows of small files into one new
file. It commits both sides as one transaction of delta-rs with dataChange=false: rows stay the same, and streams that
read the table skip the commit. If another writer changed one of the files meanwhile, the commit is refused.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from streaming_source.mirroring.writers.native.data_files import remove_files, write_file
from streaming_source.mirroring.writers.native.delta_rows import after_commit
from streaming_source.mirroring.writers.native.table_files import files_of, rows_of, with_deletion_vectors

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from streaming_source.mirroring.writers.native.data_files import DataFile
    from streaming_source.mirroring.writers.native.table_files import TableFile

FEW_FILES: Final = 20
"""Number of small files from which a table is compacted."""
SMALL_BYTES: Final = 8 << 20
"""Size from which files are not compacted, so that a row is copied a few times at most. 32 such files are 256 MB."""
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
    from deltalake import DeltaTable

    table = DeltaTable(folder)
    small = _small_files(table)
    if len(small) < FEW_FILES or table.metadata().partition_columns:
        return 0
    schema = pa.schema(table.schema().to_arrow())
    about = _last_metadata(table)
    new = write_file(folder, schema, schema.names, rows_of(folder, small, schema))
    try:
        _commit(table, small, new, about)
    except BaseException:
        remove_files(folder, [] if new is None else [new])
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
    marked = with_deletion_vectors(table)  # Spark compacts these
    chosen, size = [], 0
    for file in sorted(_plain_files(table), key=lambda file: file.size):
        size += file.size
        if size > MOST_BYTES:
            break
        if not any(path.endswith(f"/{file.path}") for path in marked):
            chosen.append(file)
    return sorted(chosen, key=lambda file: file.modified_at)


def _plain_files(table: DeltaTable) -> list[TableFile]:
    return [file for file in files_of(table) if file.size < SMALL_BYTES and file.is_plain]


def _last_metadata(table: DeltaTable) -> dict[str, str]:
    """Return the metadata of the mirror's last commit, for a commit that changes no rows.

    So the version after a compaction belongs to the same micro-batch as the version before it. A table has a commit of
    a micro-batch only if the micro-batch changed it (`versions.py`).
    """
    for commit in table.history(_LAST_COMMITS):
        try:
            about = json.loads(commit.get("userMetadata") or "{}")
        except ValueError:
            continue
        if isinstance(about, dict) and "mirror" in about and "batch" in about:
            return {"userMetadata": json.dumps({**about, "upkeep": "compaction"})}
    return {}
