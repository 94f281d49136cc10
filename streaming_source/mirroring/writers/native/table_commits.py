"""Commits to Delta tables that delta-rs cannot write: creation, columns, and rewritten rows.

delta-rs 1.6 neither creates tables with column mapping nor renames or drops their columns. So this module writes these
commits as files of Delta's log: `create` and `set_columns` have the metadata of the table, `rewrite` also has new data
files in place of the old ones. Spark tasks write the new files. A commit is a new file under the number of the next
version, and fails if another writer has taken the number.

Protocol: https://github.com/delta-io/delta/blob/master/PROTOCOL.md (actions, column mapping).
"""

from __future__ import annotations

import contextlib
import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from replica.errors import ConfigError
from streaming_source.driver.same_version import OfThisVersion
from streaming_source.mirroring.writers.native.data_files import (
    NativeWriteError,
    files_of,
    remove_files,
    rows_of,
    write_file,
)
from streaming_source.mirroring.writers.native.deletion_vectors import deleted_rows
from streaming_source.mirroring.writers.native.delta_rows import FEATURES, check_target, opened, refused
from streaming_source.mirroring.writers.native.log_files import LOG, added, logged_files, now_ms, removed, write_commit
from streaming_source.mirroring.writers.target_format import AddColumns, DropColumns, RenameColumn, SetType
from streaming_source.schema.row_schema import spark_type
from streaming_source.sinks.storage import bucket_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession

    from streaming_source.mirroring.writers.native.data_files import DataFile, TableFile
    from streaming_source.mirroring.writers.native.deletion_vectors import Positions
    from streaming_source.mirroring.writers.native.log_files import Action
    from streaming_source.mirroring.writers.target_format import TargetAction
    from streaming_source.transforms.transformed_images import TargetColumn

    _Part = tuple[TableFile, Positions | None]
    """File, and the positions of its deleted rows."""

Field = dict[str, Any]
"""Column in the JSON form of a Delta schema."""
_ID: Final = "delta.columnMapping.id"
_PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
_LAST_ID: Final = "delta.columnMapping.maxColumnId"
_MAPPING: Final = "delta.columnMapping.mode"
_BY_NAME: Final = "name"
_FEATURE: Final = "delta.feature."
_LOCAL_TIME: Final = "timestamp_ntz"
_LOCAL_FEATURE: Final = "timestampNtz"
"""Feature without which a table must have no column of the type `timestamp_ntz`."""
_READER_FEATURES: Final = frozenset({"columnMapping", "deletionVectors", _LOCAL_FEATURE})
_ALWAYS: Final = frozenset({"appendOnly", "invariants", _LOCAL_FEATURE})
_ENABLING: Final = {("delta.enableDeletionVectors", "true"): "deletionVectors", (_MAPPING, _BY_NAME): "columnMapping"}
"""Features that a property switches on, by the property and its value."""
_REFUSED: Final = ("delta.enable", _MAPPING)
"""Beginnings of names of properties that need a feature."""
_OFF: Final = ("false", "none")
_TRIES: Final = 5


class Assigned(NamedTuple):
    """Constants for columns of existing rows.

    Attributes:
        values: the constants by column, as Arrow arrays with one value.
        where: the BOOLEAN column that decides which rows get the constants; None for all rows.
        when: the value of `where` in the rows that get the constants.
    """

    values: Mapping[str, pa.Array]
    where: str | None = None
    when: bool = True


def create(
    folder: str, columns: Sequence[TargetColumn], comment: str, properties: Mapping[str, str], metadata: str
) -> None:
    """Create a table without rows, or replace the columns, properties and rows of an existing one.

    Args:
        folder: the folder of the table.
        columns: its columns.
        comment: its comment.
        properties: its properties.
        metadata: the user metadata of the commit.

    Raises:
        ConfigError: a property needs a feature that delta-rs cannot write, or the folder has other files.
        NativeWriteError: a column has a type that delta-rs cannot write, or another writer was first.
    """
    from deltalake import DeltaTable

    mapped = properties.get(_MAPPING) == _BY_NAME
    fields = [_new_field(column, number if mapped else None) for number, column in enumerate(columns, 1)]
    configuration = {name: value for name, value in properties.items() if not name.startswith(_FEATURE)}
    if mapped:
        configuration[_LAST_ID] = str(len(fields))
    about = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": _schema(fields),
        "partitionColumns": [],
        "configuration": configuration,
        "createdTime": now_ms(),
        **({"description": comment} if comment else {}),
    }
    actions: list[Action] = [{"protocol": _protocol(properties)}, {"metaData": about}]
    log = Path(folder, LOG)
    if not Path(folder).is_dir() or not DeltaTable.is_deltatable(folder):
        if Path(folder).is_dir() and any(one.name != LOG for one in Path(folder).iterdir()):
            raise ConfigError(
                f"the folder {folder} has files and no Delta table.", hint="Empty it, or choose another folder (into)."
            )
        log.mkdir(parents=True, exist_ok=True)
        write_commit(folder, 0, "CREATE TABLE", actions, metadata)
        return
    with refused(folder):
        table = opened(folder)
        check_target(table, None)
        logged = logged_files(folder, table.version())
        actions += [removed(file, logged[file.path].vector) for file in files_of(table)]
    write_commit(folder, table.version() + 1, "CREATE OR REPLACE TABLE", actions, metadata)


