"""Record the table maps of a partition's rows, and the tables whose rows cannot be decoded.

In: decoded batches of a partition, in the order of the stream. Out: the `MetMap`s of each table, one for each run of
rows with the same table map. Also out: the errors of tables whose rows are left out. The mirror compares the table maps
with its definitions, because a column that was added without the binlog shows in no statement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from replica.rows.decode.batch import ChangeBatch, TableName
    from replica.rows.decode.slots import CompiledTable, SlotTable
    from replica.rows.scan.scan import Scan

Place = tuple[int, int]
"""Sequence number and ordinal."""


class MetMap(NamedTuple):
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


class MetMaps:
    """Table maps of a partition, and in `left_out` the errors of tables whose rows are left out."""

    def __init__(self) -> None:
        self.runs: dict[TableName, list[MetMap]] = {}
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
        """Record the table maps of a decoded batch; `wanted` marks the rows that count, None counts all."""
        slots, events, event = changes.slots, changes.events, changes.event
        assert slots is not None, "the decoder gives them with every batch"  # noqa: S101
        assert events is not None  # noqa: S101
        assert event is not None  # noqa: S101
        rows = np.arange(changes.rows) if wanted is None else np.flatnonzero(wanted)
        if not len(rows):
            return
        slot = events["slot"][event[rows]]
        met = np.flatnonzero(np.bincount(slot)).tolist()
        by_name: dict[TableName, list[int]] = {}
        for number in met:
            by_name.setdefault(slots.table(number).name, []).append(number)
        first, last = np.zeros(met[-1] + 1, np.int64), np.zeros(met[-1] + 1, np.int64)
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
            runs.append(MetMap(content, _place(changes, first), _place(changes, last), read, fault))


def _place(changes: ChangeBatch, row: int) -> Place:
    return int(changes.groups.sequence_numbers[changes.group[row]]), int(changes.ordinal[row])
