"""Folders of Parquet files as targets: for the log of all changes, without a transaction log.

What a batch appends is kept until `finish` and then written as one folder (`BatchFolders`). A batch that comes
again finds its folder, and writes nothing. The columns stand in a note beside the folders; files keep those that they
were written with. A column that goes stays, NULL from then on, as a log says what was; one that gets a wider type is
read as that. Refused: a column whose values of before and of now have no type in common.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from replica.errors import SchemaError
from streaming_source.mirroring.control.checkpoint import hadoop_text
from streaming_source.mirroring.writers.versions import AGAIN
from streaming_source.ruling.target_columns import image_type
from streaming_source.schema.spark_names import spark_column_key
from streaming_source.schema.target_modes import APPEND_LOG

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from streaming_source.mirroring.batch.batch_facts import StatementRow
    from streaming_source.mirroring.control.control_row import ControlRow
    from streaming_source.mirroring.modes.mode import Mode, NetChanges
    from streaming_source.mirroring.statements.added_values import KnownValue
    from streaming_source.mirroring.writers.target_format import TargetAction
    from streaming_source.mirroring.writers.versions import Commit
    from streaming_source.ruling.target_columns import TargetColumn

ROWS_A_FILE: Final = 1_000_000
"""A batch has no more files than this makes of it: thousands of small ones would be slow to list and to read."""
STATES: Final = 10
"""States of the control table that are kept: a reader that has found the newest has time to read it."""
_DIGITS: Final = {"byte": 3, "short": 5, "integer": 10, "long": 19}
"""Decimal digits of the integers, from narrow to wide."""


class ParquetFormat:
    """Folders of Parquet files."""

    name = "parquet"
    modes = frozenset({APPEND_LOG})
    only_folders = True
    own_properties: Mapping[str, str] = {}

    def check_session(self, spark: SparkSession) -> None:
        """Do nothing: each Spark writes Parquet."""

    def target(self, spark: SparkSession, name: str, **_: object) -> ParquetTarget:
        """Open a target. One that is made again has no folders."""
        return ParquetTarget(spark, name)

    def control(self, spark: SparkSession, name: str) -> ParquetControl:
        """Return the control table of a name."""
        return ParquetControl(spark, name)


def batch_name(batch: int) -> str:
    """Return the name of a batch, which is no number for those who read the folder, and sorts as numbers do."""
    return f"batch-{batch:012d}"


def _folder_of(at: Commit) -> str:
    """Return the name of the folder that has a commit: all of a batch, or the end of the rows of a new reading."""
    return batch_name(at.batch) + "-again" * (at.part == AGAIN)


@dataclass(slots=True)
class ParquetFolder:
    """A folder of Parquet files as a mirror knows it: `name` is what Spark's SQL calls it."""

    spark: SparkSession
    name: str
    _folders: BatchFolders = field(init=False)

    def __post_init__(self) -> None:
        self._folders = BatchFolders(self.spark, self.name.partition(".")[2].strip("`"))

    def exists(self) -> bool:
        """Tell whether the folder has something in it."""
        return bool(self._folders.listed())

    def properties(self) -> dict[str, str]:
        """Return the properties; none of a folder that no mirror made."""
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
            raise SchemaError(f"{self._folders.folder} does not say its columns: _mirror-….json is not there.")
        return StructType.fromJson(note["schema"])


