"""Commits to one Delta table by delta-rs: no Spark, no JVM.

Four kinds of commit: `merge_rows` for changes, `append_files` for rows that tasks wrote as Parquet files, `remove_rows`
for TRUNCATE, and `replace_rows` for all rows of a small table. The first two make no commit if theirs is in the table.
Refused: a table that delta-rs cannot write, or that is too large to be merged by one task.

The token of a commit is read and written through one `DeltaTable`. Of two tasks that do the same work, or of one that
comes late, the second finds the token, or its commit conflicts.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from streaming_source.mirroring.writers.native.data_files import NativeWriteError, parquet_columns, remove_files
from streaming_source.mirroring.writers.native.merge.query import merge_by_query, quoted
from streaming_source.mirroring.writers.native.open_tables import keep, opened
from streaming_source.mirroring.writers.native.rewritten_files import (
    FileKeys,
    files_with_keys,
    is_rewritable,
    rewritten,
)
from streaming_source.mirroring.writers.native.table_files import files_of, old_bytes, with_deletion_vectors
from streaming_source.mirroring.writers.versions import ROWS
from streaming_source.schema.row_schema import spark_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, WriterProperties

    from streaming_source.mirroring.writers.native.data_files import DataFile
    from streaming_source.mirroring.writers.native.table_files import TableFile
    from streaming_source.mirroring.writers.versions import Commit
    from streaming_source.ruling.target_columns import TargetColumn

MOST_BYTES: Final = 256 << 20
"""The largest table that a task merges into by a query: delta-rs has the files that it changes in memory, some four
times as large."""
LEAST_LOOKED_AT: Final = 16 << 20
"""Bytes that a commit writes again for which the folder is looked through for old files."""
MOST_OLD_BYTES: Final = 8 << 30
"""Old files of a table, which are kept for an hour. A commit a second that writes 30 MB again would leave 100 GB. Spark
marks rows as deleted instead."""
TRIES: Final = 5
"""A commit of another writer (OPTIMIZE, an append) makes a try fail; the next one begins with the table after it."""
FEATURES: Final = frozenset({"appendOnly", "invariants", "columnMapping", "deletionVectors", "timestampNtz"})
"""What a table may need of its writers: each was tried against Spark. delta-rs 1.6 refuses row tracking and more."""
_OLDEST_WITH_FEATURES: Final = 7
_PLAIN_WRITER: Final = 2
_CHANGE_FEED: Final = "delta.enableChangeDataFeed"
_FEATURE: Final = "delta.feature."
_FOR_TERMINALS: Final = re.compile(r"\x1b\[[0-9;]*m|↳")
_LAST_COLUMN_ID: Final = "delta.columnMapping.maxColumnId"
"""The property that column mapping keeps beside those that a table is created with."""


class TargetShape(NamedTuple):
    """A target as a task writes it. `names`: its columns, in the order of the rows' columns; `keys`: those that tell
    rows apart; `owner`: properties that it must have.
    """

    mode: str
    names: tuple[str, ...]
    keys: tuple[str, ...]
    owner: tuple[tuple[str, str], ...]


@contextlib.contextmanager
def refused() -> Iterator[None]:
    """Give whatever delta-rs raises as a NativeWriteError: its own errors, the OSError of a disk, errors of Arrow."""
    try:
        yield
    except NativeWriteError:
        raise
    except Exception as error:
        raise NativeWriteError(f"delta-rs: {type(error).__name__}: {plain(error)}") from error


def plain(error: Exception) -> str:
    """Return the text of an error of delta-rs in one line, without the colours and arrows of terminals."""
    return " ".join(_FOR_TERMINALS.sub(" ", str(error)).split())


def open_target(folder: str, target: TargetShape) -> pa.Schema:
    """Return the columns of a table that delta-rs can write.

    Raises:
        NativeWriteError: it cannot.
    """
    import pyarrow as pa

    with refused():
        table = opened(folder)
        check_target(table, target)
        keep(folder, table)
        return pa.schema(table.schema().to_arrow())


def is_as_created(folder: str, columns: Sequence[TargetColumn], comment: str, properties: Mapping[str, str]) -> bool:
    """Tell whether a table has the columns, comments and properties of one that is created with these, and no others.

    Raises:
        NativeWriteError: delta-rs cannot read it.
    """
    from deltalake import DeltaTable
    from pyspark.sql.types import StructType

    with refused():
        table = DeltaTable(folder)
        metadata, protocol = table.metadata(), table.protocol()
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    asked = {name.removeprefix(_FEATURE) for name in properties if name.startswith(_FEATURE)}
    wanted = {name: value for name, value in properties.items() if not name.startswith(_FEATURE)}
    there = {name: value for name, value in metadata.configuration.items() if name != _LAST_COLUMN_ID}
    known = StructType.fromJson(json.loads(table.schema().to_json()))
    fields = [(one.name, one.dataType, one.nullable, (one.metadata or {}).get("comment", "")) for one in known]
    return (
        there == wanted
        and asked <= features
        and (metadata.description or "") == comment
        and fields == [(one.name, spark_type(one.type), one.nullable, one.comment) for one in columns]
    )


def has_rows(folder: str, commit: Commit) -> bool:
    """Tell whether a table has changes, or rows that were read, of the batch of a commit.

    Raises:
        NativeWriteError: the table is there, and cannot be read.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaProtocolError, TableNotFoundError

    with refused():
        try:
            table = DeltaTable(folder)
        except (TableNotFoundError, DeltaProtocolError):  # it was never written here
            return False
        last = (table.transaction_version(commit._replace(part=part).writer) for part in ROWS)
        return any(batch is not None and batch >= commit.batch for batch in last)


