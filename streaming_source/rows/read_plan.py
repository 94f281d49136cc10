"""Plan that a task needs to read a query's rows: plain values, pickled with Spark's reader into every task."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from replica.errors import SchemaError
from replica.rows.decode.batch import Groups
from streaming_source.schema.row_schema import FLAT, TableColumn, envelope_schema, flat_schema, without_metadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql.types import StructType

    from replica.rows.decode.batch import ChangeBatch
    from streaming_source.rows.partition import ReadRows
    from streaming_source.schema.table_state import CatalogOrigin
    from streaming_source.selection.pushed_filters import ChangeFilter
    from streaming_source.selection.resolver import SelectedTables


@dataclass(frozen=True)
class ReadPlan:
    """All data that a task needs, without secrets.

    Attributes:
        columns: the columns of the option table; None with the option tables.
    """

    shape: Literal["envelope", "flat", "variant"]
    tables: SelectedTables
    columns: tuple[TableColumn, ...] | None
    server: str
    invalid_dates: Literal["null", "error", "text"] = "null"
    invalid_text: Literal["replace", "error"] = "replace"
    geometry: Literal["binary", "spark"] = "binary"
    include_sql: bool = False
    wide_sequence: bool = False  # sequence numbers as DECIMAL(20,0)
    schema: StructType | None = None  # the schema that the user gave, if any
    origin: CatalogOrigin | None = None  # where the catalog comes from; None if no server was asked
    lenient: bool = False  # an error of one table does not end a task; only without columns

    @property
    def title(self) -> str:
        return f"{','.join(self.tables.patterns)} as {self.shape}"

    def spark_schema(self) -> StructType:
        if self.schema is not None:
            return self.schema
        if self.shape == "flat":
            return flat_schema(self.columns or (), wide_sequence=self.wide_sequence)
        return envelope_schema(self.columns, wide_sequence=self.wide_sequence)

    def filtered(self, pushed: ChangeFilter) -> ReadPlan:
        """Return the plan of a query that needs only rows that pass the filter."""
        return replace(self, tables=replace(self.tables, filter=pushed))

    def project(self, wanted: StructType) -> ReadPlan:
        """Return the plan for a schema that the user gave: some of the columns, in any order, of the same types.

        Raises:
            SchemaError: the rows do not have a column, or have it with another type.
        """
        own = {field.name: field.dataType for field in self.spark_schema().fields}
        if {field.name: field.dataType for field in wanted.fields} == own and wanted.names == list(own):
            return self
        for field in wanted.fields:
            if field.name not in own:
                raise SchemaError(
                    f"the schema given to the query names a column {field.name}, which the rows do not have.",
                    hint=f"They have {', '.join(own)}.",
                )
            if without_metadata(own[field.name]) != without_metadata(field.dataType) or not field.nullable:
                given = field.dataType.simpleString() + ("" if field.nullable else " NOT NULL")
                raise SchemaError(
                    f"the schema given to the query makes {field.name} {given}; "
                    f"in the rows it is a nullable {own[field.name].simpleString()}.",
                    hint="Leave the schema out, or take the types from the one that load() gives.",
                )
        columns = self.columns
        if self.shape == "flat" and columns is not None:
            metadata = {column.name for column in FLAT}
            by_name = {column.name: column for column in columns}
            columns = tuple(by_name[name] for name in wanted.names if name not in metadata)
        return replace(self, columns=columns, schema=wanted)


# `read_rows` takes the decoder's batches and the transaction after which the rows are valid. It returns the same
# batches with this transaction for each row. The ordinal of a row is its number, which is above all ordinals of
# changes, and no row is the last one of its transaction. So (GTID, ordinal) stays unique. `_sequence` sorts a snapshot
# row after all changes up to its position and before later changes. With several replication domains it sorts the row
# before all changes (`ReadRows.lowest`).


FIRST_ORDINAL: Final = 900_000_000_000
"""Ordinal of the first snapshot row. No transaction has so many row changes, and 12 digits leave room for 10^11 more
rows.
"""


def read_rows(decoded: Iterable[ChangeBatch], read: ReadRows) -> Iterator[ChangeBatch]:
    """Yield the batches of one range as snapshot rows."""
    groups: Groups | None = None
    for changes in decoded:
        groups = groups or _groups(changes.groups, read)
        yield replace(
            changes,
            groups=groups,
            ordinal=changes.ordinal + (FIRST_ORDINAL + read.first),
            last=np.zeros(changes.rows, np.bool_),
        )


def _groups(groups: Groups, read: ReadRows) -> Groups:
    records = groups.records.copy()
    # Sequence numbers in records are signed 64-bit integers.
    sequence = read.seq_no - (1 << 64) if read.seq_no >= 1 << 63 else read.seq_no
    values = {"domain": read.domain, "server": read.server_id, "sequence": sequence, "timestamp": read.timestamp}
    for name, value in {**values, "xid": 0, "thread": 0}.items():
        records[name] = value
    return Groups(records)
