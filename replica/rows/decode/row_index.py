"""Borders where a large event group may be cut, and the number of row changes before each.

`index_rows` makes a `RowIndex` from the bytes of one group. A border is between rows events, and a group has at most
about 16 K borders, whatever its size. Each border stores the number of rows before it, which is the ordinal of the next
row. It also stores the table maps of the running statement and the offset of its text, which a reader needs to start
there. The group is walked once, without decoding values; images of compressed events are inflated. A group with events
that contain other events (large events of 12.3, sent in fragments) has no index (None).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from replica.protocol.constants import HEADER_LENGTH, ChecksumAlgorithm, EventType
from replica.protocol.events.binlog_file import encode_event
from replica.protocol.gtid import Gtid
from replica.rows.decode.decode import add_counts, selecting
from replica.rows.decode.slots import TableCache
from replica.rows.scan import records as r
from replica.rows.scan.scan import BLOCK_EVENTS, EventBlock, event_blocks
from replica.rows.types.types import ValuePolicy

if TYPE_CHECKING:
    import numpy.typing as npt

    from replica.rows.scan.scan import Bytes, Scan
    from replica.rows.scan.windows import Passed
    from replica.rows.tables.layout import TableResolver

    Ints = npt.NDArray[np.int64]
    Maps = tuple[tuple[int, int], ...]  # (table id, slot)

BORDERS: Final = 1 << 14
"""Maximal number of borders of a group.

In a group of 1 GB, the borders are 64 KB apart and take 1 MB of memory. Partitions are larger, some megabytes each.
"""
LEAST_BORDER_BYTES: Final = 8 << 10
"""Minimal distance of borders: the server's default size of rows events (binlog_row_event_max_size)."""
_ID_AND_FLAGS: Final = np.arange(HEADER_LENGTH, HEADER_LENGTH + 7)  # of a rows event: six bytes, and the low flags
_STATEMENT_ENDS: Final = 1
_TABLE_MAP_FLAGS: Final = b"\1\0"  # as the server sets them


@dataclass(frozen=True, slots=True)
class RowIndex:
    """The borders of one group. Arrays have one entry per border. All offsets count from the group's first byte.

    Attributes:
        gtid: The group's GTID.
        ending: One of ENDS_*.
        size: Bytes of the group.
        first_event_end: Offset after the GTID event.
        last_event: Offset of the event that ends the group; the event extends to `size`.
        total_rows: Row changes of the group, of all tables.
        total_selected: Row changes of selected tables.
        offsets: int64, offsets of the borders.
        rows: int64, row changes before the border, of all tables.
        selected: int64, row changes of selected tables before the border.
        statements: int64, offset of the text event of the running statement, 0 without one.
        statement_ends: int64, offset after that event.
        head: int64, index into `heads`.
        heads: Table maps of running statements, encoded as events.
    """

    gtid: Gtid
    ending: int
    size: int
    first_event_end: int
    last_event: int
    total_rows: int
    total_selected: int
    offsets: Ints
    rows: Ints
    selected: Ints
    statements: Ints
    statement_ends: Ints
    head: Ints
    heads: tuple[bytes, ...]


