"""Targets of the fuzzing: all that a reader of binlogs does with events. Errors other than our own pass through."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from replica.errors import ReplicaError
from replica.native.arrays import address
from replica.protocol.constants import BINLOG_MAGIC, ChecksumAlgorithm, EventType
from replica.protocol.events.decode import RowsEvent, TableMapEvent, TransactionPayloadEvent, decode
from replica.protocol.rows.rows_event import ROWS_EVENTS
from replica.protocol.rows.table_map import parse_table_map
from replica.readers.files.binlog import open_binlog
from replica.rows.decode.decode import DecodeOptions, RangeDecoder, TableTarget, count_rows
from replica.rows.decode.images import ARENA_BYTES, Arena
from replica.rows.scan.scan import scan
from replica.rows.scan.xa import find_xa_groups
from replica.rows.tables.layout import compile_layout
from replica.rows.tables.match import unnamed_schema
from replica.rows.types.types import ValuePolicy
from tests.kit.oracle.images import plain_rows
from tests.kit.oracle.rows import read_rows
from tools.fuzz.guarded import Guarded

if TYPE_CHECKING:
    import random

    import numpy as np
    import numpy.typing as npt

    from replica.protocol.wire import Buffer
    from tools.fuzz.corpus import Group

LIMIT = 64 << 20
"""Bytes that a transaction in a payload may have here; the worker has not much more memory."""
POLICY = ValuePolicy()
_TABLE_MAP = bytes([EventType.TABLE_MAP])


class _Everything:
    """Wants every table, and reads it without names where it has none."""

    def resolve(self, table_map: TableMapEvent) -> TableTarget:
        return TableTarget(unnamed_schema(table_map))


class _GuardedArena(Arena):
    """Prepared images between walls, one event at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._guarded = Guarded(4 * ARENA_BYTES)
        self._filled = False

    def reset(self) -> None:
        super().reset()
        self._filled = False

    @property
    def full(self) -> bool:
        return self._filled

    def put(self, images: Buffer) -> int:
        self._filled = True
        if len(images) > self._guarded.capacity:
            return super().put(images)
        return address(self._guarded.put(memoryview(images)))


class Targets:
    """`run` does all of it with the events of a group; `deep` says how much."""

    def __init__(self) -> None:
        self._range = Guarded(4 << 20)
        self._everything = _Everything()
        self._options = DecodeOptions(shape="variant", reuse_buffers=True)
        self._folder = tempfile.TemporaryDirectory(prefix="fuzz-")
        self._file = Path(self._folder.name) / "binlog"
        self.fresh()

    def fresh(self) -> None:
        """Forget the tables seen so far: a decoder keeps as many as a server has, not as many as damage makes."""
        self._variant = RangeDecoder(self._everything, self._options)
        self._variant._arena = _GuardedArena()

    def run(self, events: list[bytes], group: Group, rng: random.Random) -> None:
        self._decode(events, group)
        data = b"".join(events)
        if len(data) > self._range.capacity:
            return
        place = self._range.put(data, at_start=rng.random() < 0.25)
        self._kernels(place, self._variant)
        if rng.random() < 0.2:
            self._typed(place, rng)
        if rng.random() < 0.2:
            self._counts(place)
        if rng.random() < 0.02:
            self._files(data, group)

    def _decode(self, events: list[bytes], group: Group) -> None:
        maps: dict[int, TableMapEvent] = {}
        whole = set(map(id, group.events))
        damaged = any(id(raw) not in whole and raw[4:5] == _TABLE_MAP for raw in events)
        for raw in events:
            # What is whole is decoded only where something damaged is read with it.
            if id(raw) in whole and not (raw[4:5] == _TABLE_MAP or (damaged and raw[4] in ROWS_EVENTS)):
                continue
            try:
                event = decode(raw, group.description, checksum=ChecksumAlgorithm.NONE)
                if isinstance(event, TableMapEvent):
                    maps[event.table_id] = event
                elif isinstance(event, TransactionPayloadEvent):
                    event.events(limit=LIMIT)
                elif isinstance(event, RowsEvent) and event.table_id in maps:
                    table_map = maps[event.table_id]
                    layout = compile_layout(table_map, unnamed_schema(table_map), None, POLICY)
                    for _ in read_rows(plain_rows(event, table_map.columns, layout), layout, POLICY):
                        pass
            except ReplicaError:
                continue

    def _kernels(self, place: npt.NDArray[np.uint8], decoder: RangeDecoder) -> None:
        try:
            for _ in decoder.decode(place, checksum=False, unprepared=[]):
                pass
        except ReplicaError:
            return

    def _counts(self, place: npt.NDArray[np.uint8]) -> None:
        try:
            count_rows(place, self._everything, checksum=False)
            find_xa_groups(place, checksum=False)
        except ReplicaError:
            return

    def _typed(self, place: npt.NDArray[np.uint8], rng: random.Random) -> None:
        """The first table's columns in a typed shape."""
        try:
            found = scan(place, checksum=False)
            if not len(found.maps):
                return
            table_map = parse_table_map(found.table_map_body(0), mysql=found.is_mysql)
            output = compile_layout(table_map, unnamed_schema(table_map), None, POLICY).outputs
            options = DecodeOptions(
                shape=rng.choice(("envelope", "flat")),
                invalid_dates=rng.choice(("null", "error", "text")),
                invalid_text=rng.choice(("replace", "error")),
                batch_rows=rng.choice((2, 16_384)),
            )
            policy = options.policy
            output = compile_layout(table_map, unnamed_schema(table_map), None, policy).outputs
            decoder = RangeDecoder(self._everything, options, output)
            decoder._arena = _GuardedArena()
            for _ in decoder.decode(place, checksum=False, unprepared=[]):
                pass
        except ReplicaError:
            return

    def _files(self, data: bytes, group: Group) -> None:
        """As a file, with and without going around damage."""
        description = group.events[0] if group.events[0][4] == EventType.FORMAT_DESCRIPTION else b""
        self._file.write_bytes(BINLOG_MAGIC + description + data)
        for skip in (False, True):
            try:
                with open_binlog(str(self._file)) as binlog:
                    for _ in binlog.ranges(max_bytes=4096, skip_damaged=skip):
                        pass
            except ReplicaError:
                continue
