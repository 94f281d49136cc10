"""Batch reads of tables: the rows of one or many tables as they all are at one GTID position (content=tables).

In: the options, the plan, and the position, which was settled at load(): the end of the binlog, or the option
endingPosition. Out: Spark's reader object. Spark asks it once a DataFrame for its partitions: then the tables are read
into a folder of their own, which tasks read. Rows are those that `startingPosition=initial` gives, without what is said
of a change.

Refused: what a stream that begins with the tables refuses, and tables that do not fit into relayMaxBytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from replica.errors import SchemaError
from streaming_source.batch.planned_reader import PlannedReader
from streaming_source.rows.reader import read_changes
from streaming_source.schema.row_schema import spark_type, without_metadata

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from streaming_source.batch.planning import PlannedRange
    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.options.source_options import SourceOptions
    from streaming_source.rows.partition import ChangePartition
    from streaming_source.rows.read_plan import ReadPlan

POSITION: Final = "_position"
"""The name of the column that holds the position in all rows: one that a table is unlikely to have."""
_OF_MANY: Final = {"database": "database", "table": "table", "after": "row"}
"""The columns of the change rows that rows of many tables are made of, and their names there."""


@dataclass(frozen=True)
class TablesPlan:
    """The plan of a read of tables: that of the change rows which they come from, and what is put out of these.

    All rows hold at `begin`, the end of the binlog at load() or endingPosition; `schema` is the query's, whose columns
    `rows` has under the names `taken`, None for the position itself.
    """

    rows: ReadPlan
    begin: SourceOffset
    schema: StructType
    taken: tuple[str | None, ...]

    def project(self, wanted: StructType) -> TablesPlan:
        """Return the plan for a schema the user gave: a part of the columns, in any order, of the same types.

        Raises:
            SchemaError: a column that the rows do not have, or has another type there.
        """
        own = {field.name: (field, taken) for field, taken in zip(self.schema.fields, self.taken, strict=True)}
        for field in wanted.fields:
            if field.name not in own or without_metadata(own[field.name][0].dataType) != without_metadata(
                field.dataType
            ):
                has = ", ".join(f"{name} {known.dataType.simpleString()}" for name, (known, _) in own.items())
                raise SchemaError(
                    f"the schema given to the query has a column {field.name} {field.dataType.simpleString()}, which "
                    "the rows of the tables do not have.",
                    hint=f"They have {has}.",
                )
        taken = tuple(own[name][1] for name in wanted.names)
        return replace(self, schema=wanted, taken=taken, rows=_only(self.rows, taken))


def load_tables(options: SourceOptions, plan: ReadPlan) -> TablesPlan:
    """Judge each table, and settle the position at which their rows will hold.

    Raises:
        PrerequisiteError: a table cannot be read so that its rows are right.
        ReplicaError: the server cannot be asked, or does not have the position.
    """
    from streaming_source.batch.past_position import offset_at_end
    from streaming_source.planning.tables.open_reading import judge_tables

    verdicts = judge_tables(options, plan, settled=True)
    without = {name for table in verdicts.read for name in table.without}
    return tables_plan(plan, offset_at_end(options), without)


def tables_plan(plan: ReadPlan, begin: SourceOffset, without: Collection[str] = ()) -> TablesPlan:
    """Make the plan for the tables of a plan of change rows, at an offset; `without`: columns that are not read.

    Raises:
        SchemaError: the table has a column with the name of the position's.
    """
    from pyspark.sql.types import StringType, StructType

    change = plan.spark_schema()
    if plan.columns is None:
        taken: tuple[str, ...] = tuple(_OF_MANY)
        schema = StructType()
        for name in taken:
            schema = schema.add(_OF_MANY[name], change[name].dataType, nullable=True)
    else:
        columns = [column for column in plan.columns if column.name not in without]
        taken = tuple(column.name for column in columns)
        if POSITION in taken:
            raise SchemaError(
                f"the table's column {POSITION} has the name of the column that tells the position.",
                hint="Read it with tables instead of table: there the row is a VARIANT of its own.",
            )
        schema = StructType()
        for column in columns:
            schema = schema.add(column.name, spark_type(column.type), nullable=True, metadata=column.metadata() or None)
    schema = schema.add(POSITION, StringType(), nullable=True, metadata={"mariadb.position": str(begin.position)})
    put_out = (*taken, None)
    return TablesPlan(_only(plan, put_out), begin, schema, put_out)


def _only(plan: ReadPlan, names: tuple[str | None, ...]) -> ReadPlan:
    """Return the plan of change rows with these columns alone; one at least, because a batch counts its rows by it."""
    from pyspark.sql.types import StructType

    wanted = [name for name in names if name is not None] or [plan.spark_schema().names[0]]
    own = {field.name: field for field in plan.spark_schema().fields}
    return plan.project(StructType([own[name] for name in dict.fromkeys(wanted)]))


class TablesReader(PlannedReader):
    """Spark's reader of tables."""

    def __init__(self, options: SourceOptions, plan: TablesPlan, load: str) -> None:
        super().__init__(options, load)
        self._plan = plan

    def __repr__(self) -> str:
        return f"TablesReader({self._plan.rows.title} at {self._plan.begin.position})"

    def planned(self, options: SourceOptions, load: str) -> PlannedRange:
        from streaming_source.batch.table_planning import plan_tables

        return plan_tables(options, self._plan.rows, self._plan.begin, load)

    def rows(self, partition: ChangePartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._plan)


def _read(partition: ChangePartition, plan: TablesPlan) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    from replica.rows.types.arrow_arrays import repeated
    from streaming_source.schema.arrow import arrow_schema

    schema, position = arrow_schema(plan.schema), str(plan.begin.position)
    for batch in read_changes(partition, plan.rows):
        arrays = [repeated(position, batch.num_rows) if name is None else batch.column(name) for name in plan.taken]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
