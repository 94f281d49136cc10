"""Compaction of the small files of one Delta table: one commit, without Spark.

A MERGE that only inserts adds a file to its table, and each file makes the next MERGE dearer. delta-rs 1.6 does not
compact tables with column mapping, which every target has. So `compact` copies the rows of small files into one new
file and commits both sides as one transaction of delta-rs, with dataChange=false: rows stay as they are, and streams
that read the table skip the commit. If another writer changed one of the files meanwhile, the commit is refused.
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
"""A table is compacted if it has so many small files."""
SMALL_BYTES: Final = 8 << 20
"""Files of this size are left alone, so a row is copied a few times at most. 32 of them are a table of 256 MB."""
MOST_BYTES: Final = 32 << 20
"""Small files that one commit joins: reading and writing so much takes about a second."""
_LAST_COMMITS: Final = 50
"""Commits that are searched for one of the mirror; those of other writers may lie between."""


def compact(folder: str) -> int:
    """Join the small files of a table, and return how many there were; 0 if there are too few.

    Raises:
        NativeWriteError: a file does not hold what the log says of it.
        deltalake.exceptions.DeltaError: delta-rs cannot read or write the table, or another commit was faster.
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
    """Put the new file in the place of the small ones."""
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
    """Tell whether a table has so many small files that `compact` should join them."""
    return len(_plain_files(table)) >= FEW_FILES


def _small_files(table: DeltaTable) -> list[TableFile]:
    """Return the smallest files in the order in which they were written, up to MOST_BYTES."""
    marked = with_deletion_vectors(table)  # these are left to Spark
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
    """Return what the mirror's last commit says of itself, for the commit that changes none of its rows.

    So the version after a compaction belongs to the batch that the version before it belongs to, and a table has a
    commit of a batch only if the batch changed it (`versions.py`).
    """
    for commit in table.history(_LAST_COMMITS):
        try:
            about = json.loads(commit.get("userMetadata") or "{}")
        except ValueError:
            continue
        if isinstance(about, dict) and "mirror" in about and "batch" in about:
            return {"userMetadata": json.dumps({**about, "upkeep": "compaction"})}
    return {}
