"""A whole table read as a query reads it that begins with its tables, without Spark: what the source process does, and
what the tasks do up to their Arrow batches, in one process.

A replica receives the stream, connections read chunks, batches are moved to a position and written with an fsync; tasks
decode their parts meanwhile. No commit is held back here, so that a place counts as committed after AGE_S; a query
waits ten seconds, which are no one's work.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replica.live.embedded import EmbeddedReplica
from replica.protocol.rows.table_map import parse_table_map
from replica.rows.decode.decode import DecodeOptions, RangeDecoder
from replica.rows.tables.layout import compile_layout
from replica.rows.types.types import ValuePolicy
from replica.snapshot.check.catalog import describe_table
from replica.snapshot.connection.connection import TableConnection
from replica.snapshot.frontier import Frontier
from replica.snapshot.pace import Pace
from replica.snapshot.rows.table_map import table_map_body
from replica.snapshot.snapshot import TableSnapshot
from streaming_source.rows.partition import MappedRange, Surroundings
from streaming_source.rows.reader import BATCH_ROWS
from streaming_source.selection.resolver import SelectedTables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from replica.options.config import ReplicaConfig
    from replica.schema.table import TableSchema
    from replica.snapshot.spool.batches import SpoolPart

AGE_S, POLL_S = 0.2, 0.002


def flat_decoder(schema: TableSchema) -> RangeDecoder:
    """The decoder that a task has for this table alone, in the flat shape."""
    table_map = parse_table_map(table_map_body(schema))
    outputs = list(compile_layout(table_map, schema, None, ValuePolicy()).outputs)
    tables = SelectedTables((schema.name,), {})
    return RangeDecoder(tables, DecodeOptions(shape="flat", batch_rows=BATCH_ROWS, reuse_buffers=True), outputs)


class WholeTable:
    """One table of a server; `once` reads it from its first row to its last."""

    def __init__(self, config: ReplicaConfig, name: tuple[str, str], connections: int) -> None:
        self._config = config
        self._name = name
        self._connections = connections
        with contextlib.closing(TableConnection.open(config)) as connection:
            table = describe_table(connection, name)
        if table is None:
            raise SystemExit(f"there is no table {name}")
        self._schema = table.schema
        self._decoders: list[RangeDecoder] = []

    def once(self, measured: Callable[[Callable[[], int]], dict[str, Any]]) -> dict[str, Any]:
        """Read it, of which `measured` gets everything behind the first chunk, a thousandth of the table."""
        with (
            tempfile.TemporaryDirectory(prefix="bench-snapshot-") as folder,
            EmbeddedReplica(self._config, Path(folder) / "relay") as replica,
            ThreadPoolExecutor(self._connections) as tasks,
        ):
            replica.start(None)
            pace = Pace(connections=self._connections)
            snapshot = TableSnapshot(self._config, replica, self._wanted, pace, Path(folder) / "rows", age_s=AGE_S)
            with contextlib.closing(snapshot):
                snapshot.start(Frontier())
                while not snapshot.ready():
                    time.sleep(POLL_S)
                return measured(lambda: self._drain(snapshot, replica, tasks))

    def _drain(self, snapshot: TableSnapshot, replica: EmbeddedReplica, tasks: ThreadPoolExecutor) -> int:
        frontier = Frontier()
        found = 0
        running: Iterable[int] = ()
        while not frontier.finished:
            v = replica.head()
            advance = snapshot.advance(frontier, v)
            if advance is None:
                time.sleep(POLL_S)
                continue
            parts = snapshot.parts(frontier, advance.frontier, v)
            found += sum(running)  # the batch before is committed when its tasks have ended
            snapshot.release(frontier)
            running, frontier = tasks.map(self._decode, parts), advance.frontier
        return found + sum(running)

    def _decode(self, part: SpoolPart) -> int:
        """Do what a task does; each has a decoder of its own."""
        decoder = self._decoders.pop() if self._decoders else flat_decoder(self._schema)
        around = Surroundings(part.head, part.tail)
        data = MappedRange(str(part.path), part.start, part.end, checksum=False, around=around).data()
        rows = sum(batch.rows for batch in decoder.decode(data, checksum=False))
        self._decoders.append(decoder)
        return rows

    def _wanted(self, database: str, table: str) -> bool:
        return (database, table) == self._name
