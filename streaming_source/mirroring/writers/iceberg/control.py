"""Control table of a mirror as an Iceberg table. The driver reads and writes its files, which have few rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming_source.mirroring.writers.iceberg.commits import OWN_PROPERTIES, IcebergTable, stage_snapshot
from streaming_source.sinks.iceberg.columns import iceberg_schema
from streaming_source.sinks.iceberg.data_files import IcebergFiles, new_files
from streaming_source.sinks.iceberg.small_tables import small_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table, Transaction
    from pyspark.sql import DataFrame

    from streaming_source.transforms.transformed_images import TargetColumn


class IcebergControl(IcebergTable):
    """Control table that is an Iceberg table; each state is one snapshot."""

    __slots__ = ()

    def make(self, columns: Sequence[TargetColumn], properties: Mapping[str, str]) -> None:
        """Create the control table without rows, if it does not exist."""
        if not self.exists():
            self._make(columns, {**OWN_PROPERTIES, **properties}, {})

    def add_columns(self, columns: Sequence[TargetColumn]) -> None:
        """Add columns."""
        with self._errors(), self._load().update_schema() as change:
            for new in iceberg_schema(columns).fields:
                change.add_column((new.name,), new.field_type, new.doc)

    def rows(self) -> DataFrame:
        """Return the rows of the current snapshot, which the driver reads."""
        return small_rows(self.spark, self._load(), self.name)

    def replace(self, rows: DataFrame) -> None:
        """Replace all rows, in one snapshot that the driver writes."""
        import pyarrow as pa

        def stage(table: Table, begun: Transaction) -> Sequence[DataFile]:
            content = pa.table(self._columns_as(rows, table.schema()).toArrow())
            added = list(new_files(IcebergFiles.of(table, table.metadata), [content]))
            stage_snapshot(begun, {}, added, [task.file for task in table.scan().plan_files()])
            return added

        self._commit(stage, lambda _: False)
