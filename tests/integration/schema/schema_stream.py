"""A streaming query without Spark over a real server, for tests of changed tables; its oracle is the server itself.

`Table` runs DDL and DML and remembers, for each transaction with a row, what SELECT showed of that row right then.
`Stream` does what Spark does with the source: offsets go through JSON, rows through the code of a task.
"""

from __future__ import annotations

import json
import secrets
import shutil
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import VariantVal

from replica.protocol.gtid import GtidPosition, covers
from streaming_source.offsets.offset import SourceOffset
from streaming_source.options.source_options import SourceOptions
from streaming_source.planning.open_planner import open_planner
from streaming_source.rows.reader import read_changes
from streaming_source.source.load import load_plan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streaming_source.planning.planner import ChangePlanner
    from streaming_source.rows.read_plan import ReadPlan
    from tests.fixtures.mariadb import MariaDb

WAIT_S = 60.0
Seen = dict[str, tuple[str, dict[str, Any]]]
"""By GTID: the table, and the row that the transaction wrote."""


class Tables:
    """Tables of one database, with `id` as key of each."""

    def __init__(self, server: MariaDb, database: str) -> None:
        self.server = server
        self.database = database
        self.seen: Seen = {}
        server.sql(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
        self.start = server.gtid_binlog_pos()

    def run(self, *statements: str) -> str:
        """DDL, or anything that is not to be remembered."""
        self.server.sql(f"USE {self.database}", *statements)
        return self.server.gtid_binlog_pos()

    def insert(self, table: str, number: int, **values: Any) -> str:
        """One row, one transaction; remembered as the server shows it now."""
        names = ", ".join(["id", *(f"`{name}`" for name in values)])
        marks = ", ".join(["%s"] * (len(values) + 1))
        self.server.sql(
            f"INSERT INTO {self.database}.{table} ({names}) VALUES ({marks})", args=[number, *values.values()]
        )
        return self.remember(table, number)

    def remember(self, table: str, number: int) -> str:
        gtid = self.server.gtid_binlog_pos()
        with self.server.connect(database=self.database) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {table} WHERE id = %s", [number])
            (row,) = cursor.fetchall()
            assert cursor.description is not None
            self.seen[gtid] = table, dict(zip([column[0] for column in cursor.description], row, strict=True))
        return gtid


@contextmanager
def changing_tables(server: MariaDb, metadata: str) -> Iterator[Tables]:
    """A database for one test, whose rows name their columns (FULL) or not (NO_LOG)."""
    server.add_user()
    server.sql(f"SET GLOBAL binlog_row_metadata={metadata}")
    made = Tables(server, f"changing_{secrets.token_hex(4)}")
    try:
        yield made
    finally:
        server.sql(f"DROP DATABASE {made.database}")


def rows(stream: Stream) -> list[dict[str, Any]]:
    return [row for _, row in stream.seen.values()]


class Stream:
    """A query, its checkpoint, and what it delivered by GTID: the table, and the after image."""

    def __init__(self, server: MariaDb, folder: Path, start: str, **options: str) -> None:
        self.folder = folder
        own = {"relayDir": str(folder / "relay"), "startingPosition": start}
        login = {"host": server.host, "port": str(server.port), "user": "repl", "password": "replica-secret"}
        self.given = login | own | options
        self.offset: SourceOffset | None = None
        self.seen: Seen = {}
        self.plan: ReadPlan | None = None
        self._planner: ChangePlanner | None = None

    def open(self) -> ChangePlanner:
        if self._planner is None:
            self.plan = load_plan(self.given)
            self._planner = open_planner(SourceOptions.parse(self.given), self.plan)
        return self._planner

    def begin(self) -> None:
        """The anchor batch."""
        if self.offset is None:
            planner = self.open()
            self.offset = planner.initial_offset()
            assert planner.latest_offset(self._again(self.offset), bounded=True) == self.offset

    def read(self, gtid: str) -> None:
        """Batch by batch up to this position or beyond: a session that ends drops temporary tables when it likes."""
        planner = self.open()
        self.begin()
        deadline = time.monotonic() + WAIT_S
        while not covers(self.at.position, GtidPosition.parse(gtid)):
            after = planner.latest_offset(self._again(self.at), bounded=True)
            if after != self.at:
                self.replay(self.at, after)
                self.offset = after
                planner.commit(after)
                deadline = time.monotonic() + WAIT_S
            assert time.monotonic() < deadline, f"{gtid} does not come; at {self.at.position}"

    def replay(self, start: SourceOffset, end: SourceOffset) -> None:
        """The rows of one batch, planned cold or warm."""
        partitions = self.open().partitions(self._again(start), self._again(end))
        assert self.plan is not None
        for partition in partitions:
            for batch in read_changes(partition, self.plan):
                for row in batch.to_pylist():
                    image = row["after"]
                    if self.plan.columns is None:
                        image = VariantVal(image["value"], image["metadata"]).toPython()
                    self.seen[row["transaction"]["gtid"]] = row["table"], image

    @property
    def at(self) -> SourceOffset:
        assert self.offset is not None
        return self.offset

    def stop(self, *, lose_relay: bool = False) -> None:
        if self._planner is not None:
            self._planner.close()
            self._planner = None
        if lose_relay:
            shutil.rmtree(self.folder / "relay")

    def _again(self, offset: SourceOffset) -> SourceOffset:
        return SourceOffset.parse(json.loads(json.dumps(offset.json())))