def merge_rows(folder: str, rows: pa.Table, target: TargetShape, commit: Commit) -> bool:
    """Merge net changes into a table; return False if the commit is already there.

    Args:
        folder: where the table lies.
        rows: what `net_changes` of the target's mode made.
        target: the table.
        commit: which commit it is.

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
    """Append files that lie in the folder of a table; return False if the commit is already there.

    Args:
        folder: where the table lies.
        files: the files, which hold rows of the target. Those that no commit names are removed.
        target: the table.
        commit: which commit it is.
        once: whether the commit has a token. A target that was made for this batch needs none.
        replaced: files of the table that go with the commit, because `files` hold those of their rows that stay.

    Raises:
        NativeWriteError: nothing was written.
    """
    token = commit if once else None
    try:
        added = _committed(folder, target, token, lambda table: _append(table, files, replaced, commit, once=once))
    except NativeWriteError:
        if not _landed(folder, files, token):
            remove_files(folder, files)
            raise
        return True  # what follows a commit failed, a checkpoint for instance
    if not added and not _landed(folder, files, None):
        remove_files(folder, files)
    return added


def _landed(folder: str, files: Sequence[DataFile], token: Commit | None) -> bool:
    """Tell whether a commit is in the table: with its files, or with its token if it has none.

    Raises:
        NativeWriteError: the table cannot be read.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    with refused():
        try:
            table = DeltaTable(folder)
        except TableNotFoundError:
            return False
        if files:
            return {file.path for file in files} <= {file.path for file in files_of(table)}
        return token is not None and table.transaction_version(token.writer) == token.batch


