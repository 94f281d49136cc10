"""A snapshot of a real server's tables without Spark: a replica, the engine, and a judge that has replayed the stream.

The judge reads the row changes in the relay log, which begins before the first row, and so knows what each table holds
at any position. Each batch must have exactly the rows of its range of keys, in key order, with growing numbers.
"""

from __future__ import annotations

import random
import shutil
import threading
from typing import TYPE_CHECKING, Any, Self

from replica.errors import ConfigError
from replica.live.embedded import EmbeddedReplica
from replica.options.config import ReplicaConfig
from replica.protocol.constants import ChecksumAlgorithm, EventType
from replica.protocol.events.binlog_file import encode_event
from replica.protocol.gtid import GtidPosition, covers
from replica.readers.arrow import decode_files, read_relay_log
from replica.snapshot.chunks.schedule import ALL, ReadLimit
from replica.snapshot.frontier import NOTHING, Frontier
from replica.snapshot.pace import Pace
from replica.snapshot.snapshot import TableSnapshot
from tests.fixtures.mariadb import wait_until
from tests.kit.binlog import bodies

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from replica.relay_log.location import RelayHead
    from replica.snapshot.spool.batches import SpoolPart
    from tests.fixtures.mariadb import MariaDb

    TableName = tuple[str, str]
    Rows = dict[tuple[Any, ...], dict[str, Any]]

MAGIC = b"\xfebin"
AGE_S = 1.0
"""How old a place has to be to count: the writers of these tests hold no commit back."""


class TableReading:
    """One snapshot with its judge; `restart` is a new life of the process over the same folders."""

    def __init__(
        self,
        server: MariaDb,
        folder: Path,
        keys: dict[TableName, tuple[str, ...]],
        *,
        pace: Pace | None = None,
        wanted: Callable[[str, str], bool] = lambda database, table: True,  # noqa: ARG005
        caught_up: bool = False,
        **options: object,
    ) -> None:
        self.server = server
        self.folder = folder
        self.keys = keys
        self.pace = pace or Pace(connections=3, chunk_rows=150)
        self.wanted = wanted
        self.caught_up = caught_up  # a statement that comes while tables are read has those of its name read again
        user, password = server.add_user()
        given = {"host": server.host, "port": server.port, "user": user, "password": password, "start": "earliest"}
        self.config = ReplicaConfig.parse({**given, **options})
        self.frontier = Frontier()
        self.state: dict[TableName, Rows] = {name: {} for name in keys}
        self.judged = GtidPosition()
        self.batches: list[tuple[Frontier, Frontier, RelayHead]] = []
        self.delivered: dict[TableName, int] = {}
        self.replica: EmbeddedReplica
        self.snapshot: TableSnapshot

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(self, *exc: object) -> None:
        self.end()

    def begin(self) -> None:
        self.replica = EmbeddedReplica(self.config, self.folder / "relay")
        self.replica.start(None)
        wait_until(self.replica.log.head, "the relay log has begun")
        if self.caught_up:
            self.receive_all()
        self.snapshot = self._snapshot()
        self.snapshot.start(self.frontier)

    def receive_all(self) -> None:
        """Wait until the relay log has all that the server has committed by now."""
        goal = GtidPosition.parse(self.server.gtid_binlog_pos())
        wait_until(lambda: covers(self.replica.head().position, goal), "the relay log has what is there")

    def end(self) -> None:
        self.snapshot.close()
        self.replica.close()

    def restart(self, *, without_files: bool = False) -> None:
        self.end()
        if without_files:  # only now: a reader that still works would write into the folder while it is removed
            shutil.rmtree(self.folder / "spool")
        self.begin()

    def _snapshot(self) -> TableSnapshot:
        spool = self.folder / "spool"
        return TableSnapshot(self.config, self.replica, self.wanted, self.pace, spool, age_s=AGE_S)

    # -- batches -------------------------------------------------------------------------------------------------

    def step(self, limit: ReadLimit = ALL) -> bool:
        """Take a batch and judge it; False where nothing could be taken."""
        v = self.replica.head()
        advance = self.snapshot.advance(self.frontier, v, limit)
        if advance is None:
            return False
        before, self.frontier = self.frontier, advance.frontier
        self.batches.append((before, self.frontier, v))
        self.judge(before, self.frontier, v)
        return True

    def to_the_end(self, *, limit: ReadLimit = ALL, each: Callable[[], object] = lambda: None) -> None:
        """Take batches until everything is delivered."""

        def stepped() -> bool:
            if self.step(limit):
                each()
                self.snapshot.release(self.frontier)
            return self.frontier.finished

        wait_until(stepped, "the snapshot is finished", timeout_s=120)

    def to_the_end_without(self) -> list[tuple[TableName, str]]:
        """Take batches until everything is delivered, and return the tables that were left out. No row is judged."""
        refused: list[tuple[TableName, str]] = []

        def stepped() -> bool:
            advance = self.snapshot.advance(self.frontier, self.replica.head())
            if advance is not None:
                refused.extend(advance.refused)
                self.frontier = advance.frontier
            return self.frontier.finished

        wait_until(stepped, "the snapshot is finished", timeout_s=120)
        return refused

    def judge(self, before: Frontier, after: Frontier, v: RelayHead) -> None:
        """Compare the rows of a batch with what the stream says the tables held at its end."""
        self._follow(v.position)
        parts = self.snapshot.parts(before, after, v)
        number = before.rows
        found: dict[TableName, list[dict[str, Any]]] = {}
        for part in parts:
            assert part.first_row == number
            rows = self.rows_of(part)
            assert len(rows) == part.rows
            number += part.rows
            found.setdefault(part.table, []).extend(rows)
        assert number == after.rows
        for name, key in self.keys.items():
            self._judge_table(name, key, found.pop(name, []), before, after)
        assert not found

    def _judge_table(
        self, name: TableName, key: tuple[str, ...], rows: list[dict[str, Any]], before: Frontier, after: Frontier
    ) -> None:
        """The rows are those of the keys behind the first frontier and up to the second one."""
        self.delivered[name] = self.delivered.get(name, 0) + len(rows)
        begin, end = before.reached(name), after.reached(name)
        if begin is None or begin == end:
            assert rows == []
            return
        keys = [tuple(row[column] for column in key) for row in rows]
        state = self.state[name]
        if begin == NOTHING and end is None:
            assert sorted(keys) == sorted(state), name
        else:
            assert keys == sorted(keys)
            low = None if begin == NOTHING else self.borders[name, begin]
            high = None if end is None else self._border(name, end, keys)
            wanted = sorted(k for k in state if (low is None or k > low) and (high is None or k <= high))
            assert keys == wanted, (name, set(keys) ^ set(wanted))
        assert [state[k] for k in keys] == rows, name

    borders: dict[tuple[TableName, bytes], tuple[Any, ...]] = {}  # noqa: RUF012

    def _border(self, name: TableName, kept: bytes, keys: list[tuple[Any, ...]]) -> tuple[Any, ...]:
        """The value of a kept key of integers: behind the mark of its columns, two bytes of length before each."""
        assert kept[:2] == b"\xff\xff"
        values, at = [], 10
        while at < len(kept):
            size = int.from_bytes(kept[at : at + 2], "little")
            values.append(int.from_bytes(kept[at + 2 : at + 2 + size], "little", signed=True))
            at += 2 + size
        self.borders[name, kept] = tuple(values)
        assert not keys or keys[-1] <= tuple(values)
        return tuple(values)

    def _follow(self, position: GtidPosition) -> None:
        for name, key in self.keys.items():
            try:
                batches = list(
                    read_relay_log(self.folder / "relay", ".".join(name), after=self.judged or None, until=position)
                )
            except ConfigError:
                batches = list(read_relay_log(self.folder / "relay", ".".join(name), until=position))
                self.state[name] = {}
            state = self.state[name]
            for batch in batches:
                for change in batch.to_pylist():
                    if change["before"] is not None:
                        state.pop(tuple(change["before"][column] for column in key))
                    if change["after"] is not None:
                        state[tuple(change["after"][column] for column in key)] = change["after"]
        self.judged = position

    def rows_of(self, part: SpoolPart) -> list[dict[str, Any]]:
        with part.path.open("rb") as file:
            file.seek(part.start)
            data = part.head + file.read(part.end - part.start) + part.tail
        path = self.folder / "part.binlog"
        description = encode_event(
            EventType.FORMAT_DESCRIPTION,
            bodies.format_description(ChecksumAlgorithm.NONE),
            server_id=1,
            checksum=ChecksumAlgorithm.CRC32,  # this event has one in any case
        )
        path.write_bytes(MAGIC + description + data)
        batches = list(decode_files([path], ".".join(part.table)))
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert {row["op"] for row in rows} <= {"insert"}
        return [row["after"] for row in rows]


