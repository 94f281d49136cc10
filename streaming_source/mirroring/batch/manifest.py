"""Manifest of a micro-batch: which tables, rows and statements it has, made by tasks that decode no column.

`read_manifest` turns a partition of the stream into one RecordBatch. Its rows describe the partition, then the tables,
statements and touched tables in this partition. Readers depend on this order. `TableMapRuns` records the table maps of
rows, and `TouchedTables` every table with row events. `ManifestSource` is the data source, with the options, offsets,
checkpoints and errors of `mariadb-binlog`; `mirror()` registers it in its session.
"""

from __future__ import annotations

import pickle
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from replica.protocol.constants import RowsFlag
from replica.rows.scan import records as r
from streaming_source.driver.spark_border import spark_border
from streaming_source.rows.partition import ChangePartition
from streaming_source.rows.reader import exempt_imports_from_collection, interpret_little, noted, open_range
from streaming_source.source.data_source import MariaDbBinlogSource
from streaming_source.source.stream import ChangeStreamReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt
    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from replica.handshake.start.start import ServerEnd
    from replica.rows.decode.batch import ChangeBatch, TableName
    from replica.rows.decode.slots import CompiledTable, SlotTable
    from replica.rows.scan.scan import Scan
    from streaming_source.options.source_options import SourceOptions
    from streaming_source.rows.read_plan import ReadPlan
    from streaming_source.source.batch.server import ServerRangeReader
# The row of a partition has only `range`. The row of a table has numbers, its known definition, and its share of the
# partition in `bytes`. The row of a statement has `statement`. The row of a touched table has `touched`, and the row of
# a table with lost snapshot rows has `lost`. This order
# within a partition is fixed: a reader meets the partition before its tables.


RANGE: Final = "range"
KNOWN: Final = "known"
STATEMENT: Final = "statement"
TOUCHED: Final = "touched"
MAPS: Final = "maps"
"""Table maps of the rows of a table (`manifest.py`)."""
FAULT: Final = "fault"
"""Why rows of a table are left out of the micro-batch; NULL if none are."""
LOST: Final = "lost"
"""Why snapshot rows of a table are missing, and cannot be read again; NULL if all are there."""
COLUMNS: Final = (
    ("database", "STRING"),
    ("table", "STRING"),
    ("reads", "BIGINT"),
    ("changes", "BIGINT"),
    ("bytes", "BIGINT"),
    ("partial", "BOOLEAN"),
    ("domains", "ARRAY<BIGINT>"),
    ("committed_us", "BIGINT"),
    (TOUCHED, "BIGINT"),
    (MAPS, "BINARY"),
    (FAULT, "STRING"),
    (LOST, "STRING"),
    (KNOWN, "BINARY"),
    (RANGE, "BINARY"),
)
STATEMENT_COLUMNS: Final = (
    ("domain", "BIGINT"),
    ("number", "STRING"),
    ("ordinal", "BIGINT"),
    ("gtid", "STRING"),
    ("sql", "STRING"),
    ("context", "STRING"),
    ("committed_us", "BIGINT"),
)
"""Fields of `statement`.

`number` is the sequence number as text, which holds all its 64 bits. `context` is the session context for parsing the
text (`StatementContext.stored`). Times are microseconds since 1970: a TIMESTAMP would be converted to the time zone of
the process that collects it.
"""


def manifest_schema() -> StructType:
    """Return the columns as a Spark schema."""
    from pyspark.sql.types import StructType

    from streaming_source.schema.row_schema import spark_type

    statement, schema = StructType(), StructType()
    for name, kind in STATEMENT_COLUMNS:
        statement = statement.add(name, spark_type(kind))
    for name, kind in COLUMNS:
        schema = schema.add(name, spark_type(kind))
    return schema.add(STATEMENT, statement)


