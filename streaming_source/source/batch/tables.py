"""Batch reads of tables: the rows of one or many tables at one GTID position (content=tables).

`TablesReader` is Spark's reader. It takes the options, the plan, and the position that `load_tables` resolved: the end
of the binlog, or the option endingPosition. When Spark asks a DataFrame for its partitions, once, the tables are read
into a private folder, and tasks read that folder. The rows are those of `startingPosition=initial`, without the
metadata columns of a change.

Errors: everything that a stream with startingPosition=initial refuses, and tables that do not fit into relayMaxBytes.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from replica.errors import RelayError, SchemaError
from replica.protocol.gtid import GtidPosition
from replica.relay_log.directory.disk import replace_file
from replica.snapshot.frontier import Frontier
from replica.snapshot.spool.batches import BatchName, find_batch
from streaming_source.attached.folder import attached_directory
from streaming_source.planning.open_planner import open_cutter
from streaming_source.planning.tables.table_rows import range_of
from streaming_source.rows.reader import read_changes
from streaming_source.schema.row_schema import spark_type, without_metadata
from streaming_source.source.batch.folders import finish, take_folder
from streaming_source.source.batch.past_tables import SPOOL_NAME, TablesRead, read_tables
from streaming_source.source.batch.planned_reader import PlannedReader
from streaming_source.source.batch.planning import PlannedRange

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.options.source_options import SourceOptions
    from streaming_source.rows.partition import ChangePartition, MappedRange
    from streaming_source.rows.read_plan import ReadPlan

POSITION: Final = "_position"
"""Name of the column with the position, the same in all rows. A table is unlikely to have a column of this name."""
_OF_MANY: Final = {"database": "database", "table": "table", "after": "row"}
"""Columns of the change rows that make a row of many tables, and their names in it."""


@dataclass(frozen=True)
class TablesPlan:
    """Plan of a read of tables: the plan of the underlying change rows, and the columns to output.

    Attributes:
        begin: the offset of all rows: the end of the binlog at load(), or endingPosition.
        schema: the schema of the query.
        taken: for each field of `schema`, the column of `rows`; None for the position.
    """

    rows: ReadPlan
    begin: SourceOffset
    schema: StructType
    taken: tuple[str | None, ...]

    def project(self, wanted: StructType) -> TablesPlan:
        """Return the plan for a schema that the user gave: some of the columns, in any order, of the same types.

        Raises:
            SchemaError: the rows do not have a column, or have it with another type.
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
    """Check each table, and resolve the position of the rows.

    Raises:
        PrerequisiteError: a table cannot be read correctly.
        ReplicaError: the server cannot be asked, or does not have the position.
    """
    from streaming_source.planning.tables.open_reading import judge_tables
    from streaming_source.source.batch.past_tables import offset_at_end

    verdicts = judge_tables(options, plan, settled=True)
    without = {name for table in verdicts.read for name in table.without}
    return tables_plan(plan, offset_at_end(options), without)


