"""Folders of Parquet files as targets, for the log of all changes (append_log), without a transaction log.

Appended rows of a micro-batch are held until `finish`, which writes them as one folder (`BatchFolders`). A repeated
micro-batch finds its folder and writes nothing. A note beside the folders has the current columns. Files keep the
columns with which they were written. A dropped column stays, with NULL in new rows, because a log keeps history. A
column with a wider type is read as this type. Refused: a column whose old and new types have no common type.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from replica.errors import SchemaError
from streaming_source.driver.hadoop_files import hadoop_path, hadoop_text
from streaming_source.mirroring.writers.target_format import RESNAPSHOT
from streaming_source.schema.spark_names import spark_column_key
from streaming_source.schema.target_modes import APPEND_LOG
from streaming_source.transforms.transformed_images import image_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from streaming_source.mirroring.batch.batch_facts import StatementRow
    from streaming_source.mirroring.control.control_table import ControlRow
    from streaming_source.mirroring.control.target_names import TargetNames
    from streaming_source.mirroring.modes.mode import Mode, NetChanges
    from streaming_source.mirroring.statements.added_values import KnownValue
    from streaming_source.mirroring.writers.target_format import Commit, TargetAction
    from streaming_source.transforms.transformed_images import TargetColumn

ROWS_A_FILE: Final = 1_000_000
"""Rows of a micro-batch in one file: thousands of small files would be slow to list and to read."""
STATES: Final = 10
"""States of the control table that are kept, so that a reader of the newest one has time to read it."""
_DIGITS: Final = {"byte": 3, "short": 5, "integer": 10, "long": 19}
"""Decimal digits of the integer types, from narrow to wide."""


class ParquetFormat:
    """Format of folders of Parquet files."""

    name = "parquet"
    modes = frozenset({APPEND_LOG})
    only_folders = True
    own_properties: Mapping[str, str] = {}

    def check_session(self, spark: SparkSession, names: TargetNames, writer: str) -> None:
        """Do nothing: every Spark writes Parquet."""

    def target(self, spark: SparkSession, name: str, **_: object) -> ParquetTarget:
        """Open a target. Other arguments have no effect: a target that was created again has no folders."""
        return ParquetTarget(spark, name)

    def control(self, spark: SparkSession, name: str) -> ParquetControl:
        """Return the control table of this name."""
        return ParquetControl(spark, name)


def batch_name(batch: int) -> str:
    """Return the folder name of a micro-batch. It sorts like the number, and readers take it as text."""
    return f"batch-{batch:012d}"


def _folder_of(at: Commit) -> str:
    """Return the folder name of a commit.

    A micro-batch has one folder, and the end of rows in a re-snapshot has another.
    """
    return batch_name(at.batch) + "-again" * (at.part == RESNAPSHOT)


@dataclass(slots=True)
class ParquetFolder:
    """Folder of Parquet files of a mirror; `name`: its name in Spark SQL."""

    spark: SparkSession
    name: str
    _folders: BatchFolders = field(init=False)

    def __post_init__(self) -> None:
        self._folders = BatchFolders(self.spark, self.name.partition(".")[2].strip("`"))

    def exists(self) -> bool:
        """Return True if the folder is not empty."""
        return bool(self._folders.listed())

    def properties(self) -> dict[str, str]:
        """Return the properties; empty for a folder that no mirror created."""
        note = self._folders.note()
        return {} if note is None else note["properties"]

    def _begin(self, columns: Sequence[TargetColumn], comment: str, properties: Mapping[str, str]) -> None:
        schema = _schema(columns)
        self._folders.write_note({"comment": comment, "properties": dict(properties), "schema": schema.jsonValue()})

    def _columns(self) -> StructType:
        """Return the columns of all rows.

        Raises:
            SchemaError: the folder has no note.
        """
        from pyspark.sql.types import StructType

        note = self._folders.note()
        if note is None:
            raise SchemaError(f"{self._folders.folder} has no list of its columns: _mirror-….json is missing.")
        return StructType.fromJson(note["schema"])


@dataclass(slots=True)
class ParquetTarget(ParquetFolder):
    """Target that is a folder of Parquet files."""

    _waiting: list[DataFrame] = field(default_factory=list)

    def count(self) -> None:
        """Return None: no MERGE writes this target."""

    def rows(self) -> DataFrame:
        """Return the rows of all micro-batches."""
        return self._folders.read(self._columns()).drop(COLUMN)

    def create(self, columns: Sequence[TargetColumn], comment: str, properties: Mapping[str, str]) -> None:
        """Create the folder, or remove the micro-batches of an existing one."""
        _check_names(self._folders.folder, columns)
        self._folders.remove(self._folders.batches())
        self._begin(columns, comment, properties)

    def has(self, at: Commit) -> bool:
        """Return True if the folder of the micro-batch exists; it has the whole micro-batch."""
        return _folder_of(at) in self._folders.batches()

    def alter(self, columns: Sequence[TargetColumn], at: Commit, actions: Sequence[TargetAction] | None = None) -> None:  # noqa: ARG002
        """Write a note with the columns. Renamed and dropped columns stay."""
        _check_names(self._folders.folder, columns)
        existing, note = self._columns(), self._folders.note()
        wanted = merged(existing, _schema(columns), self._folders.folder)
        if wanted != existing:
            self._folders.write_note({**(note or {}), "schema": wanted.jsonValue()})

    def rename(self, names: Mapping[str, str | None], at: Commit) -> None:
        """Do nothing: files keep their columns."""

    def fill(self, values: Mapping[str, KnownValue], at: Commit) -> None:
        """Refuse: rows of a log never change."""
        raise NotImplementedError(f"{self.name}: a log does not change its rows ({', '.join(values)}).")

    def truncate(self, at: Commit) -> None:
        """Refuse: rows of a log never change."""
        raise NotImplementedError(f"{self.name}: a log keeps its rows.")

    def apply(self, mode: Mode, changes: NetChanges) -> None:
        """Append the rows of a log for the changes."""
        self.append(mode.appended(changes), changes.at)

    def merge(self, statement: str, rows: DataFrame, placeholder: str) -> None:
        """Refuse: rows of a log never change."""
        raise NotImplementedError(f"{self.name}: a log does not change its rows ({statement}, {rows}, {placeholder}).")

    def end_rows(self, mode: Mode, statement: StatementRow, at: Commit) -> None:
        """Refuse: rows of a log never change."""
        raise NotImplementedError(
            f"{self.name}: a log does not end its rows ({mode.name}, {statement.gtid}, {at.part})."
        )

    def append(self, rows: DataFrame, at: Commit) -> None:  # noqa: ARG002  (`finish` has the commit)
        """Hold rows until `finish`."""
        self._waiting.append(rows)

    def finish(self, rows: int, at: Commit) -> None:
        """Write the held rows as the folder of the micro-batch."""
        if not self._waiting:
            return
        schema = self._columns()
        rows_waiting = reduce(lambda one, other: one.unionByName(other), (each.to(schema) for each in self._waiting))
        self._waiting.clear()
        self._folders.put(_folder_of(at), rows_waiting.coalesce(1 + rows // ROWS_A_FILE))

    def restore(self, row: ControlRow) -> None:
        """Do nothing: a log keeps its rows during a re-snapshot."""

    def drop(self) -> None:
        """Remove all micro-batches and the note."""
        self._folders.clear()

    def rows_at(self, row: ControlRow) -> DataFrame:
        """Return the rows of the micro-batches up to that of a control row."""
        from pyspark.sql import functions as f

        rows = self._folders.read(self._columns())
        return rows.where(f.col(COLUMN) < batch_name(row.batch + 1)).drop(COLUMN)


class ParquetControl(ParquetFolder):
    """Control table in a folder: each state is one folder, and the newest one is valid."""

    __slots__ = ()

    def make(self, columns: Sequence[TargetColumn], properties: Mapping[str, str]) -> None:
        """Create the control table without rows, if it does not exist."""
        if not self.exists():
            self._begin(columns, "", properties)

    def add_columns(self, columns: Sequence[TargetColumn]) -> None:
        """Add columns to the note."""
        wanted = merged(self._columns(), _schema(columns), self._folders.folder)
        self._folders.write_note({**(self._folders.note() or {}), "schema": wanted.jsonValue()})

    def rows(self) -> DataFrame:
        """Return the rows of the newest state."""
        states = self._folders.batches()
        if not states:
            return self.spark.createDataFrame([], self._columns())
        return self._folders.read(self._columns(), name=states[-1])

    def replace(self, rows: DataFrame) -> None:
        """Add a state, and remove the oldest one."""
        states = self._folders.batches()
        number = int(states[-1].rpartition("-")[2]) + 1 if states else 0
        self._folders.put(batch_name(number), rows.to(self._columns()))
        self._folders.remove(states[: 1 - STATES])


def merged(existing: StructType, wanted: StructType, folder: str) -> StructType:
    """Return the columns that hold the rows of both schemas.

    Raises:
        SchemaError: a column has two types, and neither holds the values of both.
    """
    from pyspark.sql.types import StructField, StructType

    coming = {spark_column_key(column.name): column for column in wanted}
    found = []
    for old in existing:
        new = coming.pop(spark_column_key(old.name), None)
        kind = old.dataType if new is None else _wider(old.dataType, new.dataType)
        if new is not None and kind is None:
            raise SchemaError(
                f"the rows in {folder} have {old.name} as {old.dataType.simpleString().upper()}, and its type is "
                f"{new.dataType.simpleString().upper()} now. Parquet files keep their types.",
                hint="Move the folder away, and re-snapshot the table (mirror_resnapshot).",
            )
        found.append(old if new is None or kind is None else StructField(old.name, kind, True, new.metadata))
    return StructType(found + list(coming.values()))


def _wider(one: DataType, other: DataType) -> DataType | None:
    """Return the type that holds the values of both types; None if neither does."""
    if one == other:
        return one
    return next((wide for narrow, wide in ((one, other), (other, one)) if _fits_into(narrow, wide)), None)


def _fits_into(narrow: DataType, wide: DataType) -> bool:
    from pyspark.sql.types import DecimalType

    digits, more = _DIGITS.get(narrow.typeName()), _DIGITS.get(wide.typeName())
    if isinstance(wide, DecimalType):
        if isinstance(narrow, DecimalType):
            return narrow.scale == wide.scale and narrow.precision <= wide.precision
        return digits is not None and wide.precision - wide.scale >= digits
    if digits is not None and more is not None:
        return digits <= more
    return (narrow.typeName(), wide.typeName()) == ("float", "double")


def _schema(columns: Sequence[TargetColumn]) -> StructType:
    """Return the columns as a Spark schema, with their comments."""
    from pyspark.sql.types import StructField, StructType

    comments: list[dict[str, Any]] = [{"comment": column.comment} if column.comment else {} for column in columns]
    return StructType(
        [
            StructField(each.name, each.dataType, True, about)
            for each, about in zip(image_type(columns), comments, strict=True)
        ]
    )


def _check_names(folder: str, columns: Sequence[TargetColumn]) -> None:
    taken = next((column.name for column in columns if spark_column_key(column.name) == COLUMN), None)
    if taken is not None:
        raise SchemaError(
            f"a column {taken} cannot be in {folder}: the folders of the batches have that name.",
            hint="Give it another name in the target (rename in the table's rule), or leave it out.",
        )


# Micro-batches as folders of Parquet files under one folder. Each one is visible as a whole or not at all:
# `mirror_batch=NAME/part-….parquet`, with a note on the target in `_mirror-NUMBER.json`. Files are written under a
# hidden name and then renamed. A rename is one step on local disks and HDFS, but object stores copy the files one by
# one. A rename replaces nothing, so a crash leaves the old state: each name is written once, notes are numbered, and
# the newest one is valid.

COLUMN: Final = "mirror_batch"
"""Partition column that Spark makes from the folder names."""
_FOLDER: Final = f"{COLUMN}="
_NOTE: Final = "_mirror-"


class BatchFolders:
    """Micro-batches in one folder. Only one mirror may write it; any number of readers may read."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self.folder = folder.rstrip("/")
        _, self._files = hadoop_path(spark, self.folder)

    def _path(self, name: str) -> Any:
        return hadoop_path(self._spark, f"{self.folder}/{name}" if name else self.folder)[0]

    def listed(self) -> list[str]:
        """Return the names in the folder, without hidden ones."""
        if not self._files.exists(self._path("")):
            return []
        names = (str(each.getPath().getName()) for each in self._files.listStatus(self._path("")))
        return sorted(name for name in names if not name.startswith("."))

    def batches(self) -> list[str]:
        """Return the names of the micro-batches, sorted as text."""
        return [name.removeprefix(_FOLDER) for name in self.listed() if name.startswith(_FOLDER)]

    def put(self, name: str, rows: DataFrame) -> None:
        """Write rows as a micro-batch, unless there is one of this name.

        Raises:
            SchemaError: the files cannot be renamed.
        """
        place = self._path(f"{_FOLDER}{name}")
        if self._files.exists(place):
            return
        hidden = self._path(f".{name}")
        rows.write.mode("overwrite").parquet(str(hidden))  # replaces files of a crash
        self._rename(hidden, place)

    def remove(self, names: Iterable[str]) -> None:
        """Remove micro-batches, newest first, so that the older ones stay complete until the end."""
        for name in sorted(names, reverse=True):
            hidden = self._path(f".gone-{name}")
            self._files.delete(hidden, True)
            self._rename(self._path(f"{_FOLDER}{name}"), hidden)
            self._files.delete(hidden, True)

    def read(self, schema: StructType, *, name: str | None = None) -> DataFrame:
        """Return the rows of all micro-batches with a column of their names, or the rows of one micro-batch."""
        if name is not None:
            return self._spark.read.schema(schema).parquet(f"{self.folder}/{_FOLDER}{name}")
        return self._spark.read.schema(schema.add(COLUMN, "string")).parquet(self.folder)

    # -- notes -------------------------------------------------------------------------------------------------------

    def note(self) -> dict[str, Any] | None:
        """Return the newest note; None if there is none."""
        notes = self._notes()
        if not notes:
            return None
        text = hadoop_text(self._spark, f"{self.folder}/{notes[-1]}")
        found: dict[str, Any] | None = None if text is None else json.loads(text)
        return found

    def write_note(self, note: dict[str, Any]) -> None:
        """Replace the newest note."""
        notes = self._notes()
        number = int(notes[-1].removeprefix(_NOTE).removesuffix(".json")) + 1 if notes else 1
        name = f"{_NOTE}{number:06d}.json"
        hidden = self._path(f".{name}.new")
        stream = self._files.create(hidden, True)
        try:
            stream.write(json.dumps(note, indent=1).encode())
        finally:
            stream.close()
        self._rename(hidden, self._path(name))
        for old in notes:
            self._files.delete(self._path(old), False)

    def clear(self) -> None:
        """Remove all micro-batches and notes, and the folder if it is empty then."""
        self.remove(self.batches())
        for name in self._notes():
            self._files.delete(self._path(name), False)
        if not self.listed():
            self._files.delete(self._path(""), True)

    def _notes(self) -> list[str]:
        return [name for name in self.listed() if name.startswith(_NOTE)]

    def _rename(self, old: Any, new: Any) -> None:
        if not self._files.rename(old, new):
            raise SchemaError(
                f"{old} could not be renamed to {new}.",
                hint="Check who may write in the folder, and whether anything else writes there.",
            )