def manifest_batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Return rows as an Arrow batch; columns that a row lacks are NULL."""
    import pyarrow as pa

    from replica.rows.types.arrow_arrays import array_of_values
    from streaming_source.schema.row_schema import arrow_schema

    schema = arrow_schema(manifest_schema())
    arrays = [array_of_values([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass(frozen=True)
class NumberedPartition(ChangePartition):
    """Partition with its number in the micro-batch. The numbers have the order of the stream."""

    number: int = 0

    def manifest(self, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
        """Yield the manifest of the partition."""
        return read_manifest(ChangePartition(self.ranges, self.lost), plan, self.number)


class ManifestStreamReader(ChangeStreamReader):
    """Stream reader whose tasks make manifests."""

    ends_before_statements = True

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return numbered(super().partitions(start, end))

    def read(self, partition: NumberedPartition) -> Iterator[pa.RecordBatch]:
        with spark_border():
            yield from partition.manifest(self._plan)


class ManifestSource(MariaDbBinlogSource):
    """Data source `mariadb-binlog-manifest`, for `spark.dataSource.register`."""

    @classmethod
    def name(cls) -> str:
        return "mariadb-binlog-manifest"

    def schema(self) -> StructType:
        super().schema()
        return manifest_schema()

    def _stream_of(self, options: SourceOptions, plan: ReadPlan, schema: StructType) -> ChangeStreamReader:  # noqa: ARG002
        return ManifestStreamReader(options, plan)

    def _range_of(
        self,
        options: SourceOptions,
        plan: ReadPlan,
        schema: StructType,  # noqa: ARG002  (manifests have one schema)
        latest: ServerEnd,
    ) -> ServerRangeReader:
        from streaming_source.mirroring.batch.manifest_ranges import ManifestRangeReader

        return ManifestRangeReader(options, plan, latest, self._load or uuid.uuid4().hex)


def numbered(partitions: Iterable[InputPartition]) -> list[InputPartition]:
    """Return the partitions of changes with their numbers."""
    changes = (part for part in partitions if isinstance(part, ChangePartition))
    return [NumberedPartition(part.ranges, part.lost, number) for number, part in enumerate(changes)]


# If a column was added without the binlog, no statement shows it, but the table maps of rows do. So the manifest has
# the table maps of each table, and the errors of tables whose rows are left out.


Place = tuple[int, int]
"""Sequence number and ordinal."""


class TableMapRun(NamedTuple):
    """One run of rows of a table with the same table map.

    Attributes:
        content: the table map without its id.
        first: place of the first row.
        last: place of the last row.
        read: the rows are snapshot rows.
        fault: why they cannot be decoded; '' if they can.
    """

    content: bytes
    first: Place
    last: Place
    read: bool
    fault: str


class TableMapRuns:
    """Table maps of a partition, and in `left_out` the errors of tables whose rows are left out."""

    def __init__(self) -> None:
        self.runs: dict[TableName, list[TableMapRun]] = {}
        self.left_out: dict[TableName, str] = {}

    def walked(self, found: Scan, slots: SlotTable) -> None:
        """Record the tables of a range whose rows cannot be decoded, before its rows are read."""
        for slot in np.flatnonzero(np.bincount(found.events["slot"])).tolist():
            table = slots.table(slot)
            if table.fault is not None and not table.wanted:
                self.left_out.setdefault(table.name, str(table.fault))

    def ended(self, slots: SlotTable) -> None:
        """Record the errors of a range after all of its rows were read."""
        for name, error in slots.faults.items():
            self.left_out.setdefault(name, str(error))

    def add(self, changes: ChangeBatch, wanted: Any, *, read: bool) -> None:
        """Record the table maps of a decoded batch.

        Args:
            changes: the decoded batch.
            wanted: mask of the rows that count, shape (rows,), bool. None counts all rows.
            read: whether the rows are snapshot rows.
        """
        slots, events, event = changes.slots, changes.events, changes.event
        assert slots is not None, "the decoder gives them with every batch"  # noqa: S101
        assert events is not None  # noqa: S101
        assert event is not None  # noqa: S101
        rows = np.arange(changes.rows) if wanted is None else np.flatnonzero(wanted)
        if not len(rows):
            return
        slot = events["slot"][event[rows]]
        used = np.flatnonzero(np.bincount(slot)).tolist()
        by_name: dict[TableName, list[int]] = {}
        for number in used:
            by_name.setdefault(slots.table(number).name, []).append(number)
        first, last = np.zeros(used[-1] + 1, np.int64), np.zeros(used[-1] + 1, np.int64)
        last[slot] = rows  # numpy keeps the last of several assignments
        first[slot[::-1]] = rows[::-1]
        for name, numbers in by_name.items():
            if len(numbers) == 1:
                self._run(
                    name, slots.table(numbers[0]), changes, int(first[numbers[0]]), int(last[numbers[0]]), read=read
                )
                continue
            own = np.flatnonzero(np.isin(slot, numbers))
            begins = np.flatnonzero(np.append(True, np.diff(slot[own]) != 0))
            for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(own)], strict=True):
                table = slots.table(int(slot[own[begin]]))
                self._run(name, table, changes, int(rows[own[begin]]), int(rows[own[end - 1]]), read=read)

    def _run(
        self, name: TableName, table: CompiledTable, changes: ChangeBatch, first: int, last: int, *, read: bool
    ) -> None:
        runs = self.runs.setdefault(name, [])
        content = table.table_map.content
        if runs and runs[-1].content == content and runs[-1].read == read:
            runs[-1] = runs[-1]._replace(last=_place(changes, last))
        else:
            fault = "" if table.fault is None else str(table.fault)
            runs.append(TableMapRun(content, _place(changes, first), _place(changes, last), read, fault))


def _place(changes: ChangeBatch, row: int) -> Place:
    return int(changes.groups.sequence_numbers[changes.group[row]]), int(changes.ordinal[row])


# Foreign keys may cascade the changes of any table: also of tables that the mirror does not select, and of rows that
# are not delivered yet. So the manifest lists every table with row events.


DELETES: Final = 1
UPDATES: Final = 2
INSERTS: Final = 4
UNCHECKED: Final = 8
"""Bit for rows that were changed with foreign_key_checks=0. The server checked no foreign key and cascaded nothing."""

_BITS: Final = np.zeros(r.OPERATIONS, np.int64)
_BITS[[r.OP_DELETE, r.OP_UPDATE, r.OP_INSERT]] = DELETES, UPDATES, INSERTS


class TouchedTables:
    """Bits of each table in the ranges of a partition."""

    def __init__(self) -> None:
        self.bits: dict[TableName, int] = {}

    def add(self, found: Scan, slots: SlotTable) -> None:
        """Add the row events of a range."""
        events = found.events
        unchecked = (events["flags"] & int(RowsFlag.NO_FOREIGN_KEY_CHECKS)) != 0
        of_slots = np.zeros(len(slots.records), np.int64)
        np.bitwise_or.at(of_slots, events["slot"], _BITS[events["op"]] | np.where(unchecked, UNCHECKED, 0))
        for slot in np.flatnonzero(of_slots).tolist():
            name = slots.table(slot).name
            self.bits[name] = self.bits.get(name, 0) | int(of_slots[slot])


# A manifest is one RecordBatch for each partition. It has the pickled partition and the plan for reading its rows,
# without the catalog: the definition of each table is in the row of the table.


_SECOND_US: Final = 1_000_000


@dataclass(slots=True)
class _Listed:
    """Numbers of one table in a partition."""

    reads: int = 0
    changes: int = 0
    partial: bool = False
    domains: set[int] = field(default_factory=set)
    committed: int = 0

    @property
    def rows(self) -> int:
        return self.reads + self.changes

    def row(self, name: TableName, known: bytes, size: int, maps: TableMapRuns) -> dict[str, Any]:
        return {
            "database": name.database,
            "table": name.table,
            "reads": self.reads,
            "changes": self.changes,
            "bytes": size,
            "partial": self.partial,
            "domains": sorted(self.domains),
            "committed_us": self.committed * _SECOND_US if self.committed else None,
            KNOWN: known,
            MAPS: pickle.dumps(maps.runs.get(name, [])),
            FAULT: maps.left_out.get(name),
        }


@dataclass(slots=True)
class _Walks:
    """Scans of a range: the main scan, and one for each XA transaction that was prepared before the range."""

    touched: TouchedTables | None
    maps: TableMapRuns
    slots: list[SlotTable] = field(default_factory=list)

    def __call__(self, found: Scan, slots: SlotTable) -> None:
        if self.touched is not None:
            self.touched.add(found, slots)
        self.maps.walked(found, slots)
        self.slots.append(slots)

    def end(self) -> None:
        for slots in self.slots:
            self.maps.ended(slots)


def read_manifest(partition: ChangePartition, plan: ReadPlan, number: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield the manifest of one partition.

    Args:
        partition: the partition.
        plan: the plan for reading its rows.
        number: the partition's number in its micro-batch.

    Raises:
        ReplicaError: any error of the decoder, with a note that names the partition.
    """
    interpret_little(partition)
    walked = replace(plan, shape="envelope", columns=(), schema=manifest_schema(), lenient=True)
    tables: dict[TableName, _Listed] = {}
    statements: list[dict[str, Any]] = []
    touched, maps = TouchedTables(), TableMapRuns()
    for part in partition.ranges:
        with noted(f"while reading {part.place}"):
            walks = _Walks(touched if part.read is None else None, maps)
            opened = open_range(part, walked, walks)
            for changes in opened.decoded:
                for _, found in opened.choice.before(changes):
                    statements += _statements(found)
                wanted = opened.choice.rows(changes)
                _add(tables, changes, wanted, read=part.read is not None)
                maps.add(changes, wanted, read=part.read is not None)
            for found in opened.choice.rest():
                statements += _statements(found)
            walks.end()
    for name in maps.left_out:
        tables.setdefault(name, _Listed())
    lost = [{"database": database, "table": table, LOST: why} for (database, table), why in partition.lost]
    catalog = plan.tables.catalog
    size = partition.size / max(1, sum(each.rows for each in tables.values()))
    rows = [
        each.row(name, pickle.dumps(catalog.get(name)), int(size * each.rows), maps)
        for name, each in sorted(tables.items())
    ]
    without = replace(plan, tables=replace(plan.tables, catalog={}))
    ranges = [{RANGE: pickle.dumps((number, partition, without))}] if rows or statements else []
    done = [
        {"database": name.database, "table": name.table, TOUCHED: bits} for name, bits in sorted(touched.bits.items())
    ]
    if ranges or done or lost:
        yield manifest_batch([*ranges, *rows, *statements, *done, *lost])
    exempt_imports_from_collection()


