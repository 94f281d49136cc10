"""Delta tables in local folders as targets, in a session without Delta: delta-rs creates, alters and writes them.

`FolderTarget` has the commits of `DeltaTarget`, with the same tokens. Columns are changed in the log
(`native/table_commits.py`). A change of a type, and a value for all rows, write the rows again. Rows that the native
writer refuses, for instance because of a rule, are reduced by Spark and merged by delta-rs in the driver, up to
MOST_CHANGES keys. The rest needs Spark's MERGE: the table is suspended with the reason.
"""

from __future__ import annotations

import contextlib
import shutil
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from replica.errors import SchemaError
from replica.rows.types.arrow_arrays import array_of_values
from streaming_source.auditing.mirror.from_mirror import version_of
from streaming_source.mirroring.batch.latest_rows import MOST_CHANGES
from streaming_source.mirroring.modes.mode import CLOSE
from streaming_source.mirroring.writers.delta import AS_TEXT, TEXT, DeltaTarget, next_metadata
from streaming_source.mirroring.writers.native.data_files import DataFile, NativeWriteError, write_file
from streaming_source.mirroring.writers.native.delta_rows import (
    TargetShape,
    after_commit,
    append_files,
    merge_rows,
    open_target,
    opened,
    refused,
    remove_rows,
    replace_rows,
)
from streaming_source.mirroring.writers.native.table_commits import (
    Assigned,
    altered,
    create,
    rewrite,
    set_columns,
)
from streaming_source.mirroring.writers.target_format import (
    AddColumns,
    Commit,
    SetType,
)
from streaming_source.schema.target_modes import CURRENT, SOFT_DELETE
from streaming_source.sinks.delta import local_path, no_delta_error, path_of
from streaming_source.sinks.delta_folders import is_delta_folder, read_delta
from streaming_source.sinks.sql_text import identifier
from streaming_source.transforms.transformed_images import MIRROR

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from streaming_source.mirroring.batch.batch_facts import StatementRow
    from streaming_source.mirroring.control.control_table import ControlRow
    from streaming_source.mirroring.modes.mode import Mode, NetChanges
    from streaming_source.mirroring.statements.added_values import KnownValue
    from streaming_source.mirroring.writers.native.table_commits import Field
    from streaming_source.mirroring.writers.target_format import TargetAction
    from streaming_source.transforms.transformed_images import TargetColumn

_HINT: Final = (
    "Correct the reason, or use a Spark with Delta (docs/versions.md). Then re-snapshot the table (mirror_resnapshot)."
)


@contextlib.contextmanager
def _typed(name: str) -> Iterator[None]:
    """Convert the refusal of a write to an error that suspends the table."""
    try:
        yield
    except NativeWriteError as reason:
        raise SchemaError(f"{name} cannot be written by delta-rs: {reason}.", hint=_HINT) from None


def _folder(name: str) -> str:
    """Return the folder of a table.

    Raises:
        ConfigError: the table is in a catalog.
    """
    folder = _local_folder(name)
    if folder is None:
        raise no_delta_error(f"the table {name}")
    return folder


def _local_folder(name: str) -> str | None:
    path = path_of(name)
    return None if path is None else local_path(path)


