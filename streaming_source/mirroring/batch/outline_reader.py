"""Task that makes the outline of a partition: it scans the row events and decodes no column.

In: a partition of the stream, and the read plan of a query over many tables. Out: one RecordBatch. The outline contains
the pickled partition and the plan for reading its rows. The plan has no catalog: the definition of each table is in the
row of the table.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from streaming_source.mirroring.batch.met_maps import MetMaps
from streaming_source.mirroring.batch.outline_columns import (
    FAULT,
    KNOWN,
    MAPS,
    RANGE,
    STATEMENT,
    TOUCHED,
    outline_batch,
    outline_schema,
)
from streaming_source.mirroring.batch.touched_tables import TouchedTables
from streaming_source.rows.reader import interpret_little, open_range
from streaming_source.rows.record_batches import exempt_imports_from_collection, noted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    import pyarrow as pa

    from replica.rows.decode.batch import ChangeBatch, TableName
    from replica.rows.decode.slots import SlotTable
    from replica.rows.scan.scan import Scan
    from streaming_source.rows.partition import ChangePartition
    from streaming_source.rows.read_plan import ReadPlan

_SECOND_US: Final = 1_000_000


@dataclass(slots=True)
class _Outlined:
    """Numbers of one table in a partition."""

    reads: int = 0
    changes: int = 0
    partial: bool = False
    domains: set[int] = field(default_factory=set)
    committed: int = 0

    @property
    def rows(self) -> int:
        return self.reads + self.changes

    def row(self, name: TableName, known: bytes, size: int, maps: MetMaps) -> dict[str, Any]:
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
    maps: MetMaps
    slots: list[SlotTable] = field(default_factory=list)

    def __call__(self, found: Scan, slots: SlotTable) -> None:
        if self.touched is not None:
            self.touched.add(found, slots)
        self.maps.walked(found, slots)
        self.slots.append(slots)

    def end(self) -> None:
        for slots in self.slots:
            self.maps.ended(slots)


def read_outline(partition: ChangePartition, plan: ReadPlan, number: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield the outline of one partition; `number`: its place in its micro-batch.

    Raises:
        ReplicaError: any error of the decoder, with a note that names the partition.
    """
    interpret_little(partition)
    walked = replace(plan, shape="envelope", columns=(), schema=outline_schema(), lenient=True)
    tables: dict[TableName, _Outlined] = {}
    statements: list[dict[str, Any]] = []
    touched, maps = TouchedTables(), MetMaps()
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
        tables.setdefault(name, _Outlined())
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
    if ranges or done:
        yield outline_batch([*ranges, *rows, *statements, *done])
    exempt_imports_from_collection()


def _add(
    tables: dict[TableName, _Outlined], changes: ChangeBatch, wanted: npt.NDArray[np.bool_] | None, *, read: bool
) -> None:
    """Add a decoded batch; `wanted` marks the rows that count, None counts all; `read`: they are snapshot rows."""
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
        each = tables.setdefault(changes.tables[number], _Outlined())
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
    """Return the replication domains of each table's rows. They are counted: sorting would cost more than decoding."""
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