def remove_rows(folder: str, target: TargetShape, metadata: str) -> None:
    """Remove all rows of a table, as one commit; `metadata`: the user's metadata of the commit.

    Raises:
        NativeWriteError: nothing was removed.
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
    """Replace all rows of a table, as one commit; `metadata`: the user's metadata of the commit.

    Raises:
        NativeWriteError: nothing was written.
    """
    import pyarrow as pa
    from deltalake import CommitProperties, write_deltalake

    with refused():
        table = opened(folder)
        check_target(table, None)
        there = pa.schema(table.schema().to_arrow())
        write_deltalake(
            table,
            pa.table(values, schema=there),
            mode="overwrite",
            writer_properties=_properties(there),
            commit_properties=CommitProperties(custom_metadata={"userMetadata": metadata}),
            post_commithook_properties=after_commit(),
        )
        keep(folder, table)


def rows_there(folder: str, names: Sequence[str]) -> list[tuple[object, ...]]:
    """Return some columns of all rows of a small table.

    Raises:
        NativeWriteError: it cannot be read.
    """
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    with refused():
        query = QueryBuilder().register("there", DeltaTable(folder))
        found = pa.table(query.execute(f"SELECT {', '.join(map(quoted, names))} FROM there").read_all())  # noqa: S608  (the names are quoted)
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def columns_there(folder: str) -> list[str]:
    """Return the names of the columns of a table.

    Raises:
        NativeWriteError: it cannot be read, or there is none.
    """
    from deltalake import DeltaTable

    with refused():
        return [field.name for field in DeltaTable(folder).schema().fields]


def after_commit() -> PostCommitHookProperties:
    """Return what delta-rs does after a commit: a checkpoint if one is due.

    It would also list the log for expired files, after every commit: 0.7 s with 50,000 versions. `Upkeep` does that.
    """
    from deltalake import PostCommitHookProperties

    return PostCommitHookProperties(cleanup_expired_logs=False)


def _committed(folder: str, target: TargetShape, token: Commit | None, write: Callable[[DeltaTable], object]) -> bool:
    """Write by one commit, after the commits of other writers."""
    from deltalake.exceptions import CommitFailedError, TableNotFoundError

    with refused():
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
            except CommitFailedError as error:
                if number + 1 == TRIES:
                    raise NativeWriteError(f"{TRIES} tries met other commits: {plain(error)}") from error
            else:
                keep(folder, table)
                return True
    raise AssertionError("a try ends in one of these ways")


def check_target(table: DeltaTable, target: TargetShape | None) -> None:
    """Refuse a table that delta-rs cannot write as we need it."""
    protocol = table.protocol()
    needed = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    if needed - FEATURES:
        raise NativeWriteError(f"it needs {', '.join(sorted(needed - FEATURES))}")
    if not (protocol.min_writer_version == _OLDEST_WITH_FEATURES or protocol.min_writer_version <= _PLAIN_WRITER):
        raise NativeWriteError(f"it needs a writer of version {protocol.min_writer_version}")
    there = table.metadata().configuration
    if there.get(_CHANGE_FEED, "").lower() == "true":
        raise NativeWriteError("it keeps a change data feed")
    owner = () if target is None else target.owner
    other = next((name for name, value in owner if there.get(name) != value), None)
    if other is not None:
        raise NativeWriteError(f"its property {other} is another one")


def _merge(table: DeltaTable, folder: str, rows: pa.Table, target: TargetShape, commit: Commit) -> None:
    import pyarrow as pa

    files = files_of(table)
    there = pa.schema(table.schema().to_arrow())
    lacking = next((name for name in target.names if name not in there.names), None)
    if lacking is not None:
        raise NativeWriteError(f"it has no column {lacking}")
    kinds = [there.field(name).type for name in target.names]
    columns = [pa.field(str(number), kind) for number, kind in enumerate(kinds)]
    try:
        rows = rows.cast(pa.schema([*columns, *list(rows.schema)[len(columns) :]]))
    except pa.ArrowInvalid as error:
        raise NativeWriteError(f"its columns have other types: {error}") from error
    whole = len(columns) == len(there) and len(rows.schema) <= len(columns) + 1  # no image lacks columns
    if whole and is_rewritable(table, files, there, target.mode, target.keys):
        _write_again(table, folder, files, there, rows, target, commit)
        return
    size = sum(file.size for file in files)
    if size > MOST_BYTES:
        raise NativeWriteError(f"it has {size >> 20} MB")
    check_old_files(folder, files, size)
    properties = _commit_properties(commit, once=True)
    merge_by_query(table, rows, target, _properties(there), properties, after_commit())


def _write_again(
    table: DeltaTable,
    folder: str,
    files: Sequence[TableFile],
    there: pa.Schema,
    rows: pa.Table,
    target: TargetShape,
    commit: Commit,
) -> None:
    """Put files without the rows that changed in the place of those that have them. The commit has to be the next one:
    what another writer appended meanwhile may have the same keys.
    """
    import pyarrow as pa

    count = len(target.names)
    changes = pa.Table.from_arrays(rows.columns[:count], names=list(target.names))
    gone = rows.column(count) if rows.num_columns > count else None
    keys = FileKeys(there, changes.select(list(target.keys)))
    met = files_with_keys(folder, files, keys)
    check_old_files(folder, files, sum(file.size for file in met))
    new = rewritten(folder, met, there, keys, changes, gone)
    try:
        table.create_write_transaction(
            [*(file.added(data_change=True) for file in new), *(file.removed(data_change=True) for file in met)],
            "append",
            table.schema(),
            commit_properties=_commit_properties(commit, once=True, after_others=False),
            post_commithook_properties=after_commit(),
        )
    except BaseException:
        remove_files(folder, new)
        raise


def check_old_files(folder: str, files: Sequence[TableFile], size: int) -> None:
    """Refuse a commit that writes so many bytes again if the table has too many old files by then."""
    if size < LEAST_LOOKED_AT:
        return
    old = old_bytes(folder, files) + size
    if old > MOST_OLD_BYTES:
        raise NativeWriteError(f"its old files would take {old / 1e9:.1f} GB until they expire")


def _append(
    table: DeltaTable, files: Sequence[DataFile], replaced: Sequence[TableFile], commit: Commit, *, once: bool
) -> None:
    if replaced:
        marked = with_deletion_vectors(table)
        there = {file.path for file in files_of(table) if not any(path.endswith(f"/{file.path}") for path in marked)}
        if not {file.path for file in replaced} <= there:
            raise NativeWriteError("another writer changed files that have its rows")
    table.create_write_transaction(
        [*(file.added(data_change=True) for file in files), *(file.removed(data_change=True) for file in replaced)],
        "append",
        table.schema(),
        commit_properties=_commit_properties(commit, once=once, after_others=not replaced),
        post_commithook_properties=after_commit(),
    )


def _commit_properties(commit: Commit, *, once: bool, after_others: bool = True) -> CommitProperties:
    """Return what a commit says of itself; without `after_others` it is refused after a commit of another writer."""
    from deltalake import CommitProperties, Transaction

    return CommitProperties(
        max_commit_retries=None if after_others else 0,
        app_transactions=[Transaction(commit.writer, commit.batch)] if once else None,
        custom_metadata={"userMetadata": commit.metadata},
    )


def _properties(schema: pa.Schema) -> WriterProperties:
    """Return how delta-rs writes files; `parquet_columns` has the reasons."""
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