@dataclass(slots=True)
class FolderTarget(DeltaTarget):
    """Target that is a Delta table in a local folder."""

    def exists(self) -> bool:
        """Return True if the folder has a Delta table."""
        folder = _local_folder(self.name)
        return folder is not None and is_delta_folder(folder)

    def properties(self) -> dict[str, str]:
        """Return the properties of the table."""
        return dict(opened(_folder(self.name)).metadata().configuration)

    def count(self) -> int | None:
        """Return the number of rows in the log."""
        return opened(_folder(self.name)).count()

    def create(self, columns: Sequence[TargetColumn], comment: str, properties: Mapping[str, str]) -> None:
        """Create the target, or replace it and keep its versions."""
        with _typed(self.name):
            create(_folder(self.name), columns, comment, properties, next_metadata(self.spark))

    def _allow_wider(self) -> None:
        """Do nothing: a wider type rewrites the rows."""

    def _as_text(self, columns: Sequence[TargetColumn]) -> None:
        """Convert columns to STRING if their type changes to STRING."""
        types = {field.name: field.dataType.simpleString() for field in self.rows().schema}
        for column in columns:
            if column.type == TEXT and AS_TEXT.fullmatch(types.get(column.name, "")):
                self._carry_out(SetType(column.name, TEXT))

    def _carry_out(self, action: TargetAction) -> None:
        folder = _folder(self.name)

        def change(fields: list[Field]) -> list[Field]:
            return altered(fields, action)

        with _typed(self.name):
            if isinstance(action, SetType):
                rewrite(self.spark, folder, next_metadata(self.spark), change=change)
            else:
                set_columns(folder, change, next_metadata(self.spark))

    def fill(self, values: Mapping[str, KnownValue], at: Commit) -> None:
        """Write all rows with these values, in one commit."""
        import pyarrow as pa

        made = pa.table(
            self.spark.range(1).select(*(one.column().alias(name) for name, one in values.items())).toArrow()
        )
        constants = {name: made.column(number).combine_chunks() for number, name in enumerate(values)}
        self._assign(Assigned(constants), at)

    def truncate(self, at: Commit) -> None:
        """Delete all rows."""
        shape = TargetShape(CURRENT, (), (), ((MIRROR, at.mirror),))
        with _typed(self.name):
            self._once(at, lambda: remove_rows(_folder(self.name), shape, at.metadata))

    def apply(self, mode: Mode, changes: NetChanges) -> None:
        """Merge the changes, or append rows if no change needs a MERGE.

        Raises:
            SchemaError: the changes need Spark's MERGE.
        """
        rows, merge = mode.merge(changes)
        if not merge:
            self.append(rows, changes.at)
            return
        if not mode.by_key or changes.partial:
            why = "row images lack columns" if changes.partial else "rows without a key change"
            raise SchemaError(
                f"{self.name} needs Spark's MERGE, and this session has no Delta: {why}, and delta-rs cannot apply "
                "this micro-batch.",
                hint=_HINT,
            )
        names = (*changes.columns, *(one.name for one in mode.columns(())))
        selected = rows.select(*_numbered(mode.name, rows, names))
        merged = selected.limit(MOST_CHANGES + 1).toArrow()
        if merged.num_rows > MOST_CHANGES:
            raise SchemaError(
                f"{self.name} needs Spark's MERGE, and this session has no Delta: a micro-batch changes more than "
                f"{MOST_CHANGES} keys of a table that has a rule or several replication domains.",
                hint=f"Limit a micro-batch (maxRowsPerTrigger). {_HINT}",
            )
        shape = TargetShape(mode.name, names, tuple(changes.keys), ((MIRROR, changes.at.mirror),))
        # A target that was created for this micro-batch may have the token of an earlier attempt, but not its rows.
        at = changes.at.step(uuid.uuid4().hex) if self.made else changes.at
        if merged.num_rows:
            with _typed(self.name):
                merge_rows(_folder(self.name), merged, shape, at)

    def end_rows(self, mode: Mode, statement: StatementRow, at: Commit) -> None:
        """Mark all rows as deleted, or close all valid versions."""
        import pyarrow as pa

        moment = array_of_values([statement.committed_us], pa.int64()).cast(pa.timestamp("us", tz="UTC"))

        def text(value: str) -> pa.Array:
            return array_of_values([value], pa.string())

        def truth(value: bool) -> pa.Array:  # noqa: FBT001
            return array_of_values([value], pa.bool_())

        if mode.name == SOFT_DELETE:
            values = {"_deleted": truth(True), "_deleted_at": moment, "_deleted_gtid": text(statement.gtid)}
            assigned = Assigned(values, "_deleted", when=False)
        else:
            place = {"_to_gtid": text(statement.gtid), "_to_sequence": text(statement.sequence)}
            assigned = Assigned({"_valid_to": moment, "_current": truth(False), **place}, "_current")
        self._assign(assigned, at)

    def _assign(self, assigned: Assigned, at: Commit) -> None:
        with _typed(self.name):
            self._once(at, lambda: rewrite(self.spark, _folder(self.name), at.metadata, assigned=assigned))

    def append(self, rows: DataFrame, at: Commit) -> None:
        """Append rows in one commit. Tasks write the files."""
        folder = _folder(self.name)
        shape = TargetShape(CURRENT, tuple(rows.columns), (), ((MIRROR, at.mirror),))
        with _typed(self.name):
            writer = _FileWriter(folder, open_target(folder, shape), tuple(rows.columns))
            found = rows.mapInArrow(writer, "path string, size bigint, rows bigint, stats string, reason string")
            reported = found.collect()
            files = [DataFile(*one[:4]) for one in reported if one["path"] is not None]
            reason = next((one["reason"] for one in reported if one["reason"] is not None), None)
            if reason is not None:
                raise NativeWriteError(reason)
            if files:
                append_files(folder, files, shape, at, once=not self.made)

    def restore(self, row: ControlRow) -> None:
        """Reset the target to the version that belongs to the control row."""
        from deltalake import CommitProperties

        version = version_of(self.spark, self.name, row.mirror, row.batch)
        folder = _folder(self.name)
        with _typed(self.name), refused(folder):
            opened(folder).restore(
                version,
                commit_properties=CommitProperties(custom_metadata={"userMetadata": next_metadata(self.spark)}),
                post_commithook_properties=after_commit(),
            )

    def drop(self) -> None:
        """Remove the folder if it has a Delta table."""
        if self.exists():
            shutil.rmtree(_folder(self.name))


