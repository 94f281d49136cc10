"""Reader of row changes in a relay log range, as before and after images with their keys, for a backfill window.

`RowImageReader.read` takes a scan of the range and yields an `ImageSegment` per table. Large images stay in the mapped
file; small images and compressed ones are copied. If a table map does not fit the table, the reader yields an
`UnreadableChange`, whose error is raised when a caller needs the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from replica.errors import ProtocolError, UnsupportedEventError
from replica.native.arrays import address
from replica.protocol.compression import inflate
from replica.protocol.rows.table_map import parse_table_map
from replica.rows.decode import records as d
from replica.rows.decode.kernels.kernel_frontier import KeyValueRecord
from replica.rows.decode.open_rows import RowKeys
from replica.rows.decode.slots import TableCache
from replica.rows.decode.writers import run_fault
from replica.rows.scan import records as r
from replica.rows.scan.scan import ID_AND_FLAGS
from replica.rows.tables.layout import TableTarget
from replica.rows.types.types import ValuePolicy
from replica.schema.text.naming import column_key
from replica.snapshot.images.kernel_partial_rows import HalfRecord
from replica.snapshot.images.kernel_row_halves import HalfTotals, find_row_halves

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from replica.errors import DataLossError, SchemaError
    from replica.native.record import Records
    from replica.protocol.rows.table_map import ColumnDef, TableMapEvent
    from replica.rows.decode.slots import SlotTable
    from replica.rows.scan.scan import Scan
    from replica.schema.known_tables import TableName
    from replica.schema.table import TableSchema
    from replica.snapshot.rows.row_block import TableKey

COPIED_BYTES: Final = 1 << 20
"""Size up to which a table's images are copied out of the mapped file. Each mapping covers a megabyte or more, and the
kernel allows a process 65 530 mappings.
"""


@dataclass(frozen=True, slots=True)
class ImageSegment:
    """Halves of one table in one range: HalfRecords, in order.

    `keys` and `images` own the memory that the halves point into. `copied`: bytes of images outside the mapped file.
    """

    halves: Records
    keys: npt.NDArray[np.uint8]
    images: tuple[Any, ...]
    copied: int

    @property
    def last(self) -> int:
        """Location of the last half."""
        return int(self.halves["place"][-1])

    @property
    def size(self) -> int:
        """Bytes of memory in use, without the mapped file."""
        return self.halves.nbytes + self.keys.nbytes + self.copied


@dataclass(frozen=True, slots=True)
class UnreadableChange:
    """Row changes that do not fit the known table, or are not available.

    `places`: int64, ascending; the location after each group with such a change.
    """

    places: npt.NDArray[np.int64]
    error: SchemaError | DataLossError

    @property
    def last(self) -> int:
        """Location of the last change."""
        return int(self.places[-1])

    def between(self, after: int, last: int) -> bool:
        """Return True if a change lies after `after` and at or before `last`."""
        return bool(np.searchsorted(self.places, after, "right") < np.searchsorted(self.places, last, "right"))


class RowImageReader:
    """Reader of consecutive ranges. `table_maps`: bodies of the distinct table maps so far, indexed by `slot` of the
    halves.
    """

    def __init__(
        self,
        tables: Mapping[TableName, TableKey],
        schemas: Mapping[TableName, TableSchema],
        defined: Mapping[TableName, TableSchema],
    ) -> None:
        """Create a reader.

        Args:
            tables: Key of each table.
            schemas: Columns that are read of each table. Images are written without all other columns.
            defined: Tables with all columns, as row images have them.
        """
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
        self._numbers: dict[bytes, int] = {}  # by content, because a table's id on the server changes
        self.table_maps: list[bytes] = []

    def resolve(self, table_map: TableMapEvent) -> TableTarget | None:
        """Return the decode target of a table; None if the table is not read."""
        name = (table_map.database, table_map.table)
        return TableTarget(self._schemas[name]) if name in self._keys else None

    def read(
        self, found: Scan, places: npt.NDArray[np.int64]
    ) -> Iterator[tuple[TableName, ImageSegment | UnreadableChange]]:
        """Yield the halves or the unreadable changes of each table in a range. `places`: int64, end of each event
        group.

        Raises:
            ProtocolError: Images do not fit their table map, or cannot be inflated.
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
            work = np.flatnonzero(keys.wanted[found.events["slot"]]).astype(np.uint32)
            if len(work):
                segment = _segment(found, slots, work, keys, places, self._wants(slots, keys, name))
                self._number_maps(segment, found)
                yield name, segment

    def _wants(self, slots: SlotTable, keys: RowKeys, name: TableName) -> list[npt.NDArray[np.uint8] | None]:
        """Return, for each table map, the bitmap of the columns to write; None for all."""
        left_out = self._left_out[name]
        if not left_out:
            return [None] * len(slots.records)
        wants: list[npt.NDArray[np.uint8] | None] = []
        for slot, wanted in enumerate(keys.wanted.tolist()):
            if not wanted:
                wants.append(None)
                continue
            table = slots.table(slot)
            kept = np.ones(len(table.table_map.columns), np.bool_)
            for number, plan in enumerate(table.layout.columns):
                kept[number] = column_key(plan.name) not in left_out
            wants.append(np.packbits(kept, bitorder="little"))
        return wants

    def _number_maps(self, segment: ImageSegment, found: Scan) -> None:
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
) -> ImageSegment:
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
    used = room[: int(totals["keys"])].copy()  # the buffer has room for the longest possible keys
    inside = (halves["image"] >= address(room)) & (halves["image"] < address(room) + len(room))
    halves["image"][inside] += address(used) - address(room)  # partial images, and completed ones
    halves["key"] += address(used) - address(room)
    images = (*copied, *((found.data,) if len(copied) < len(work) else ()))
    size = sum(part.nbytes for part in copied) + (found.data.nbytes if found.expansion is not None else 0)
    return ImageSegment(halves, used, images, size)


def _plain(found: Scan, slots: SlotTable, work: npt.NDArray[np.uint32]) -> tuple[Scan, list[npt.NDArray[np.uint8]]]:
    """Return a scan whose records of these events point at plain images, and the copies that own those images."""
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


@lru_cache(maxsize=256)
def same_images(ours: bytes, theirs: bytes) -> bool:
    """Return True if row images under table map `theirs` have the same meaning under `ours`, which has full
    metadata.
    """
    one, two = parse_table_map(ours), parse_table_map(theirs)
    return (
        (one.database, one.table) == (two.database, two.table)
        and len(one.columns) == len(two.columns)
        and all(_same_column(declared, logged) for declared, logged in zip(one.columns, two.columns, strict=True))
    )


def _same_column(declared: ColumnDef, logged: ColumnDef) -> bool:
    if (declared.type, declared.metadata) != (logged.type, logged.metadata):
        return False
    fields = ("name", "unsigned", "collation", "labels", "geometry")
    return all(getattr(logged, field) in (None, getattr(declared, field)) for field in fields)


@lru_cache(maxsize=256)
def same_layout(one: bytes, other: bytes) -> bool:
    """Return True if two table maps of one table encode values in the same way."""
    left, right = parse_table_map(one).columns, parse_table_map(other).columns
    return [(column.type, column.metadata) for column in left] == [(column.type, column.metadata) for column in right]