def index_rows(
    data: Bytes,
    *,
    checksum: bool,
    resolver: TableResolver,
    border_bytes: int | None = None,
    block_events: int = BLOCK_EVENTS,
    on_progress: Passed | None = None,
) -> RowIndex | None:
    """Walk exactly one group and return its index.

    Args:
        data: The bytes of the group, from the GTID event to the end of its last event.
        checksum: True if events carry a CRC32.
        resolver: Selects the tables.
        border_bytes: Distance of the borders in bytes; by default the distance that BORDERS borders need.
        block_events: Rows events held in memory at once.
        on_progress: Called with the offset up to which the walk has passed.

    Returns:
        None if the group has events that contain other events.

    Raises:
        ProtocolError: Damaged events, or rows without their table map, as in the decoder.
    """
    walk = _Walk(resolver, checksum=checksum, every=border_bytes or max(len(data) // BORDERS, LEAST_BORDER_BYTES))
    block = None
    for block in event_blocks(data, checksum=checksum, block_events=block_events, on_progress=on_progress):
        walk.take(block)
    return None if block is None or not block.group_ended else walk.result(block.found)


class _Walk:
    def __init__(self, resolver: TableResolver, *, checksum: bool, every: int) -> None:
        self._every = every
        self._checksum = ChecksumAlgorithm.CRC32 if checksum else ChecksumAlgorithm.NONE
        self._tables = TableCache(resolver, None, ValuePolicy())
        self._rows = self._selected = self._end = 0
        self._parts: list[Ints] = []
        self._heads: dict[Maps, int] = {(): 0}

    def take(self, block: EventBlock) -> None:
        """Add one block of rows events."""
        found, events = block.found, block.found.events
        if not len(events):
            return
        slots = self._tables.slots(found)
        starts = events["start"]
        lengths = found.data[starts[:, None] + np.arange(9, 13)].view("<u4").ravel()
        ends = starts + lengths
        rows = np.zeros(len(events), np.int64)
        numbered = events.copy()
        numbered["group"][:] = np.arange(len(events))
        add_counts(replace(found, events=numbered), slots, np.arange(len(events), dtype=np.uint32), rows)
        before = self._rows + rows.cumsum()
        selected = self._selected + np.where(selecting(found, slots), rows, 0).cumsum()
        granule = ends // self._every
        borders = np.flatnonzero(granule != np.concatenate(([self._end // self._every], granule[:-1])))
        heads = self._table_maps(block, borders)
        stopped = heads < 0
        texts = np.column_stack([events[field][borders] for field in ("sql", "sql_end")])
        texts[stopped | (texts[:, 0] == 0)] = 0
        texts += np.where(texts > 0, [[-HEADER_LENGTH, found.trailer]], 0)
        self._parts.append(np.column_stack((ends, before, selected))[borders].T)
        self._parts[-1] = np.vstack((self._parts[-1], texts.T, np.maximum(heads, 0)))
        self._rows, self._selected, self._end = int(before[-1]), int(selected[-1]), int(ends[-1])

    def _table_maps(self, block: EventBlock, borders: Ints) -> Ints:
        """Return, per border, the index of its table maps in `_heads`; -1 if a statement ends there.

        A border gets the table maps that the rest of its statement uses. If the statement continues after the block,
        the rest is unknown, and the border gets all table maps of the statement so far.
        """
        events = block.found.events
        fields = block.found.data[events["start"][:, None] + _ID_AND_FLAGS].astype(np.int64)
        stops = fields[:, 6] & _STATEMENT_ENDS
        table_ids = (fields[:, :6] << (8 * np.arange(6))).sum(axis=1)
        stop_at = np.flatnonzero(stops)
        after = np.searchsorted(stop_at, borders)  # the first end of a statement at or after the border
        ends_at = np.append(stop_at, len(events))[after]
        first, code = _distinct(table_ids, events["slot"])
        pairs = np.column_stack((table_ids, events["slot"]))[first]
        runs = np.flatnonzero(ends_at != borders)
        needed: list[list[tuple[int, int, int]]] = [[] for _ in range(len(borders))]
        order = np.argsort(code, kind="stable")
        uses = np.split(order, np.cumsum(np.bincount(code))[:-1])
        for used, (table_id, slot) in zip(uses, pairs.tolist(), strict=True) if len(runs) else ():
            places = np.append(used, len(events))
            following = places[np.searchsorted(places, borders[runs], side="right")]
            for at in np.flatnonzero((following <= ends_at[runs]) & (following < len(events))).tolist():
                needed[runs[at]].append((int(following[at]), table_id, slot))
        result = np.full(len(borders), -1, np.int64)
        for at in runs.tolist():
            maps: dict[int, int] = {}
            for _, table_id, slot in sorted(needed[at]):
                maps.setdefault(table_id, slot)
            if ends_at[at] == len(events):
                for table_id, slot in block.active.tolist():
                    maps.setdefault(table_id, slot)
            result[at] = self._heads.setdefault(tuple(sorted(maps.items())), len(self._heads))
        return result

    def result(self, found: Scan) -> RowIndex:
        group = found.groups[0]
        size = len(found.data)
        columns = np.hstack(self._parts) if self._parts else np.empty((6, 0), np.int64)
        columns = columns[:, columns[0] < self._end]  # no rows follow the last rows event
        domain, server, sequence = (int(group[f]) for f in ("domain", "server", "sequence"))
        dropped = group["ending"] == r.ENDS_ROLLBACK
        return RowIndex(
            gtid=Gtid(domain, server, sequence & 0xFFFFFFFFFFFFFFFF),
            ending=int(group["ending"]),
            size=size,
            first_event_end=_length(found, 0),
            last_event=self._last_event(found),
            total_rows=0 if dropped else self._rows,
            total_selected=0 if dropped else self._selected,
            **dict(zip(("offsets", "rows", "selected", "statements", "statement_ends", "head"), columns, strict=True)),
            heads=tuple(self._events(found, maps) for maps in self._heads),
        )

    def _last_event(self, found: Scan) -> int:
        at = self._end
        while (following := at + _length(found, at)) < len(found.data):
            at = following
        return at

    def _events(self, found: Scan, maps: Maps) -> bytes:
        """Return table maps encoded as the server would send them."""
        return b"".join(
            encode_event(
                EventType.TABLE_MAP,
                table_id.to_bytes(6, "little") + _TABLE_MAP_FLAGS + bytes(found.table_map_body(slot)[8:]),
                server_id=int(found.groups["server"][0]),
                checksum=self._checksum,
            )
            for table_id, slot in maps
        )


def _distinct(table_ids: Ints, slots: Ints) -> tuple[Ints, Ints]:
    """Return the first index of each distinct pair, and per entry the number of its pair."""
    _, number = np.unique(table_ids, return_inverse=True)
    _, first, code = np.unique(number * (int(slots.max()) + 1) + slots, return_index=True, return_inverse=True)
    return first, code


def _length(found: Scan, at: int) -> int:
    return int.from_bytes(found.data[at + 9 : at + 13].tobytes(), "little")