def _numbered(mode: str, rows: DataFrame, names: Sequence[str]) -> list[Column]:
    """Return the columns of a merge by delta-rs (`native/merge/query.py`) from the source rows of a mode's MERGE."""
    from pyspark.sql import functions as f

    deleted = f.col("_op") == "delete" if "_op" in rows.columns else f.lit(False)
    own = {
        "_deleted": deleted,
        "_deleted_at": f.when(deleted, f.col("_committed") if "_committed" in rows.columns else f.lit(None)),
        "_deleted_gtid": f.when(deleted, f.col("_gtid") if "_gtid" in rows.columns else f.lit(None)),
    }
    marked = mode == SOFT_DELETE
    values = [own[name] if marked and name in own else f.col(identifier(name)) for name in names]
    columns = [value.alias(str(number)) for number, value in enumerate(values)]
    if marked:
        return columns
    return [*columns, (deleted if mode == CURRENT else f.col(CLOSE)).alias(str(len(names)))]


@dataclass(frozen=True, slots=True)
class _FileWriter:
    """Function of the tasks that write rows as files of a table."""

    folder: str
    schema: pa.Schema
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        file, reason = None, None
        try:
            file = write_file(self.folder, self.schema, self.names, batches)
        except NativeWriteError as refused_rows:
            reason = str(refused_rows)
        if file is None and reason is None:
            return
        values = (*(file or (None, None, None, None)), reason)
        kinds = (pa.string(), pa.int64(), pa.int64(), pa.string(), pa.string())
        columns = [array_of_values([value], kind) for value, kind in zip(values, kinds, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, names=["path", "size", "rows", "stats", "reason"])


@dataclass(slots=True)
class FolderControl:
    """Control table that is a Delta table in a local folder."""

    spark: SparkSession
    name: str

    def exists(self) -> bool:
        """Return True if the folder has a Delta table."""
        folder = _local_folder(self.name)
        return folder is not None and is_delta_folder(folder)

    def properties(self) -> dict[str, str]:
        """Return the properties of the table."""
        return dict(opened(_folder(self.name)).metadata().configuration)

    def make(self, columns: Sequence[TargetColumn], properties: Mapping[str, str]) -> None:
        """Create the control table without rows, if it does not exist."""
        if not self.exists():
            with _typed(self.name):
                create(_folder(self.name), columns, "", properties, next_metadata(self.spark))

    def add_columns(self, columns: Sequence[TargetColumn]) -> None:
        """Add columns."""
        with _typed(self.name):
            set_columns(
                _folder(self.name),
                lambda fields: altered(fields, AddColumns(tuple(columns))),
                next_metadata(self.spark),
            )

    def rows(self) -> DataFrame:
        """Return the rows of the control table."""
        return read_delta(self.spark, self.name)

    def replace(self, rows: DataFrame) -> None:
        """Replace all rows."""
        table = rows.toArrow()
        values: dict[str, list[Any]] = {name: table.column(name).to_pylist() for name in table.column_names}
        with _typed(self.name):
            replace_rows(_folder(self.name), values, next_metadata(self.spark))