@dataclass(slots=True)
class ParquetTarget(ParquetFolder):
    """One target."""

    _waiting: list[DataFrame] = field(default_factory=list)

    def count(self) -> None:
        """Return nothing: no MERGE is run on it."""

    def create(self, columns: Sequence[TargetColumn], comment: str, properties: Mapping[str, str]) -> None:
        """Make the folder, or remove the batches of one that is there."""
        _check_names(self._folders.folder, columns)
        self._folders.remove(self._folders.batches())
        self._begin(columns, comment, properties)

    def has(self, at: Commit) -> bool:
        """Return True if the folder of the batch is there, which has all of it."""
        return _folder_of(at) in self._folders.batches()

    def alter(self, columns: Sequence[TargetColumn], at: Commit, actions: Sequence[TargetAction] | None = None) -> None:  # noqa: ARG002  (a name that was given up stays)
        """Note the columns."""
        _check_names(self._folders.folder, columns)
        there, note = self._columns(), self._folders.note()
        wanted = merged(there, _schema(columns), self._folders.folder)
        if wanted != there:
            self._folders.write_note({**(note or {}), "schema": wanted.jsonValue()})

    def rename(self, names: Mapping[str, str | None], at: Commit) -> None:
        """Do nothing: files keep their columns."""

    def fill(self, values: Mapping[str, KnownValue], at: Commit) -> None:
        """Refuse: rows of a log stay as they are."""
        raise NotImplementedError(f"{self.name}: a log does not change its rows ({', '.join(values)}).")

    def truncate(self, at: Commit) -> None:
        """Refuse: rows of a log stay as they are."""
        raise NotImplementedError(f"{self.name}: a log keeps its rows.")

    def apply(self, mode: Mode, changes: NetChanges) -> None:
        """Append what a log keeps of the changes."""
        self.append(mode.appended(changes), changes.at)

    def end_rows(self, mode: Mode, statement: StatementRow, at: Commit) -> None:
        """Refuse: rows of a log stay as they are."""
        raise NotImplementedError(
            f"{self.name}: a log does not end its rows ({mode.name}, {statement.gtid}, {at.part})."
        )

    def append(self, rows: DataFrame, at: Commit) -> None:  # noqa: ARG002  (that of `finish` says it)
        """Keep rows for `finish`."""
        self._waiting.append(rows)

    def finish(self, rows: int, at: Commit) -> None:
        """Write what waits as the folder of the batch."""
        if not self._waiting:
            return
        schema = self._columns()
        whole = reduce(lambda one, other: one.unionByName(other), (each.to(schema) for each in self._waiting))
        self._waiting.clear()
        self._folders.put(_folder_of(at), whole.coalesce(1 + rows // ROWS_A_FILE))

    def put_back(self, row: ControlRow) -> None:
        """Do nothing: a log keeps its rows when its table is read again."""

    def drop(self) -> None:
        """Remove all batches and the note."""
        self._folders.clear()

    def rows_at(self, row: ControlRow) -> DataFrame:
        """Return the rows of the batches up to that of a control row."""
        from pyspark.sql import functions as f

        rows = self._folders.read(self._columns())
        return rows.where(f.col(COLUMN) < batch_name(row.batch + 1)).drop(COLUMN)


class ParquetControl(ParquetFolder):
    """The control table: each state is a batch, and the newest one holds."""

    __slots__ = ()

    def make(self, columns: Sequence[TargetColumn], properties: Mapping[str, str]) -> None:
        """Make it without rows, where it is not there."""
        if not self.exists():
            self._begin(columns, "", properties)

    def add_columns(self, columns: Sequence[TargetColumn]) -> None:
        """Note columns."""
        wanted = merged(self._columns(), _schema(columns), self._folders.folder)
        self._folders.write_note({**(self._folders.note() or {}), "schema": wanted.jsonValue()})

    def rows(self) -> DataFrame:
        """Return the rows of the newest state."""
        states = self._folders.batches()
        if not states:
            return self.spark.createDataFrame([], self._columns())
        return self._folders.read(self._columns(), name=states[-1])

    def replace(self, rows: DataFrame) -> None:
        """Add a state, and remove the oldest."""
        states = self._folders.batches()
        number = int(states[-1].rpartition("-")[2]) + 1 if states else 0
        self._folders.put(batch_name(number), rows.to(self._columns()))
        self._folders.remove(states[: 1 - STATES])


def merged(there: StructType, wanted: StructType, folder: str) -> StructType:
    """Return the columns that hold rows of both.

    Raises:
        SchemaError: a column has two types, and neither holds the values of both.
    """
    from pyspark.sql.types import StructField, StructType

    coming = {spark_column_key(column.name): column for column in wanted}
    found = []
    for old in there:
        new = coming.pop(spark_column_key(old.name), None)
        kind = old.dataType if new is None else _wider(old.dataType, new.dataType)
        if new is not None and kind is None:
            raise SchemaError(
                f"the rows in {folder} have {old.name} as {old.dataType.simpleString().upper()}, and it is "
                f"{new.dataType.simpleString().upper()} now: Parquet files keep their types.",
                hint="Move the folder away, and have the table read again (mirror_resync).",
            )
        found.append(old if new is None or kind is None else StructField(old.name, kind, True, new.metadata))
    return StructType(found + list(coming.values()))


def _wider(one: DataType, other: DataType) -> DataType | None:
    """Return that of two types which holds the values of both; None where none does."""
    if one == other:
        return one
    return next((wide for narrow, wide in ((one, other), (other, one)) if _holds(narrow, wide)), None)


def _holds(narrow: DataType, wide: DataType) -> bool:
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
    """Return the columns as Spark has them, with their comments."""
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
            hint="Give it another name there (rename in the table's rule), or leave it out.",
        )


# Batches of rows as folders of Parquet files under one folder, each of which is there as a whole or not at all.
#
# In: a folder, and rows under the name of a batch. Out: `mirror_batch=NAME/part-….parquet`, and a note on the target
# in `_mirror-NUMBER.json`. Files are written under a hidden name and come to their place by one rename, which is one
# step on local disks and HDFS; an object store copies them one by one. Under one name rows are written once. A rename
# replaces nothing, so a crash leaves what was there: notes are numbered, the newest holds.

COLUMN: Final = "mirror_batch"
"""The column that Spark makes of the folders' names."""
_FOLDER: Final = f"{COLUMN}="
_NOTE: Final = "_mirror-"


class BatchFolders:
    """The batches in one folder. One mirror writes there; any number of readers may read."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self.folder = folder.rstrip("/")
        self._files = self._path("").getFileSystem(self._java.newHadoopConf())

    @property
    def _java(self) -> Any:
        return self._spark._jsparkSession.sessionState()  # noqa: SLF001  (PySpark has no other door to Hadoop's files)

    def _path(self, name: str) -> Any:
        return self._spark._jvm.org.apache.hadoop.fs.Path(f"{self.folder}/{name}" if name else self.folder)  # noqa: SLF001

    def listed(self) -> list[str]:
        """Return the names of what lies in the folder, without what is hidden."""
        if not self._files.exists(self._path("")):
            return []
        names = (str(each.getPath().getName()) for each in self._files.listStatus(self._path("")))
        return sorted(name for name in names if not name.startswith("."))

    def batches(self) -> list[str]:
        """Return the names of the batches, sorted as text."""
        return [name.removeprefix(_FOLDER) for name in self.listed() if name.startswith(_FOLDER)]

    def put(self, name: str, rows: DataFrame) -> None:
        """Write rows as a batch, unless there is one of the name.

        Raises:
            SchemaError: the files cannot be brought to their place.
        """
        place = self._path(f"{_FOLDER}{name}")
        if self._files.exists(place):
            return
        hidden = self._path(f".{name}")
        rows.write.mode("overwrite").parquet(str(hidden))  # what a crash left there goes
        self._rename(hidden, place)

    def remove(self, names: Iterable[str]) -> None:
        """Remove batches, the newest first: what is left until the end are the older ones, each of them whole."""
        for name in sorted(names, reverse=True):
            hidden = self._path(f".gone-{name}")
            self._files.delete(hidden, True)
            self._rename(self._path(f"{_FOLDER}{name}"), hidden)
            self._files.delete(hidden, True)

    def read(self, schema: StructType, *, name: str | None = None) -> DataFrame:
        """Return the rows of all batches, with their names in a column, or those of one batch."""
        if name is not None:
            return self._spark.read.schema(schema).parquet(f"{self.folder}/{_FOLDER}{name}")
        return self._spark.read.schema(schema.add(COLUMN, "string")).parquet(self.folder)

    # -- notes -------------------------------------------------------------------------------------------------------

    def note(self) -> dict[str, Any] | None:
        """Return the newest note; None where there is none."""
        notes = self._notes()
        if not notes:
            return None
        text = hadoop_text(self._spark, f"{self.folder}/{notes[-1]}")
        told: dict[str, Any] | None = None if text is None else json.loads(text)
        return told

    def write_note(self, told: dict[str, Any]) -> None:
        """Put a note in the place of the newest."""
        notes = self._notes()
        number = int(notes[-1].removeprefix(_NOTE).removesuffix(".json")) + 1 if notes else 1
        name = f"{_NOTE}{number:06d}.json"
        hidden = self._path(f".{name}.new")
        stream = self._files.create(hidden, True)
        try:
            stream.write(json.dumps(told, indent=1).encode())
        finally:
            stream.close()
        self._rename(hidden, self._path(name))
        for old in notes:
            self._files.delete(self._path(old), False)

    def clear(self) -> None:
        """Remove all batches and the notes, and the folder if nothing else lies in it."""
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
                hint="Look at who may write in the folder, and whether anything else writes there.",
            )
