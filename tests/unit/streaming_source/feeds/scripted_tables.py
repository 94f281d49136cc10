"""The real reading of tables over a real relay log, without a server: its threads and its watch do a step when told.

`ScriptedTables` is a `TableSnapshot` whose watch names a place that the test gives, whose threads take and put chunks
when the test says, and whose server answers from what a `TableFeed` knows. All that it needs of the relay log it reads
there, so that a file that was removed too early is an error, as in a query.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from replica.options.config import ReplicaConfig
from replica.options.values import Endpoint
from replica.rows.decode.frontier import DeliveredKeys, OpenTable
from replica.schema.table import TableSchema
from replica.snapshot.chunks.names import SnapshotNames
from replica.snapshot.frontier import NOTHING
from replica.snapshot.pace import Pace
from replica.snapshot.rows.chunk import ReadTable, TableChunk
from replica.snapshot.rows.row_block import TableKey
from replica.snapshot.snapshot import TableSnapshot
from replica.snapshot.watermark.watch import Seen
from streaming_source.planning.tables.open_reading import SharedLog
from tests.kit.binlog.rows import Column, table_map
from tests.unit.snapshot.blocks import block_of
from tests.unit.streaming_source.feeds.table_feed import KEY, FakeTables, TableFeed

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.snapshot.chunks.table_reading import TableReading
    from replica.snapshot.frontier import Frontier

HOST = Endpoint("127.0.0.1", 3306)
CHUNK_ROWS = 9
CONFIG = ReplicaConfig.parse({"host": HOST.host, "port": HOST.port, "user": "repl", "password": "secret"})


class ScriptedWatch:
    """The watch, which knows nothing before it is given a place."""

    host = HOST
    waits_for = loaded = ""

    def __init__(self) -> None:
        self.seen: Seen | None = None
        self.on_start: Callable[[], None] = lambda: None

    def start(self) -> None:
        self.on_start()

    def keep_from(self) -> RelayLocation | None:
        return None if self.seen is None else self.seen.low.location

    def see(self, lower: RelayHead | None) -> None:
        self.seen = None if lower is None else Seen(lower, HOST)

    def check(self) -> None: ...

    def close(self) -> None: ...


class ScriptedTables(FakeTables):
    """What a planner asks, answered by a real `TableSnapshot`; keys of tables are those of `FakeTables`."""

    def __init__(self, feed: TableFeed) -> None:
        super().__init__(feed)
        self.watch = ScriptedWatch()
        self._taken: list[tuple[TableReading, int, Seen]] = []
        view = SharedLog(feed.folder)
        wanted = lambda database, table: (database, table) in self.names  # noqa: E731
        snapshot: Any = TableSnapshot(CONFIG, view, wanted, Pace(table_by_table=True), feed.spool)
        snapshot._watch = self.watch
        snapshot._threads = SimpleNamespace(
            start=lambda: None, close=lambda: None, check=lambda: None, waits_for="", rows=0, size=0
        )
        snapshot._names = SnapshotNames(view, snapshot._list, snapshot._wanted, self._answer, None)
        snapshot._ranges = SimpleNamespace(created_since=snapshot._ranges.created_since, make=self._lost)
        self.snapshot: TableSnapshot = snapshot

    # -- what threads do ---------------------------------------------------------------------------------------------

    def take(self) -> bool:
        """Let a thread take a table, with what snapshots see now; return whether there was one."""
        seen = self.watch.seen
        table = None if seen is None else self.snapshot._list.take(seen.low.location, 0)
        if table is None or seen is None:
            return False
        self._taken.append((table, table.life, seen))
        return True

    def put(self) -> bool:
        """Let the thread that took a table first read its next chunk, as it is now."""
        if not self._taken:
            return False
        table, life, seen = self._taken.pop(0)
        head = self._feed.head()
        last = head.position.get(0)
        values = [v for v in self._feed.state(table.name, last.seq_no if last else 0) if _behind(v, table.kept)]
        values, whole = values[:CHUNK_ROWS], len(values) <= CHUNK_ROWS
        end = None if whole else _kept(values[-1])
        block = block_of(values, table_map=table_map(1, [Column("a", 3)], table=table.name[1]))
        schema = TableSchema(database=table.name[0], table=table.name[1], columns=(KEY,), primary_key=(0,))
        chunk = TableChunk(
            ReadTable(schema, TableKey("PRIMARY", (0,), ordered=True)),
            *(table.kept, end, seen.low.location, head.position, block.rows, block.rows * 5),
            (self.snapshot._spool.store(block),),
        )
        self.snapshot._list.put(table, life, chunk)
        return True

    # -- what the planner asks ---------------------------------------------------------------------------------------

    def start(self, frontier: Frontier) -> None:
        super().start(frontier)
        self.snapshot.start(frontier)

    def delivered(self, frontier: Frontier) -> DeliveredKeys:
        opened = tuple(
            OpenTable(name, (KEY,), (_value(kept) + (1 << 31)).to_bytes(4, "big"))
            for name, kept in frontier.open
            if kept
        )
        pending = tuple(name for name, kept in frontier.open if not kept)
        return DeliveredKeys(("\U0010ffff", "") if frontier.done else frontier.after, opened, pending)

    @property
    def rekeyed(self) -> Any:
        return self.snapshot.rekeyed

    @rekeyed.setter
    def rekeyed(self, names: Any) -> None: ...

    @property
    def blocked_tables(self) -> Any:
        return self.snapshot.blocked_tables

    def ready(self) -> bool:
        return self.snapshot.ready()

    def more_rows_expected(self, limit: Any) -> bool:  # noqa: ARG002
        return False

    def advance(self, frontier: Any, v: Any, limit: Any) -> Any:
        return self.snapshot.advance(frontier, v, limit)

    def parts(self, before: Any, after: Any, v: Any, *, without: Any) -> Any:
        return self.snapshot.parts(before, after, v, without=without)

    def keep_from(self) -> RelayLocation | None:
        return self.snapshot.keep_from()

    def release(self, frontier: Frontier) -> None:
        super().release(frontier)
        self.snapshot.release(frontier)

    def close(self) -> None:
        super().close()
        self.snapshot.close()

    # -- the server --------------------------------------------------------------------------------------------------

    def _answer(self, question: Callable[[Any], Any]) -> Any:
        """Answer a question of names or of counts, for which no connection is needed."""
        names = sorted(self.names)
        return names if getattr(question, "__name__", "") == "_names" else 0

    def _lost(self, *_: object) -> Any:
        raise AssertionError("the files of batches are kept in these tests")


def _behind(value: int, kept: bytes) -> bool:
    return kept == NOTHING or value > _value(kept)


def _kept(value: int) -> bytes:
    return b"\x04\0" + value.to_bytes(4, "little", signed=True)


def _value(kept: bytes) -> int:
    return int.from_bytes(kept[2:], "little", signed=True)
