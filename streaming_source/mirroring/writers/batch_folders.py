"""Batches of rows as folders of Parquet files under one folder, each of which is there as a whole or not at all.

In: a folder, and rows under the name of a batch. Out: `mirror_batch=NAME/part-….parquet`, and a note on the target in
`_mirror-NUMBER.json`. Files are written under a hidden name and come to their place by one rename, which is one step on
local disks and HDFS; an object store copies them one by one. Under one name rows are written once. A rename replaces
nothing, so a crash leaves what was there: notes are numbered, the newest holds.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from replica.errors import SchemaError
from streaming_source.mirroring.control.checkpoint import hadoop_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

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