def _add(
    tables: dict[TableName, _Listed], changes: ChangeBatch, wanted: npt.NDArray[np.bool_] | None, *, read: bool
) -> None:
    """Add a decoded batch to the numbers of its tables.

    `wanted` is a mask of the rows that count, shape (rows,), bool; None counts all rows. `read`: the rows are snapshot
    rows.
    """
    table, group, event = changes.table, changes.group, changes.event
    assert event is not None, "the decoder reports it for every batch"  # noqa: S101
    assert changes.events is not None  # noqa: S101
    if wanted is not None:
        table, group, event = table[wanted], group[wanted], event[wanted]
    if not len(table):
        return
    counts = np.bincount(table, minlength=len(changes.tables))
    partial = np.zeros(len(counts), np.bool_)
    partial[table[~changes.events["whole"][event].astype(np.bool_)]] = True
    committed = np.zeros(len(counts), np.int64)
    np.maximum.at(committed, table, changes.groups.commit_ts[group])
    domains = [()] * len(counts) if read else _domains(table, changes.groups.domain, group, len(counts))
    for number in np.flatnonzero(counts).tolist():
        each = tables.setdefault(changes.tables[number], _Listed())
        if read:
            each.reads += int(counts[number])
        else:
            each.changes += int(counts[number])
            each.domains.update(domains[number])
        each.partial |= bool(partial[number])
        each.committed = max(each.committed, int(committed[number]))


