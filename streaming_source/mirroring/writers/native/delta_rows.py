"""Commits to one Delta table by delta-rs, without Spark or a JVM.

There are four kinds of commit: `merge_rows` for changes, `append_files` for Parquet files of tasks, `remove_rows` for
TRUNCATE, and `replace_rows` for all rows of a small table. `merge_rows` and `append_files` do nothing if the table
already has their commit. Refused: a table that delta-rs cannot write, or that is too large for a merge by one task.

The token of a commit is read and written through one `DeltaTable`. If two tasks do the same work, the second one finds
the token, or its commit conflicts.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from streaming_source.mirroring.writers.native.data_files import (
    NativeWriteError,
    files_of,
    old_bytes,
    parquet_columns,
    remove_files,
    with_deletion_vectors,
)
from streaming_source.mirroring.writers.native.deletion_vectors import (
    commit_marks,
    deleted_rows,
    takes_vectors,
)
from streaming_source.mirroring.writers.native.log_files import VersionCache, VersionTakenError, is_over
from streaming_source.mirroring.writers.native.merge.query import merge_by_query
from streaming_source.mirroring.writers.native.rewritten_files import (
    FileKeys,
    files_with_keys,
    is_rewritable,
    rewritten,
)
from streaming_source.mirroring.writers.target_format import ROWS
from streaming_source.schema.row_schema import spark_type
from streaming_source.sinks.sql_text import double_quoted
from streaming_source.sinks.storage import bucket_of, can_create, delta_table, without_secrets
from streaming_source.sinks.storage_faults import storage_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, WriterProperties

    from streaming_source.mirroring.writers.native.data_files import DataFile, TableFile
    from streaming_source.mirroring.writers.target_format import Commit
    from streaming_source.transforms.transformed_images import TargetColumn

_kept: VersionCache[DeltaTable] = VersionCache()


def opened(folder: str) -> DeltaTable:
    """Return the current version of the table in a folder.

    Raises:
        TableNotFoundError: there is no table.
    """
    table = _kept.take(folder)
    if table is None:
        return delta_table(folder)
    table.update_incremental()
    return table


def keep(folder: str, table: DeltaTable) -> None:
    """Keep a table in the cache for `opened`, if it is small and on a local disk.

    In a bucket it would keep the credentials that it was opened with.
    """
    if bucket_of(folder) is None:
        _kept.keep(folder, table.version(), table, len(table.file_uris()))


MOST_BYTES: Final = 256 << 20
"""Most bytes of a table that a task merges by a query: delta-rs needs four times the size of its files in memory."""

LEAST_REWRITTEN: Final = 16 << 20
"""Bytes that a commit has to rewrite before the folder is searched for old files."""
MOST_OLD_BYTES: Final = 8 << 30
"""Most bytes of old files of a table. The retention of old files is an hour.

A commit each second that rewrites 30 MB would leave 100 GB. Rows of large files are marked as deleted instead, so only
targets without deletion vectors come near the limit. Spark writes them then.
"""
TRIES: Final = 5
"""Most attempts of a commit.