class Writers:
    """Threads that change tables with an INT key `id` and a column `v`, until the end of the `with`."""

    def __init__(
        self, server: MariaDb, tables: list[str], *, threads: int = 3, keys: int = 3000, seed: int = 1
    ) -> None:
        self._server = server
        self._tables = tables
        self._keys = keys
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(seed * 100 + n,)) for n in range(threads)]
        self.commits = 0

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(60)

    def _run(self, seed: int) -> None:
        rng = random.Random(seed)
        with self._server.connect(autocommit=False) as connection, connection.cursor() as cursor:
            while not self._ending.wait(0.003):
                try:
                    for _ in range(rng.randint(1, 3)):
                        self._change(cursor, rng)
                    if rng.random() < 0.1:
                        self._undone(cursor, rng)
                    if rng.random() < 0.9:
                        connection.commit()
                        self.commits += 1
                    else:
                        connection.rollback()
                except Exception as error:
                    if error.args and error.args[0] in (1205, 1213, 1146, 1412, 1054, 1136, 1062):
                        connection.rollback()
                        continue
                    raise

    def _undone(self, cursor: Any, rng: random.Random) -> None:
        """Change rows and roll that back to a savepoint; the binlog keeps it, because of the temporary table."""
        cursor.execute("SAVEPOINT undone")
        self._change(cursor, rng)
        database = self._tables[0].split(".")[0]
        cursor.execute(f"CREATE OR REPLACE TEMPORARY TABLE {database}.kept (i INT)")
        cursor.execute("ROLLBACK TO undone")

    def _change(self, cursor: Any, rng: random.Random) -> None:
        table, key = rng.choice(self._tables), rng.randrange(self._keys)
        match rng.randrange(5):
            case 0:
                cursor.execute(f"DELETE FROM {table} WHERE id BETWEEN {key} AND {key + 5}")
            case 1:
                cursor.execute(f"UPDATE {table} SET v = v + 1 WHERE id BETWEEN {key} AND {key + 20}")
            case 2:
                cursor.execute(f"UPDATE IGNORE {table} SET id = {rng.randrange(self._keys)} WHERE id = {key}")
            case _:
                rows = ", ".join(f"({rng.randrange(self._keys)}, {rng.randrange(1000)})" for _ in range(5))
                cursor.execute(f"REPLACE INTO {table} (id, v) VALUES {rows}")