def set_columns(folder: str, change: Callable[[list[Field]], list[Field]], metadata: str) -> None:
    """Change the columns of a table, and leave its files.

    Args:
        folder: the folder of the table.
        change: returns the new columns for the old ones. New ones need `new_field`.
        metadata: the user metadata of the commit.

    Raises:
        NativeWriteError: other commits came first several times. In a bucket: the store did not confirm the commit,
            which may be there all the same.
        OSError: a disk refused the commit.
    """
    for number in range(_TRIES):
        with refused(folder):
            table = opened(folder)
            check_target(table, None)
        fields = _fields(table)
        wanted = change(fields)
        if number and wanted == fields:
            return  # a commit arrived although the store did not confirm it
        actions = [{"metaData": _altered(table, wanted)}]
        try:
            with contextlib.nullcontext() if bucket_of(folder) is None else refused(folder):
                write_commit(folder, table.version() + 1, "ALTER TABLE", actions, metadata)
        except NativeWriteError:
            if number + 1 == _TRIES:
                raise
        else:
            return


def rewrite(
    spark: SparkSession,
    folder: str,
    metadata: str,
    *,
    change: Callable[[list[Field]], list[Field]] | None = None,
    assigned: Assigned | None = None,
) -> None:
    """Write all rows of a table again, with other types or with other values, in one commit.

    Args:
        spark: the session whose tasks write the files.
        folder: the folder of the table.
        metadata: the user metadata of the commit.
        change: returns the new columns for the old ones. Rows are cast to the new types.
        assigned: constants for columns.

    Raises:
        NativeWriteError: a value does not fit its new type, or another writer was first.
    """
    import pyarrow as pa

    with refused(folder):
        table = opened(folder)
        check_target(table, None)
        files, deleted = files_of(table), deleted_rows(table)
        logged = logged_files(folder, table.version())
        old = pa.schema(table.schema().to_arrow())
    actions: list[Action] = []
    new = old
    if change is not None:
        about = _altered(table, change(_fields(table)))
        actions.append({"metaData": about})
        new = _arrow(about["schemaString"])
    made: list[DataFile] = []
    try:
        parts = [(file, deleted.get(file.path)) for file in files]
        made += _rewritten(spark, parts, _Rewriter(folder, old, new, assigned))
        actions += [added(file) for file in made]
        actions += [removed(file, logged[file.path].vector) for file in files]
        write_commit(folder, table.version() + 1, "UPDATE", actions, metadata)
    except BaseException:
        remove_files(folder, made)
        raise


def altered(fields: list[Field], action: TargetAction) -> list[Field]:
    """Return the columns of a table after an action; a column that an earlier attempt changed stays."""
    match action:
        case AddColumns():
            found = list(fields)
            for column in action.columns:
                if not any(same_name(field, column.name) for field in found):
                    found.append(new_field(column, found))
            return found
        case DropColumns():
            return [field for field in fields if not any(same_name(field, name) for name in action.names)]
        case RenameColumn():
            return [{**field, "name": action.new} if same_name(field, action.old) else field for field in fields]
        case SetType():
            kind = spark_type(action.type).jsonValue()
            return [{**field, "type": kind} if same_name(field, action.name) else field for field in fields]
        case _:
            return [{**field, "nullable": True} if same_name(field, action.name) else field for field in fields]


def new_field(column: TargetColumn, fields: Sequence[Field]) -> Field:
    """Return a nullable column to add after existing ones; existing rows have NULL in it."""
    numbers = [int(field["metadata"][_ID]) for field in fields if _ID in field["metadata"]]
    return _new_field(column._replace(nullable=True), 1 + max(numbers) if numbers else None)


def same_name(field: Field, name: str) -> bool:
    """Return True if a column has a name; Spark compares names without regard to case."""
    return str(field["name"]).lower() == name.lower()


