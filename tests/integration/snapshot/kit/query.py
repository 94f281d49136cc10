"""A query that begins with the tables, without Spark: planner and code of tasks, batch by batch, applied strictly.

In: a server, options, the key columns of each table. Out: after each batch the rows that a plain append sink would
give, or an AssertionError: an insert or a read of a key that is there, an update or a delete of one that is not, a
before image that is not what was there, an identity that came before. Offsets go through JSON. It can be stopped at any
point, lose its spool or its relay log, and be opened again, as a killed driver is.
"""

from __future__ import annotations

import json
import shutil
import time
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql.types import VariantVal

from replica.protocol.gtid import GtidPosition, covers
from replica.relay_log.log import RelayLog
from streaming_source.offsets.offset import SourceOffset
from streaming_source.options.source_options import SourceOptions
from streaming_source.planning.open_planner import open_planner
from streaming_source.rows.reader import read_changes
from streaming_source.source.load import load_plan
from tests.fixtures.mariadb import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from streaming_source.planning.planner import ChangePlanner
    from tests.fixtures.mariadb import MariaDb

WAIT_S = 60.0
SPOOL = "readers/*.tables"
"""Where the rows of tables wait, in the relay log's folder."""
READ, INSERT, UPDATE, DELETE = "read", "insert", "update", "delete"
Row = dict[str, Any]
Key = tuple[Any, ...]


def add_reader(server: MariaDb) -> None:
    """Give a server the account that these queries have."""
    server.add_user("reader", "reader-secret", grants="REPLICATION SLAVE, BINLOG MONITOR, SELECT")


