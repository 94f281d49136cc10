"""One Delta table, to which delta-rs brings the last change of each key: no Spark, no JVM.

In: the table's folder, rows of Arrow, and the commit that they belong to. Out: one commit, or none where the table has
it already. What is in the table stays exact for every reader: statistics and dictionaries are written only for types
whose values delta-rs, Spark and others order and compare alike. Refused: a table that delta-rs cannot write, or that is
too large to be written by one task.

The commit is asked for and written through one `DeltaTable`: of two tasks that do the same work, or one that comes
late, the second finds the commit there, or conflicts with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streaming_source.mirroring.versions import commit_metadata

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from deltalake import DeltaTable, PostCommitHookProperties, WriterProperties

MOST_BYTES: Final = 256 << 20
"""The largest table that a task writes: delta-rs has the files that it changes in memory, some four times as large."""
TRIES: Final = 5
"""A commit of someone else (OPTIMIZE, an append) makes a try fail; the next one begins with the table behind it."""
FEATURES: Final = frozenset({"appendOnly", "invariants", "columnMapping", "deletionVectors", "timestampNtz"})
"""What a table may need of its writers: each was tried against Spark. delta-rs 1.6 refuses row tracking and more."""
_OLDEST_WITH_FEATURES: Final = 7
_PLAIN_WRITER: Final = 2
_CHANGE_FEED: Final = "delta.enableChangeDataFeed"
_PHYSICAL_NAME: Final = b"delta.columnMapping.physicalName"


class NativeWriteError(Exception):
    """Says why delta-rs did not write a table: Spark does."""


class Commit(NamedTuple):
    """The commit that rows belong to: whose, of which batch, up to which GTID position."""

    mirror: str
    batch: int
    position: str

    @property
    def writer(self) -> str:
        """The name under which Delta keeps the number of the last batch."""
        return f"{self.mirror}/changes"

    @property
    def metadata(self) -> str:
        """What the commit says of itself, as all commits of a mirror do."""
        return commit_metadata(*self)


def merge_rows(
    folder: str, rows: pa.Table, names: Sequence[str], keys: Sequence[str], commit: Commit, owner: dict[str, str]
) -> bool:
    """Bring the last change of each key into a table; return False where the commit is there already.

    Args:
        folder: where the table lies.
        rows: a row a key. The columns are called by their numbers, `0`, `1`, …; one more is true where the row is gone.
        names: what the columns are called in the table, in order.
        keys: those that tell rows apart.
        commit: which commit it is.
        owner: properties that the table must have.

    Raises:
        NativeWriteError: nothing was written.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

    for number in range(TRIES):
        try:
            table = DeltaTable(folder)
            last = table.transaction_version(commit.writer)
            if last is not None and last >= commit.batch:
                return False
            _check(table, owner)
            _merge(table, rows, names, keys, commit)
        except TableNotFoundError:
            raise NativeWriteError(f"there is no table in {folder}") from None
        except CommitFailedError as error:
            if number + 1 == TRIES:
                raise NativeWriteError(f"{TRIES} tries met other commits: {error}") from error
        except DeltaError as error:
            raise NativeWriteError(f"delta-rs: {error}") from error
        else:
            return True
    raise AssertionError("a try ends in one of these ways")


def replace_rows(folder: str, values: Mapping[str, list[object]], metadata: str) -> None:
    """Put rows in the place of all rows of a table, as one commit; `metadata`: what it says of itself.

    Raises:
        NativeWriteError: nothing was written.
    """
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable, write_deltalake

    try:
        table = DeltaTable(folder)
        _check(table, {})
        there = pa.schema(table.schema().to_arrow())
        write_deltalake(
            table,
            pa.table(values, schema=there),
            mode="overwrite",
            writer_properties=_properties(there),
            commit_properties=CommitProperties(custom_metadata={"userMetadata": metadata}),
            post_commithook_properties=after_commit(),
        )
    except Exception as error:
        raise NativeWriteError(f"{type(error).__name__}: {error}") from error


