"""A relay log whose transactions hold real row changes, planned and read as Spark does it: in batches, over restarts.

`Group.text` is a GTID, with `alters` behind it for DDL, `prepare x`, `commit x` or `rollback x` for XA. Rows are
inserts of a column `a`, numbered through; those of table d.t are wanted, those of d.other are not.
"""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any, NamedTuple

from replica.protocol.constants import EventType
from replica.protocol.gtid import Gtid, GtidPosition
from streaming_source.offsets.offset import SourceOffset
from streaming_source.rows.read_plan import ReadPlan
from streaming_source.rows.reader import read_changes
from streaming_source.schema.row_schema import TableColumn
from streaming_source.selection.resolver import SelectedTables
from tests.kit.binlog.real_rows import images
from tests.kit.binlog.rows import INSERT, Column, rows, table_map
from tests.kit.relay.driving import receive
from tests.unit.streaming_source.feeds.relay_feed import RelayFeed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming_source.planning.planner import ChangePlanner

TABLES = SelectedTables(("d.t",), {})
PLAN = ReadPlan("envelope", TABLES, (TableColumn("a", "INT"),), "")
MAPS = {name: table_map(number, [Column("a", 3)], table=name) for number, name in enumerate(("t", "other"), 1)}


class Group(NamedTuple):
    """`events`: (table, rows) of each rows event."""

    text: str
    events: tuple[tuple[str, int], ...] = ()

    @property
    def wanted(self) -> int:
        return sum(count for table, count in self.events if table == "t")


class Delivered(NamedTuple):
    """One row as Spark gets it."""

    gtid: str
    ordinal: int
    is_last: bool
    value: int


class RowFeed(RelayFeed):
    """Started where nothing was written before."""

    value = 0

    def arrive_rows(self, *groups: Group) -> None:
        primary = self.primary
        primary.connect()
        for group in groups:
            text, *xa = group.text.split()
            gtid = Gtid.parse(text)
            match xa:
                case [] | ["prepare", _]:
                    primary.begin(gtid, xa=xa[1] if xa else None)
                    self._rows(group.events)
                    if xa:
                        primary.xa_prepared(xa[1])
                    else:
                        primary.xid()
                case ["alters"]:
                    primary.statement(gtid, text=b"ALTER TABLE d.t COMMENT 'changed'")
                case [verb, name]:
                    primary.xa_end(name, verb.upper(), gtid)
        receive(self._writer, primary.wire())

    def _rows(self, events: Sequence[tuple[str, int]]) -> None:
        for table, count in events:
            number = 1 + list(MAPS).index(table)
            first, self.value = self.value, self.value + count
            self.primary.event(EventType.TABLE_MAP, MAPS[table], inside=True)
            self.primary.event(INSERT, rows(number, 1, images(*range(first, self.value))), inside=True)


def offset(gtid: str) -> SourceOffset:
    position = GtidPosition.parse(gtid)
    return SourceOffset(position, position)


def again(value: SourceOffset) -> SourceOffset:
    """What comes back from Spark's checkpoint."""
    return SourceOffset.parse(json.loads(json.dumps(value.json())))


def delivered(partitions: Sequence[Any]) -> list[Delivered]:
    """The rows of partitions, each read as a task reads it."""
    return [
        Delivered(row["transaction"]["gtid"], row["transaction"]["ordinal"], row["transaction"]["is_last"], image["a"])
        for partition in pickle.loads(pickle.dumps(list(partitions)))  # noqa: S301
        for batch in read_changes(partition, PLAN)
        for row in batch.to_pylist()
        if (image := row["after"])
    ]


def batches(planner: ChangePlanner, start: SourceOffset) -> list[tuple[SourceOffset, list[Delivered]]]:
    """End offset and rows of each batch until nothing is new."""
    found = []
    while (end := planner.latest_offset(again(start), bounded=True)) != start:
        found.append((end, delivered(planner.partitions(again(start), again(end)))))
        start = end
    return found


def ends(found: list[tuple[SourceOffset, list[Delivered]]]) -> list[str]:
    """The positions that batches end at."""
    return [str(end.position) for end, _ in found]


def sizes(found: list[tuple[SourceOffset, list[Delivered]]]) -> list[int]:
    """The rows of each batch."""
    return [len(rows) for _, rows in found]


def small(first: int, last: int, rows: int = 1) -> list[Group]:
    """Transactions of one domain, numbered from `first` to `last`."""
    return [Group(f"0-1-{n}", (("t", rows),)) for n in range(first, last + 1)]