def _domains(
    table: npt.NDArray[Any], of_groups: npt.NDArray[Any], group: npt.NDArray[Any], tables: int
) -> list[list[int]]:
    """Return the number of replication domains of each table's rows.

    Sorting the rows would cost more than decoding them, so they are counted.
    """
    names, place = np.unique(of_groups, return_inverse=True)
    pairs = np.bincount(table.astype(np.int64) * len(names) + place[group], minlength=tables * len(names))
    return [names[row].tolist() for row in pairs.reshape(tables, len(names)) != 0]


def _statements(found: ChangeBatch) -> Iterator[dict[str, Any]]:
    groups = found.groups
    assert found.sql is not None, "a statement has its text"  # noqa: S101
    assert found.contexts is not None, "and its context"  # noqa: S101
    for row, (sql, context) in enumerate(zip(found.sql.to_pylist(), found.contexts, strict=True)):
        group, name = int(found.group[row]), found.tables[int(found.table[row])]
        domain, number = int(groups.domain[group]), int(groups.sequence_numbers[group])
        yield {
            "database": name.database or None,
            "table": name.table or None,
            STATEMENT: {
                "domain": domain,
                "number": str(number),
                "ordinal": int(found.ordinal[row]),
                "gtid": f"{domain}-{groups.server_id[group]}-{number}",
                "sql": sql,
                "context": context,
                "committed_us": int(groups.commit_ts[group]) * _SECOND_US,
            },
        }
