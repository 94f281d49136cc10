"""Commits to Iceberg tables with PyIceberg, which targets and the control table share.

`IcebergTable` opens a table and commits to it. A commit that fails because another writer committed is staged again
from the new state of the table, so no row of another writer is lost. The token of a commit (`Commit`) is in the summary
of the snapshot for readers, and in a property of the table for `has_commit`: expiring snapshots does not remove a
property.
"""

from __future__ import annotations

import contextlib
import logging
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from replica.errors import SchemaError
from streaming_source.mirroring.writers.iceberg.upkeep import KEPT_MS, MAX_AGE
from streaming_source.mirroring.writers.target_format import ROWS
from streaming_source.schema.spark_names import spark_column_key
from streaming_source.sinks.iceberg.catalogs import (
    catalog_errors,
    catalog_of,
    load_table,
    parts_of,
    table_exists,
    unanswered,
)
from streaming_source.sinks.iceberg.columns import iceberg_schema, spark_schema
from streaming_source.sinks.iceberg.snapshots import tokens
from streaming_source.sinks.sql_text import identifier

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, Transaction
    from pyspark.sql import DataFrame, SparkSession

    from streaming_source.mirroring.writers.target_format import Commit
    from streaming_source.transforms.transformed_images import TargetColumn

_log = logging.getLogger(__name__)
OWN_PROPERTIES: Final = {
    "write.metadata.delete-after-commit.enabled": "true",  # otherwise each commit leaves a metadata file
    "write.metadata.previous-versions-max": "100",
    "write.parquet.compression-codec": "zstd",
    MAX_AGE: str(KEPT_MS),
}
"""Properties of each table that the mirror creates."""
_SUMMARY: Final = ("mirror", "batch", "position", "part")
_TRIES: Final = 6
"""Most attempts at a commit while other writers commit."""
_WAIT_S: Final = 0.2
_RETRIES: Final = "commit.retry.num-retries"


@dataclass(slots=True)
class IcebergTable:
    """Iceberg table of a mirror; `name`: its name with the catalog, as the control table has it."""

    spark: SparkSession
    name: str
    _catalog_name: str = field(init=False)
    _identifier: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._catalog_name, self._identifier = parts_of(self.name)

    @property
    def _catalog(self) -> Catalog:
        return catalog_of(self._catalog_name)

    def _errors(self, *, retried: bool = False) -> contextlib.AbstractContextManager[None]:
        return catalog_errors(self._catalog_name, self.name, retried=retried)

    def _load(self) -> Table:
        table = load_table(self.name)
        # PyIceberg's own retry would commit the same rows again after a twin of this task. This changes the loaded
        # copy, not the table.
        table.metadata.properties[_RETRIES] = "0"
        return table

    def exists(self) -> bool:
        """Return True if the table exists."""
        return table_exists(self.name)

    def properties(self) -> Mapping[str, str]:
        """Return the properties of the table."""
        return {} if not self.exists() else dict(self._load().properties)

    def _make(self, columns: Sequence[TargetColumn], properties: Mapping[str, str], summary: Mapping[str, str]) -> None:
        with self._errors():
            if len(self._identifier) > 1:
                self._catalog.create_namespace_if_not_exists(self._identifier[:-1])
            begun = self._catalog.create_table_transaction(
                self._identifier, iceberg_schema(columns), properties={"format-version": "2", **properties}
            )
            stage_snapshot(begun, summary, [], [])
            begun.commit_transaction()

    def _commit(self, write: Callable[[Table, Transaction], Sequence[DataFile]], done: Callable[[Table], bool]) -> None:
        """Stage a commit and commit it; after a conflict, load the table and stage it again.

        Args:
            write: stages the commit, and returns its new files.
            done: returns True if the table has the commit.

        Raises:
            SchemaError: other writers committed during each attempt.
        """
        from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

        for attempt in range(_TRIES):
            table = self._load()
            if done(table):
                return
            begun = table.transaction()
            files: Sequence[DataFile] = ()
            try:
                with self._errors(retried=True):
                    files = write(table, begun)
                    begun.commit_transaction()
            except CommitFailedException as error:
                _log.debug("%s was changed meanwhile, attempt %d: %s", self.name, attempt + 1, error)
                _remove(table, files)
                time.sleep(_WAIT_S * 2**attempt * random.uniform(0.5, 1))  # noqa: S311
            except CommitStateUnknownException as error:
                if not done(self._load()):
                    raise unanswered(self._catalog_name, self.name, error) from None
                return
            else:
                return
        raise SchemaError(
            f"{self.name} was changed by another writer during each of {_TRIES} attempts at a commit.",
            hint="Stop the other writer, or let it wait between its commits. Then re-snapshot the table.",
        )

    def _columns_as(self, rows: DataFrame, schema: Schema) -> DataFrame:
        """Return rows with the columns of a schema, in its order and types; lacking columns are NULL."""
        from pyspark.sql import functions as f

        names = {spark_column_key(name): name for name in rows.columns}
        chosen = []
        for wanted in spark_schema(schema):
            name = names.get(spark_column_key(wanted.name))
            value = f.lit(None) if name is None else f.col(identifier(name))
            chosen.append(value.cast(wanted.dataType).alias(wanted.name))
        return rows.select(*chosen)


def stage_snapshot(
    begun: Transaction, summary: Mapping[str, str], added: Sequence[DataFile], replaced: Sequence[DataFile]
) -> None:
    """Stage one snapshot, also if it changes no file."""
    update = begun.update_snapshot(snapshot_properties=dict(summary))
    producer = update.overwrite() if replaced else update.fast_append()
    with producer as made:
        for file in added:
            made.append_data_file(file)
        for file in replaced:
            made.delete_data_file(file)


def summary_of(at: Commit) -> dict[str, str]:
    """Return the properties of the snapshot of a commit."""
    return {f"mariadb.{name}": str(value) for name, value in at._asdict().items() if name in _SUMMARY and value != ""}


def has_commit(table: Table, at: Commit) -> bool:
    """Return True if a table has a commit. The rows of a micro-batch are committed after its statements."""
    batch, parts = tokens(table, at.mirror)
    if not at.part or batch < at.batch:
        return False
    return batch > at.batch or at.part in parts or (at.part not in ROWS and not ROWS.isdisjoint(parts))


def _remove(table: Table, files: Sequence[DataFile]) -> None:
    """Remove files of a commit that failed; the removal may fail, too."""
    for file in files:
        with contextlib.suppress(Exception):
            table.io.delete(file.file_path)