@dataclass(frozen=True, slots=True)
class _Rewriter(OfThisVersion):
    """Function of the tasks that write the rows of a file again, as a new file."""

    folder: str
    old: pa.Schema
    new: pa.Schema
    assigned: Assigned | None

    def __call__(self, parts: Iterator[_Part]) -> Iterator[tuple[DataFile | None, str | None]]:
        for part in parts:
            try:
                yield write_file(self.folder, self.new, self.new.names, self._rows(*part)), None
            except NativeWriteError as refused_rows:
                yield None, str(refused_rows)

    def _rows(self, file: TableFile, deleted: Positions | None) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in rows_of(self.folder, [file], self.old, None if deleted is None else {file.path: deleted}):
            columns = dict(zip(self.old.names, batch.columns, strict=True))
            if self.assigned is not None:
                columns = self._with_values(columns, batch.num_rows)
            yield pa.RecordBatch.from_arrays([columns[name] for name in self.new.names], names=self.new.names)

    def _with_values(self, columns: dict[str, pa.Array], rows: int) -> dict[str, pa.Array]:
        import numpy as np
        import pyarrow.compute as pc

        from replica.rows.types.arrow_arrays import array_of

        assert self.assigned is not None  # noqa: S101
        values, where, when = self.assigned
        first = array_of(np.zeros(rows, np.int64))
        constants = {name: value.take(first).cast(columns[name].type) for name, value in values.items()}
        if where is None:
            return columns | constants
        chosen = columns[where] if when else pc.invert(columns[where])
        return columns | {name: pc.if_else(chosen, value, columns[name]) for name, value in constants.items()}


def _rewritten(spark: SparkSession, parts: Sequence[_Part], rewriter: _Rewriter) -> list[DataFile]:
    if not parts:
        return []
    context = spark.sparkContext
    slices = min(len(parts), 4 * context.defaultParallelism)
    found = context.parallelize(parts, slices).mapPartitions(rewriter).collect()
    made = [file for file, _ in found if file is not None]
    reason = next((why for _, why in found if why is not None), None)
    if reason is not None:
        remove_files(rewriter.folder, made)
        raise NativeWriteError(reason)
    return made


def _altered(table: DeltaTable, fields: Sequence[Field]) -> dict[str, Any]:
    """Return the metadata of a table with other columns."""
    known = table.metadata()
    numbers = [int(field["metadata"][_ID]) for field in fields if _ID in field["metadata"]]
    last = {_LAST_ID: str(max(*numbers, int(known.configuration.get(_LAST_ID, 0))))} if numbers else {}
    lost = {field["name"] for field in _fields(table)} - {field["name"] for field in fields}
    if lost and not numbers:
        raise NativeWriteError(f"without {_MAPPING}={_BY_NAME} its column {min(lost)} cannot be renamed or dropped")
    if any(field["type"] == _LOCAL_TIME for field in fields) and _LOCAL_FEATURE not in (
        table.protocol().writer_features or ()
    ):
        raise NativeWriteError(f"it lacks the table feature {_LOCAL_FEATURE}, which a new column needs")
    return {
        "id": str(known.id),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": _schema(fields),
        "partitionColumns": list(known.partition_columns),
        "configuration": {**known.configuration, **last},
        "createdTime": known.created_time,
        **({"description": known.description} if known.description else {}),
        **({"name": known.name} if known.name else {}),
    }


def _fields(table: DeltaTable) -> list[Field]:
    fields: list[Field] = json.loads(table.schema().to_json())["fields"]
    return fields


def _schema(fields: Sequence[Field]) -> str:
    return json.dumps({"type": "struct", "fields": list(fields)})


def _arrow(schema: str) -> pa.Schema:
    import pyarrow as pa
    from deltalake import Schema

    return pa.schema(Schema.from_json(schema).to_arrow())


def _new_field(column: TargetColumn, number: int | None) -> Field:
    """Return a column; `number`: its number in the column mapping, or None without column mapping."""
    kind = spark_type(column.type)
    if "variant" in kind.simpleString():
        raise NativeWriteError(f"its column {column.name} is VARIANT, which delta-rs cannot write")
    about: dict[str, Any] = {"comment": column.comment} if column.comment else {}
    if number is not None:
        about |= {_ID: number, _PHYSICAL_NAME: f"col-{uuid.uuid4()}"}
    return {"name": column.name, "type": kind.jsonValue(), "nullable": column.nullable, "metadata": about}


def _protocol(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the protocol of a new table.

    Raises:
        ConfigError: a property needs a feature that delta-rs cannot write.
    """
    features = set(_ALWAYS)
    features |= {name.removeprefix(_FEATURE) for name in properties if name.startswith(_FEATURE)}
    features |= {feature for one, feature in _ENABLING.items() if one in properties.items()}
    other = sorted(features - FEATURES)
    other += sorted(
        name
        for name, value in properties.items()
        if name.startswith(_REFUSED) and value not in _OFF and (name, value) not in _ENABLING
    )
    if other:
        raise ConfigError(
            f"the properties of the target need {', '.join(other)}, which delta-rs cannot write.",
            hint="Remove it from tableProperties, or use a Spark with Delta (docs/versions.md).",
        )
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": sorted(features & _READER_FEATURES),
        "writerFeatures": sorted(features),
    }