def tables_plan(plan: ReadPlan, begin: SourceOffset, without: Collection[str] = ()) -> TablesPlan:
    """Make the plan for tables from a plan of change rows.

    Args:
        plan: the plan of the change rows.
        begin: the offset of the rows.
        without: columns that are not read.

    Raises:
        SchemaError: the table has a column with the name of the position column.
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
                f"the table's column {POSITION} has the same name as the column for the position.",
                hint="Read the table with tables instead of table: then its columns are inside a VARIANT.",
            )
        schema = StructType()
        for column in columns:
            schema = schema.add(column.name, spark_type(column.type), nullable=True, metadata=column.metadata() or None)
    schema = schema.add(POSITION, StringType(), nullable=True, metadata={"mariadb.position": str(begin.position)})
    put_out = (*taken, None)
    return TablesPlan(_only(plan, put_out), begin, schema, put_out)


def _only(plan: ReadPlan, names: tuple[str | None, ...]) -> ReadPlan:
    """Return the plan of change rows with only these columns.

    At least one column is kept, because a batch gets its row count from it.
    """
    from pyspark.sql.types import StructType

    wanted = [name for name in names if name is not None] or [plan.spark_schema().names[0]]
    own = {field.name: field for field in plan.spark_schema().fields}
    return plan.project(StructType([own[name] for name in dict.fromkeys(wanted)]))


class TablesReader(PlannedReader):
    def __init__(self, options: SourceOptions, plan: TablesPlan, load: str) -> None:
        super().__init__(options, load)
        self._plan = plan

    def __repr__(self) -> str:
        return f"TablesReader({self._plan.rows.title} at {self._plan.begin.position})"

    def planned(self, options: SourceOptions, load: str) -> PlannedRange:

        return plan_tables(options, self._plan.rows, self._plan.begin, load)

    def rows(self, partition: ChangePartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._plan)


def _read(partition: ChangePartition, plan: TablesPlan) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    from replica.rows.types.arrow_arrays import repeated
    from streaming_source.schema.row_schema import arrow_schema

    schema, position = arrow_schema(plan.schema), str(plan.begin.position)
    for batch in read_changes(partition, plan.rows):
        arrays = [repeated(position, batch.num_rows) if name is None else batch.column(name) for name in plan.taken]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


# `plan_tables` takes the options, the plan of the rows, and the offset of the rows. While it reads the tables, a
# replica receives later transactions into the same folder, and past_tables.py uses them to revert rows that were read
# later. Reading and receiving end with the last table. The rows stay as long as the DataFrame may be used (folders.py).
#
# Errors: tables that cannot be read so, tables that were altered after the offset, and rows that do not fit into
# relayMaxBytes.


STEPS_NAME: Final = "tables.json"
LOST: Final = "Another program changed it: load() again."


def plan_tables(options: SourceOptions, plan: ReadPlan, begin: SourceOffset, load: str) -> PlannedRange:
    """Return the partitions of the rows of all tables, as they are at an offset.

    Raises:
        PrerequisiteError: a table cannot be read correctly.
        DiskFullError: the rows do not fit into relayMaxBytes, or on the disk.
        ReplicaError: any error of reading and receiving.
    """
    if attached_directory(options) is not None:  # rows of this read must not go into a daemon's folder
        options = replace(options, relay_dir=None)
    folder, complete = take_folder(options, f"{load}|tables|{begin.position}|{begin.resume}")
    try:
        if not complete:
            _write(read_tables(options, plan, begin, folder), folder)
            finish(folder)
        cutter = open_cutter(options, plan)
        partitions = cutter.on_board(cutter.of_tables(_parts(folder, begin)))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return PlannedRange.of(partitions, folder)


def _write(steps: TablesRead, folder: Path) -> None:
    steps_read = {"frontiers": [frontier.json() for frontier in steps.frontiers], "position": str(steps.position)}
    replace_file(folder / STEPS_NAME, json.dumps(steps_read).encode())


def _steps(folder: Path) -> TablesRead:
    try:
        stored = json.loads((folder / STEPS_NAME).read_text(encoding="utf-8"))
        frontiers = tuple(Frontier.parse(value) for value in stored["frontiers"])
        return TablesRead(frontiers, GtidPosition.parse(stored["position"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RelayError(f"{folder / STEPS_NAME} cannot be read: {error!r}.", hint=LOST) from None


def _parts(folder: Path, begin: SourceOffset) -> list[MappedRange]:
    steps = _steps(folder)
    found: list[MappedRange] = []
    for before, after in zip(steps.frontiers, steps.frontiers[1:], strict=False):
        if before.rows == after.rows:
            continue
        parts = find_batch(folder / SPOOL_NAME, BatchName(before, after, steps.position))
        if parts is None:
            raise RelayError(f"rows that were read into {folder} were removed.", hint=LOST)
        found += [range_of(part, begin) for part in parts]
    return found