A commit of another writer (OPTIMIZE, an append) fails an attempt. The next attempt starts with the new version.
"""
FEATURES: Final = frozenset({"appendOnly", "invariants", "columnMapping", "deletionVectors", "timestampNtz"})
"""Table features that delta-rs writes as Spark expects; each was tested. delta-rs 1.6 refuses row tracking and more."""
_OLDEST_WITH_FEATURES: Final = 7
_PLAIN_WRITER: Final = 2
_CHANGE_FEED: Final = "delta.enableChangeDataFeed"
_FEATURE: Final = "delta.feature."
_FOR_TERMINALS: Final = re.compile(r"\x1b\[[0-9;]*m|↳")
_LAST_COLUMN_ID: Final = "delta.columnMapping.maxColumnId"
"""Property that Delta adds to the properties of a new table because of column mapping."""


class TargetShape(NamedTuple):
    """Target, as a task writes it.

    Attributes:
        names: its columns, in the order of the rows' columns.
        keys: its key columns.
        owner: properties that the table must have, because they name the mirror.
    """

    mode: str
    names: tuple[str, ...]
    keys: tuple[str, ...]
    owner: tuple[tuple[str, str], ...]


@contextlib.contextmanager
def refused(folder: str) -> Iterator[None]:
    """Convert every error of delta-rs to a NativeWriteError: its own errors, an OSError of a disk, errors of Arrow.

    The error for a fault of a bucket has no cause, because the texts of delta-rs may have credentials.
    """
    try:
        yield
    except NativeWriteError:
        raise
    except Exception as error:
        text = f"delta-rs: {type(error).__name__}: {plain(error)}"
        if bucket_of(folder) is None:
            raise NativeWriteError(text) from error
        raise NativeWriteError(reason_of(text, folder)) from None


def plain(error: BaseException) -> str:
    """Return the text of an error of delta-rs in one line, without credentials, colours and arrows of terminals."""
    return without_secrets(" ".join(_FOR_TERMINALS.sub(" ", str(error)).split()))


def reason_of(text: str, folder: str) -> str:
    """Return an error text about a folder, without credentials; if its bucket has a fault, with the remedy first."""
    fault = storage_fault(text, folder)
    text = without_secrets(text)
    return text if fault is None else f"{fault.text}. {fault.hint} ({text})"


def open_target(folder: str, target: TargetShape) -> pa.Schema:
    """Return the columns of a table that delta-rs can write.

    Raises:
        NativeWriteError: delta-rs cannot write it.
    """
    import pyarrow as pa

    with refused(folder):
        table = opened(folder)
        check_target(table, target)
        keep(folder, table)
        return pa.schema(table.schema().to_arrow())


def is_as_created(folder: str, columns: Sequence[TargetColumn], comment: str, properties: Mapping[str, str]) -> bool:
    """Return True if a table has exactly the columns, comment and properties of a table created with these.

    Raises:
        NativeWriteError: delta-rs cannot read the table.
    """
    from pyspark.sql.types import StructType

    with refused(folder):
        table = delta_table(folder)
        metadata, protocol = table.metadata(), table.protocol()
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    features_named = {name.removeprefix(_FEATURE) for name in properties if name.startswith(_FEATURE)}
    wanted = {name: value for name, value in properties.items() if not name.startswith(_FEATURE)}
    configuration = {name: value for name, value in metadata.configuration.items() if name != _LAST_COLUMN_ID}
    known = StructType.fromJson(json.loads(table.schema().to_json()))
    fields = [(one.name, one.dataType, one.nullable, (one.metadata or {}).get("comment", "")) for one in known]
    return (
        configuration == wanted
        and features_named <= features
        and (metadata.description or "") == comment
        and fields == [(one.name, spark_type(one.type), one.nullable, one.comment) for one in columns]
    )


def has_rows(folder: str, commit: Commit) -> bool:
    """Return True if a table has changes or snapshot rows of the micro-batch of a commit.

    Raises:
        NativeWriteError: the table exists and cannot be read.
    """
    from deltalake.exceptions import DeltaProtocolError, TableNotFoundError

    with refused(folder):
        try:
            table = delta_table(folder)
        except (TableNotFoundError, DeltaProtocolError):  # there is no table in the folder
            return False
        last = (table.transaction_version(commit._replace(part=part).writer) for part in ROWS)
        return any(batch is not None and batch >= commit.batch for batch in last)


def merge_rows(folder: str, rows: pa.Table, target: TargetShape, commit: Commit) -> bool:
    """Merge net changes into a table; return False if it already has the commit.

    Args:
        folder: the folder of the table.
        rows: the result of `net_changes` for the mode of the target.
        target: the target.
        commit: the token of the commit.

    Raises:
        NativeWriteError: nothing was written.
    """
    return _committed(folder, target, commit, lambda table: _merge(table, folder, rows, target, commit))


def append_files(
    folder: str,
    files: Sequence[DataFile],
    target: TargetShape,
    commit: Commit,
    *,
    once: bool,
    replaced: Sequence[TableFile] = (),
) -> bool:
    """Append files in the folder of a table; return False if the table already has the commit.

    Args:
        folder: the folder of the table.
        files: the files, with rows of the target. On a disk, those that get no commit are removed.
        target: the target.
        commit: the token of the commit.
        once: whether the commit stores its token. A target that was created for this micro-batch needs none.
        replaced: files that the commit removes from the table, because `files` have their remaining rows.

    Raises:
        NativeWriteError: nothing was written.
    """
    token = commit if once else None
    try:
        added = _committed(folder, target, token, lambda table: _append(table, files, replaced, commit, once=once))
    except NativeWriteError:
        if not _landed(folder, files, token):
            remove_uncommitted(folder, files)
            raise
        return True  # only a step after the commit failed, for instance a checkpoint
    if not added and not _landed(folder, files, None):
        remove_files(folder, files)
    return added


def may_have_landed(folder: str, files: Sequence[DataFile], token: Commit | None) -> bool:
    """Return True if a failed commit is in a table after all; call it before the files of the commit are removed.

    A store may write a commit and its answer may get lost. The retry of delta-rs then finds its own commit, and reports
    a conflict. On a disk a failed commit is not there.

    Raises:
        NativeWriteError: this is unknown, or the table has the token but not the files, because another task made the
            commit, or a later commit replaced the files. The files stay for VACUUM.
    """
    if bucket_of(folder) is None:
        return False
    if files and _landed(folder, files, None):
        return True
    if token is not None and _landed(folder, (), token):
        raise NativeWriteError("another task made its commit, or a later one replaced its files")
    return False


def remove_uncommitted(folder: str, files: Sequence[DataFile], error: BaseException | None = None) -> None:
    """Remove the files of a failed commit, unless the commit may still arrive (`is_over`). Then they stay for VACUUM.

    Args:
        folder: the folder of the table.
        files: the files.
        error: the error of the commit.
    """
    if is_over(folder, error):
        remove_files(folder, files)


def _landed(folder: str, files: Sequence[DataFile], token: Commit | None) -> bool:
    """Return True if the table has the files of a commit, or its token if it has no files.

    Raises:
        NativeWriteError: the table cannot be read.
    """
    from deltalake.exceptions import TableNotFoundError

    with refused(folder):
        try:
            table = delta_table(folder)
        except TableNotFoundError:
            return False
        if files:
            return {file.path for file in files} <= {file.path for file in files_of(table)}
        return token is not None and table.transaction_version(token.writer) == token.batch


def remove_rows(folder: str, target: TargetShape, metadata: str) -> None:
    """Delete all rows of a table in one commit; `metadata`: the user metadata of the commit.

    Raises:
        NativeWriteError: nothing was deleted.
    """
    from deltalake import CommitProperties

    properties = CommitProperties(custom_metadata={"userMetadata": metadata})
    _committed(
        folder,
        target,
        None,
        lambda table: table.delete(commit_properties=properties, post_commithook_properties=after_commit()),
    )


def replace_rows(folder: str, values: Mapping[str, list[object]], metadata: str) -> None:
    """Replace all rows of a table in one commit.

    Args:
        folder: the folder of the table.
        values: the values by column.
        metadata: the user metadata of the commit.

    Raises:
        NativeWriteError: nothing was written.
    """
    import pyarrow as pa
    from deltalake import CommitProperties, write_deltalake

    with refused(folder):
        table = opened(folder)
        check_target(table, None)
        schema = pa.schema(table.schema().to_arrow())
        write_deltalake(
            table,
            pa.table(values, schema=schema),
            mode="overwrite",
            writer_properties=_properties(schema),
            commit_properties=CommitProperties(custom_metadata={"userMetadata": metadata}),
            post_commithook_properties=after_commit(),
        )
        keep(folder, table)


def stored_rows(folder: str, names: Sequence[str], version: int | None = None) -> list[tuple[object, ...]]:
    """Return some columns of all rows of a small table; `version`: the version to read, None for the newest one.

    Raises:
        NativeWriteError: the table cannot be read.
    """
    import pyarrow as pa
    from deltalake import QueryBuilder

    with refused(folder):
        query = QueryBuilder().register("there", delta_table(folder, version))
        found = pa.table(query.execute(f"SELECT {', '.join(map(double_quoted, names))} FROM there").read_all())  # noqa: S608
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def stored_columns(folder: str) -> list[str]:
    """Return the names of the columns of a table.

    Raises:
        NativeWriteError: the table cannot be read, or does not exist.
    """
    with refused(folder):
        return [field.name for field in delta_table(folder).schema().fields]


def after_commit() -> PostCommitHookProperties:
    """Return the actions of delta-rs after a commit: a checkpoint if one is due.

    By default delta-rs also lists the log for expired files after every commit, which takes 0.7 s with 50,000 versions.
    `Upkeep` removes expired files instead.
    """
    from deltalake import PostCommitHookProperties

    return PostCommitHookProperties(cleanup_expired_logs=False)


def _committed(folder: str, target: TargetShape, token: Commit | None, write: Callable[[DeltaTable], object]) -> bool:
    """Write one commit, after the commits of other writers. Return False if the table already has the commit."""
    from deltalake.exceptions import CommitFailedError, TableNotFoundError

    with refused(folder):
        for number in range(TRIES):
            try:
                table = opened(folder)
                if token is not None:
                    last = table.transaction_version(token.writer)
                    if last is not None and last >= token.batch:
                        return False
                check_target(table, target)
                write(table)
            except TableNotFoundError:
                raise NativeWriteError(f"there is no table in {folder}") from None
            except (CommitFailedError, VersionTakenError) as error:
                if number + 1 == TRIES:
                    raise NativeWriteError(f"{TRIES} tries conflicted with other commits: {plain(error)}") from None
            else:
                keep(folder, table)
                return True
    raise AssertionError("a try ends in one of these ways")


def check_target(table: DeltaTable, target: TargetShape | None) -> None:
    """Refuse a table that delta-rs cannot write with all of its features."""
    protocol = table.protocol()
    needed = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    if needed - FEATURES:
        raise NativeWriteError(f"it needs the table features {', '.join(sorted(needed - FEATURES))}")
    if not (protocol.min_writer_version == _OLDEST_WITH_FEATURES or protocol.min_writer_version <= _PLAIN_WRITER):
        raise NativeWriteError(f"it needs a writer of version {protocol.min_writer_version}")
    configuration = table.metadata().configuration
    if configuration.get(_CHANGE_FEED, "").lower() == "true":
        raise NativeWriteError("it keeps a change data feed")
    owner = () if target is None else target.owner
    other = next((name for name, value in owner if configuration.get(name) != value), None)
    if other is not None:
        raise NativeWriteError(f"its property {other} has another value")


def _merge(table: DeltaTable, folder: str, rows: pa.Table, target: TargetShape, commit: Commit) -> None:
    import pyarrow as pa

    files = files_of(table)
    schema = pa.schema(table.schema().to_arrow())
    lacking = next((name for name in target.names if name not in schema.names), None)
    if lacking is not None:
        raise NativeWriteError(f"it has no column {lacking}")
    kinds = [schema.field(name).type for name in target.names]
    columns = [pa.field(str(number), kind) for number, kind in enumerate(kinds)]
    try:
        rows = rows.cast(pa.schema([*columns, *list(rows.schema)[len(columns) :]]))
    except pa.ArrowInvalid as error:
        raise NativeWriteError(f"its columns have other types: {error}") from error
    complete = len(columns) == len(schema) and len(rows.schema) <= len(columns) + 1  # no image lacks columns
    by_file = complete and is_rewritable(table, files, schema, target.mode, target.keys)
    if by_file and (can_create(folder) or not with_deletion_vectors(table)):
        _change_files(table, folder, files, schema, rows, target, commit)
        return
    size = sum(file.size for file in files)
    if size > MOST_BYTES:
        raise NativeWriteError(f"it has {size >> 20} MB")
    check_old_files(folder, files, size)
    properties = _commit_properties(commit, once=True)
    merge_by_query(table, rows, target, _properties(schema), properties, after_commit())


def _change_files(
    table: DeltaTable,
    folder: str,
    files: Sequence[TableFile],
    schema: pa.Schema,
    rows: pa.Table,
    target: TargetShape,
    commit: Commit,
) -> None:
    """Mark the changed rows of large files as deleted, copy other files without them, and add the new rows.

    The commit has to be the next one, because rows that another writer appends meanwhile may have the same keys.
    """
    import pyarrow as pa

    count = len(target.names)
    changes = pa.Table.from_arrays(rows.columns[:count], names=list(target.names))
    deleted = rows.column(count) if rows.num_columns > count else None
    keys = FileKeys(schema, changes.select(list(target.keys)))
    already = deleted_rows(table)
    marks = can_create(folder)
    changed = files_with_keys(folder, files, keys, already, marks=marks and takes_vectors(table))
    check_old_files(folder, files, sum(file.size for file in changed.copied))
    new = rewritten(folder, changed.copied, schema, keys, changes, deleted, already)
    try:
        if marks and (changed.marked or any(file.path in already for file in changed.copied)):
            commit_marks(table, folder, changed, new, commit)
            return
        table.create_write_transaction(
            [
                *(file.added(data_change=True) for file in new),
                *(file.removed(data_change=True) for file in changed.copied),
            ],
            "append",
            table.schema(),
            commit_properties=_commit_properties(commit, once=True, after_others=False),
            post_commithook_properties=after_commit(),
        )
    except BaseException as error:
        if may_have_landed(folder, new, commit):
            return
        remove_uncommitted(folder, new, error)
        raise


def check_old_files(folder: str, files: Sequence[TableFile], size: int) -> None:
    """Refuse to rewrite files if the table would then have too many bytes of old files.

    Args:
        folder: the folder of the table.
        files: the current files of the table.
        size: the bytes that the commit rewrites.
    """
    if size < LEAST_REWRITTEN:
        return
    old = old_bytes(folder, files) + size
    if old > MOST_OLD_BYTES:
        raise NativeWriteError(f"its old files would take {old / 1e9:.1f} GB until they expire")


def _append(
    table: DeltaTable, files: Sequence[DataFile], replaced: Sequence[TableFile], commit: Commit, *, once: bool
) -> None:
    if replaced:
        existing = {file.path for file in files_of(table)} - with_deletion_vectors(table)
        if not {file.path for file in replaced} <= existing:
            raise NativeWriteError("another writer changed files that have its rows")
    table.create_write_transaction(
        [*(file.added(data_change=True) for file in files), *(file.removed(data_change=True) for file in replaced)],
        "append",
        table.schema(),
        commit_properties=_commit_properties(commit, once=once, after_others=not replaced),
        post_commithook_properties=after_commit(),
    )


def _commit_properties(commit: Commit, *, once: bool, after_others: bool = True) -> CommitProperties:
    """Return the properties of a commit.

    Args:
        commit: the token.
        once: whether the commit stores its token, so that a repetition is found.
        after_others: whether the commit may follow a new commit of another writer. If not, it fails then.
    """
    from deltalake import CommitProperties, Transaction

    return CommitProperties(
        max_commit_retries=None if after_others else 0,
        app_transactions=[Transaction(commit.writer, commit.batch)] if once else None,
        custom_metadata={"userMetadata": commit.metadata},
    )


def _properties(schema: pa.Schema) -> WriterProperties:
    """Return the settings of delta-rs for files; `parquet_columns` has the reasons."""
    from deltalake import ColumnProperties, WriterProperties

    columns = parquet_columns(schema)

    def written(name: str) -> ColumnProperties:
        limits: Literal["CHUNK", "NONE"] = "CHUNK" if name in columns.limited else "NONE"
        return ColumnProperties(dictionary_enabled=name in columns.dictionary, statistics_enabled=limits)

    return WriterProperties(
        compression="SNAPPY",
        default_column_properties=written(""),
        column_properties={name: written(name) for name in columns.limited | columns.dictionary},
    )