def after_commit() -> PostCommitHookProperties:
    """Return what delta-rs does after a commit: a checkpoint if one is due.

    It would also list the log for expired files, after every commit: 0.7 s with 50,000 versions. `Upkeep` does that.
    """
    from deltalake import PostCommitHookProperties

    return PostCommitHookProperties(cleanup_expired_logs=False)


def _check(table: DeltaTable, owner: dict[str, str]) -> None:
    """Refuse a table that delta-rs cannot write as we need it."""
    import pyarrow as pa

    protocol = table.protocol()
    needed = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    if needed - FEATURES:
        raise NativeWriteError(f"it needs {', '.join(sorted(needed - FEATURES))}")
    if not (protocol.min_writer_version == _OLDEST_WITH_FEATURES or protocol.min_writer_version <= _PLAIN_WRITER):
        raise NativeWriteError(f"it needs a writer of version {protocol.min_writer_version}")
    there = table.metadata().configuration
    if there.get(_CHANGE_FEED, "").lower() == "true":
        raise NativeWriteError("it keeps a change data feed")
    other = next((name for name, value in owner.items() if there.get(name) != value), None)
    if other is not None:
        raise NativeWriteError(f"its property {other} is another one")
    files = pa.table(table.get_add_actions())
    size = sum(files.column("size_bytes").to_pylist())
    if size > MOST_BYTES:
        raise NativeWriteError(f"it has {size >> 20} MB")


def _merge(table: DeltaTable, rows: pa.Table, names: Sequence[str], keys: Sequence[str], commit: Commit) -> None:
    import pyarrow as pa
    from deltalake import CommitProperties, Transaction

    there = pa.schema(table.schema().to_arrow())
    lacking = next((name for name in names if name not in there.names), None)
    if lacking is not None:
        raise NativeWriteError(f"it has no column {lacking}")
    kinds = [there.field(name).type for name in names]
    schema = pa.schema([*(pa.field(str(number), kind) for number, kind in enumerate(kinds)), rows.schema[-1]])
    try:
        rows = rows.cast(schema)
    except pa.ArrowInvalid as error:
        raise NativeWriteError(f"its columns have other types: {error}") from error
    numbers = {name: _column("source", str(number)) for number, name in enumerate(names)}
    gone = _column("source", str(len(names)))
    values = {_quoted(name): number for name, number in numbers.items()}
    table.merge(
        rows,
        predicate=" AND ".join(f"{_column('target', key)} = {numbers[key]}" for key in keys),
        source_alias="source",
        target_alias="target",
        writer_properties=_properties(there),
        commit_properties=CommitProperties(
            app_transactions=[Transaction(commit.writer, commit.batch)],
            custom_metadata={"userMetadata": commit.metadata},
        ),
        post_commithook_properties=after_commit(),
    ).when_matched_delete(gone).when_matched_update(values).when_not_matched_insert(values, f"NOT {gone}").execute()


def _properties(schema: pa.Schema) -> WriterProperties:
    """Return how files are written.

    delta-rs rounds the limits of DECIMALs to doubles, Spark misses -0.0 in dictionaries of FLOAT and DOUBLE, and
    limits of text, bytes and times are cut in ways that readers take differently. So only whole numbers and dates have
    limits, and only they and text have dictionaries.
    """
    import pyarrow as pa
    from deltalake import ColumnProperties, WriterProperties

    limits = ColumnProperties(dictionary_enabled=True, statistics_enabled="CHUNK")
    dictionary = ColumnProperties(dictionary_enabled=True, statistics_enabled="NONE")
    plain = ColumnProperties(dictionary_enabled=False, statistics_enabled="NONE")
    found = {}
    for field in schema:
        name = (field.metadata or {}).get(_PHYSICAL_NAME, field.name.encode()).decode()
        if pa.types.is_integer(field.type) or pa.types.is_date(field.type):
            found[name] = limits
        elif pa.types.is_string(field.type):
            found[name] = dictionary
    return WriterProperties(compression="SNAPPY", default_column_properties=plain, column_properties=found)


def _column(table: str, name: str) -> str:
    return f"{table}.{_quoted(name)}"


def _quoted(name: str) -> str:
    """Quote a name for DataFusion: it is data, whatever stands in it."""
    return '"' + name.replace('"', '""') + '"'