class SnapshotQuery:
    """Use as a context manager. `keys`: the key columns by table name, `id` where it is not named."""

    def __init__(
        self,
        server: MariaDb,
        folder: Path,
        tables: str,
        *,
        keys: Mapping[str, Sequence[str]] | None = None,
        **options: str,
    ) -> None:
        add_reader(server)
        login = {"host": server.host, "port": str(server.port), "user": "reader", "password": "reader-secret"}
        kind = "tables" if any(sign in tables for sign in "*,?") else "table"
        own = {"relayDir": str(folder / "relay"), "startingPosition": "initial", kind: tables}
        self.state: dict[str, dict[Key, Row]] = {}
        self.ops: dict[str, list[tuple[str, Key]]] = {}
        """By table: what came, in order."""
        self.offset: SourceOffset | None = None
        self.batches = 0
        self.relay = folder / "relay"
        self._server = server
        self._keys = keys or {}
        self.options = login | own | options
        self._identities: set[tuple[str, int]] = set()
        self._planner: ChangePlanner | None = None
        self._before: SourceOffset | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- its life --------------------------------------------------------------------------------------------------

    def open(self) -> ChangePlanner:
        if self._planner is None:
            self._plan = load_plan(self.options)
            self._planner = open_planner(SourceOptions.parse(self.options), self._plan)
        return self._planner

    def stop(self, *, lose: str = "") -> None:
        """End it, and take its `spool` or its `relay` log away."""
        if self._planner is not None:
            self._planner.close()
            self._planner = None
        if lose == "relay":
            shutil.rmtree(self.relay)
        elif lose == "spool":
            for spool in self.relay.glob(SPOOL):
                shutil.rmtree(spool)

    # -- batches ---------------------------------------------------------------------------------------------------

    @property
    def reading(self) -> bool:
        """Whether rows of tables are still to come."""
        if self.offset is None:
            return True
        return self.offset.snapshot is not None and not self.offset.snapshot.finished

    def plan(self) -> tuple[SourceOffset, SourceOffset]:
        """The next batch, planned and not committed: its start and its end. Waits until there is one."""
        deadline = time.monotonic() + WAIT_S
        while (planned := self.planned()) is None:
            assert time.monotonic() < deadline, f"no batch comes behind {self.offset}"
        return planned

    def begin(self) -> None:
        """Settle where it starts, which is the first, empty batch of a query."""
        if self.offset is None:
            planner = self.open()
            self.offset = planner.latest_offset(self._again(planner.initial_offset()), bounded=True)

    def planned(self) -> tuple[SourceOffset, SourceOffset] | None:
        """The same; None if there is none now."""
        planner = self.open()
        self.begin()
        assert self.offset is not None
        after = planner.latest_offset(self._again(self.offset), bounded=True)
        return None if after == self.offset else (self.offset, after)

    def batch(self) -> list[Row]:
        """Plan, read, apply and commit the next batch; its rows."""
        start, end = self.plan()
        rows = self.rows(start, end)
        self.take(rows)
        self.committed(end)
        return rows

    def committed(self, end: SourceOffset) -> None:
        """The batch up to here is in the sink."""
        self.offset = end
        self.open().commit(end)

    def rows(self, start: SourceOffset, end: SourceOffset) -> list[Row]:
        """Read what lies between two offsets, which may have been planned by another process."""
        found: list[Row] = []
        for partition in self.open().partitions(self._again(start), self._again(end)):
            for records in read_changes(partition, self._plan):
                found += records.to_pylist()
        return found

    def take(self, rows: list[Row]) -> None:
        """Apply the rows of a batch, strictly: the changes first, then what was read."""
        self.batches += 1
        for row in sorted(rows, key=_place):
            self._apply(row)

    def read_all(self) -> None:
        """Go on until no row of a table is left to come."""
        while self.reading:
            self.batch()

    def follow(self, server: MariaDb) -> None:
        """Take another server for the one that is right."""
        self._server = server

    def catch_up(self) -> None:
        """Go on until all tables are read, and all that the server has committed by now has come."""
        goal = self._server.gtid_binlog_pos()
        while self.reading or not self.has(goal):
            self.batch()

    def receive_all(self) -> None:
        """Wait until the relay log has all that the server has committed by now: the next batch ends behind it."""
        goal, log = GtidPosition.parse(self._server.gtid_binlog_pos()), RelayLog(self.relay)
        wait_until(lambda: (head := log.head()) is not None and covers(head.position, goal), "the relay log has it")

    def has(self, position: str) -> bool:
        """Whether all up to a position has come."""
        return self.offset is not None and covers(self.offset.position, GtidPosition.parse(position))

    # -- judging ---------------------------------------------------------------------------------------------------

    def _apply(self, row: Row) -> None:
        table, op, transaction = row["table"], row["op"], row["transaction"]
        identity = transaction["gtid"], transaction["ordinal"]
        assert identity not in self._identities, f"the identity {identity} came before: {row}"
        self._identities.add(identity)
        held = self.state.setdefault(table, {})
        before, after = (image_of(row, side) for side in ("before", "after"))
        if row["history"]:
            if before is None or op == DELETE:
                return  # a row of the past comes, or is thrown away
            op, after = DELETE, None  # its period is ended: it is no row of now any more
        wanted = {READ: (False, True), INSERT: (False, True), UPDATE: (True, True), DELETE: (True, False)}[op]
        assert (before is not None, after is not None) == wanted, row
        if before is not None:
            key = self._key(table, before)
            assert key in held, f"{op} of a row that is not there: {row}"
            there = held.pop(key)
            same = there.keys() & before.keys()  # all, where the table was not altered in between
            assert all(there[name] == before[name] for name in same), f"{op} of another row than is there: {row}"
            after = None if after is None else there | after  # what an image lacks stays as it is
        if after is not None:
            key = self._key(table, after)
            assert key not in held, f"{op} of a row that is there already: {row}"
            held[key] = after
        self.ops.setdefault(table, []).append((op, self._key(table, after or before or {})))

    def _key(self, table: str, image: Row) -> Key:
        return tuple(image[name] for name in self._keys.get(table, ("id",)))

    def keys(self, table: str) -> list[Key]:
        """Those that the sink holds, sorted."""
        return sorted(self.state.get(table, {}))

    def operations(self, table: str, *kinds: str) -> list[Key]:
        """The keys of what came, by kind, in order."""
        return [key for op, key in self.ops.get(table, []) if op in kinds]

    @staticmethod
    def _again(offset: SourceOffset) -> SourceOffset:
        return SourceOffset.parse(json.loads(json.dumps(offset.json())))


def _place(row: Row) -> tuple[bool, int, int, int]:
    transaction = row["transaction"]
    place = transaction["domain_id"], transaction["sequence_number"], transaction["ordinal"]
    return row["op"] == READ, *place


def image_of(row: Row, side: str) -> Row | None:
    """The image as plain values, without the columns that it lacks: of one table a STRUCT, of many a VARIANT."""
    image = row[side]
    if image is not None and set(image) == {"value", "metadata"}:
        plain: Row = VariantVal(image["value"], image["metadata"]).toPython()
        return plain
    lacking = (row["absent"] or {}).get(side) or ()
    return None if image is None else {name: value for name, value in image.items() if name not in lacking}


def server_state(server: MariaDb, table: str, keys: Sequence[str], convert: Callable[[Row], Row]) -> dict[Key, Row]:
    """The server's rows by key, each made comparable."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in cursor.description]
        rows = [convert(dict(zip(names, row, strict=True))) for row in cursor.fetchall()]
    return {tuple(row[name] for name in keys): row for row in rows}
