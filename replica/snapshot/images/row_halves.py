"""The row changes of some tables in a range of a relay log, as halves with their keys: what a window keeps of it.

In: a scan of the range, in the order of delivery, the keys of the tables, and where each event group ends. Out: per
table a `HalfSegment`, whose images stay where they are in the mapped file; small ones, and those that the server
compressed, are copied out. A table map that does not fit the table is kept as an error for the caller that asks for its
rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from replica.errors import ProtocolError, UnsupportedEventError
from replica.native.arrays import address
from replica.protocol.compression import inflate
from replica.rows.decode import records as d
from replica.rows.decode.faults import run_fault
from replica.rows.decode.kernel_row_keys import KeyValueRecord
from replica.rows.decode.row_keys import RowKeys
from replica.rows.decode.slots import TableCache
from replica.rows.scan import records as r
from replica.rows.scan.scan import ID_AND_FLAGS
from replica.rows.tables.target import TableTarget
from replica.rows.types.types import ValuePolicy
from replica.schema.text.naming import column_key
from replica.snapshot.images.half_record import HalfRecord
from replica.snapshot.images.kernel_row_halves import HalfTotals, find_row_halves

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from replica.errors import DataLossError, SchemaError
    from replica.native.record import Records
    from replica.protocol.rows.table_map import TableMapEvent
    from replica.rows.decode.slots import SlotTable
    from replica.rows.scan.scan import Scan
    from replica.schema.known_tables import TableName
    from replica.schema.table import TableSchema
    from replica.snapshot.rows.row_block import TableKey

COPIED_BYTES: Final = 1 << 20
"""Images of a table that are copied out of the log's part, not left there: a map of memory a megabyte at least, and the
kernel of a machine allows 65 530 of them a process."""


@dataclass(frozen=True, slots=True)
class HalfSegment:
    """The halves of one table in one range: HalfRecords, in order. `keys` and `images` are what their addresses lie in;
    `copied`: the bytes of images that do not lie in the mapped file.
    """

    halves: Records
    keys: npt.NDArray[np.uint8]
    images: tuple[Any, ...]
    copied: int

    @property
    def last(self) -> int:
        """The place of the last of them."""
        return int(self.halves["place"][-1])

    @property
    def size(self) -> int:
        """The bytes of memory that it takes, without what lies in the mapped file."""
        return self.halves.nbytes + self.keys.nbytes + self.copied


@dataclass(frozen=True, slots=True)
class UnreadableChange:
    """Row changes that do not fit the table as it is known, or are not at hand; `places`: behind each group of them,
    ascending.
    """

    places: npt.NDArray[np.int64]
    error: SchemaError | DataLossError

    @property
    def last(self) -> int:
        """The place of the last of them."""
        return int(self.places[-1])

    def between(self, behind: int, last: int) -> bool:
        """Tell whether one of them lies behind a place, and up to another one."""
        return bool(np.searchsorted(self.places, behind, "right") < np.searchsorted(self.places, last, "right"))


class RowImageReader:
    """A reader of ranges, one after the other. `table_maps`: the bodies of the different ones met so far, which `slot`
    of the halves counts.
    """

    def __init__(
        self,
        tables: Mapping[TableName, TableKey],
        schemas: Mapping[TableName, TableSchema],
        defined: Mapping[TableName, TableSchema],
    ) -> None:
        """Make it. `defined`: the tables with all their columns; images are made without those that `schemas` lack."""
        self._schemas = dict(defined)
        self._left_out = {
            name: {column_key(one.name) for one in defined[name].columns}.difference(
                column_key(one.name) for one in schema.columns
            )
            for name, schema in schemas.items()
        }
        self._keys = {
            name: tuple(schemas[name].columns[column] for column in key.columns) for name, key in tables.items()
        }
        self._maps = TableCache(self, (), ValuePolicy())
        self._numbers: dict[bytes, int] = {}  # by content: a server gives a table another id again and again
        self.table_maps: list[bytes] = []

    def resolve(self, table_map: TableMapEvent) -> TableTarget | None:
        """Say what rows of a table are read with."""
        name = (table_map.database, table_map.table)
        return TableTarget(self._schemas[name]) if name in self._keys else None

    def read(
        self, found: Scan, places: npt.NDArray[np.int64]
    ) -> Iterator[tuple[TableName, HalfSegment | UnreadableChange]]:
        """Yield what a range holds of each table. `places`: where each of its groups ends.

        Raises:
            ProtocolError: images that do not fit their table map, or cannot be inflated.
        """
        if not len(found.events):
            return
        slots = self._maps.slots(found)
        for name in sorted({(table.database, table.table) for table in slots.names} & self._keys.keys()):
            unfit: dict[int, SchemaError] = {}
            keys = RowKeys(slots, {name: self._keys[name]}.get, unfit)
            for slot, error in unfit.items():
                groups = found.events["group"][found.events["slot"] == slot]
                if len(groups):
                    yield name, UnreadableChange(np.unique(places[groups]), error)
            work = np.flatnonzero(keys.asked[found.events["slot"]]).astype(np.uint32)
            if len(work):
                segment = _segment(found, slots, work, keys, places, self._wants(slots, keys, name))
                self._number_maps(segment, found)
                yield name, segment

    def _wants(self, slots: SlotTable, keys: RowKeys, name: TableName) -> list[npt.NDArray[np.uint8] | None]:
        """Return, per table map, the bitmap of the columns that images are wanted with; None: all."""
        left_out = self._left_out[name]
        if not left_out:
            return [None] * len(slots.records)
        wants: list[npt.NDArray[np.uint8] | None] = []
        for slot, asked in enumerate(keys.asked.tolist()):
            if not asked:
                wants.append(None)
                continue
            table = slots.table(slot)
            kept = np.ones(len(table.table_map.columns), np.bool_)
            for number, plan in enumerate(table.layout.columns):
                kept[number] = column_key(plan.name) not in left_out
            wants.append(np.packbits(kept, bitorder="little"))
        return wants

    def _number_maps(self, segment: HalfSegment, found: Scan) -> None:
        numbers = np.zeros(len(found.maps), np.int64)
        for slot in np.unique(segment.halves["slot"]).tolist():
            body = bytes(found.table_map_body(slot))
            numbers[slot] = self._numbers.setdefault(body[ID_AND_FLAGS:], len(self._numbers))
            if numbers[slot] == len(self.table_maps):
                self.table_maps.append(body)
        segment.halves["slot"] = numbers[segment.halves["slot"]]


def _segment(
    found: Scan,
    slots: SlotTable,
    work: npt.NDArray[np.uint32],
    keys: RowKeys,
    places: npt.NDArray[np.int64],
    wants: Sequence[npt.NDArray[np.uint8] | None],
) -> HalfSegment:
    slots.load(found, work, walk_only=True)
    found, copied = _plain(found, slots, work)
    values = np.zeros((2, keys.most), KeyValueRecord.dtype)
    wanted = np.array([0 if bitmap is None else address(bitmap) for bitmap in wants], np.int64)
    totals, run = np.zeros((), HalfTotals.dtype), np.zeros((), d.RunState.dtype)
    halves: Records = np.empty(0, HalfRecord.dtype)
    room: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
    for writes in (False, True):
        if writes:
            halves = np.empty(int(totals["halves"]), HalfRecord.dtype)
            room = np.empty(int(totals["keys"]) + 1, np.uint8)
        status = find_row_halves(
            *(address(found.data), address(found.events), address(work), len(work), address(slots.records)),
            *(address(keys.records), address(wanted), address(places), address(values[0]), address(values[1])),
            *(address(halves) if writes else 0, address(room), address(totals), address(run)),
        )
        if status != d.DONE:
            raise run_fault(status, run, found, slots)
    used = room[: int(totals["keys"])].copy()  # there was room for longer keys
    inside = (halves["image"] >= address(room)) & (halves["image"] < address(room) + len(room))
    halves["image"][inside] += address(used) - address(room)  # images that lack columns, and those made whole
    halves["key"] += address(used) - address(room)
    images = (*copied, *((found.data,) if len(copied) < len(work) else ()))
    size = sum(part.nbytes for part in copied) + (found.data.nbytes if found.expansion is not None else 0)
    return HalfSegment(halves, used, images, size)


def _plain(found: Scan, slots: SlotTable, work: npt.NDArray[np.uint32]) -> tuple[Scan, list[npt.NDArray[np.uint8]]]:
    """Return the scan with records of these events that point at plain images, and the copies that they point at."""
    forms, starts, ends = (found.events[field][work] for field in ("form", "images", "end"))
    small = int((ends - starts).sum()) <= COPIED_BYTES
    chosen = np.arange(len(work)) if small else np.flatnonzero(forms != r.FORM_PLAIN)
    if not len(chosen):
        return found, []
    found = replace(found, events=found.events.copy())
    copies = []
    for at in chosen.tolist():
        event = int(work[at])
        images = found.data[int(starts[at]) : int(ends[at])]
        if forms[at] == r.FORM_COMPRESSED:
            images = _inflated(images, found, slots, event)
        elif forms[at] == r.FORM_PARTIAL:
            raise UnsupportedEventError(
                "PARTIAL_UPDATE_ROWS in a relay log of MariaDB", offset=found.origin(int(found.events["start"][event]))
            )
        else:
            images = images.copy()
        copies.append(images)
        begin = address(images) - address(found.data)
        found.events["images"][event], found.events["end"][event] = begin, begin + len(images)
    return found, copies


def _inflated(images: npt.NDArray[np.uint8], found: Scan, slots: SlotTable, event: int) -> npt.NDArray[np.uint8]:
    try:
        return np.frombuffer(inflate(images.data), np.uint8)
    except ProtocolError as error:
        name = slots.name(int(found.events["slot"][event]))
        offset = found.origin(int(found.events["start"][event]))
        raise type(error)(f"{name}: {error.placeless}", offset=offset, hint=error.hint) from None
