"""Cases 24 and 25: the server changes between plan and replay; several domains, parallel replicas, XA, and a replica
that tables are read from while it stands still again and again.
"""

from __future__ import annotations

import contextlib
import random
import time
from typing import TYPE_CHECKING, Any

import pytest

from replica.errors import DataLossError, ReplicaError
from tests.fixtures.load.beside import beside
from tests.fixtures.mariadb import wait_until
from tests.integration.daemon.test_failover import hosts, in_step
from tests.integration.snapshot.kit.query import SnapshotQuery, add_reader
from tests.integration.snapshot.kit.tables import METADATA, SMALL_CHUNKS, fill, ids
from tests.integration.snapshot.reconcile.test_lower_position import replicate

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb

pytestmark = [pytest.mark.server, pytest.mark.quick_on("newest"), pytest.mark.timeout(300)]

ROWS = 200
PARALLEL = ("--slave-parallel-threads=4", "--slave-parallel-mode=conservative")


@pytest.fixture
def pair(make_server: Callable[..., MariaDb], server_version: str) -> tuple[MariaDb, MariaDb]:
    """Tables s.t and s.u on a primary, and on a replica that applies their domains side by side."""
    primary = make_server(server_version, METADATA, "--log-slave-updates", server_id=1)
    replica = make_server(server_version, METADATA, "--log-slave-updates", *PARALLEL, server_id=2)
    replicate(primary, replica)
    for table in ("s.t", "s.u"):
        fill(primary, table, ROWS, step=10)
    add_reader(replica)
    in_step(primary, replica)
    return primary, replica


@contextlib.contextmanager
def writing(server: MariaDb, tables: dict[str, int]) -> Iterator[None]:
    """Change tables, each in a domain of its own, half of it in XA transactions, until the end of the block."""
    with contextlib.ExitStack() as stack:
        for table, domain in tables.items():
            stack.enter_context(beside(lambda stop, table=table, domain=domain: _write(server, table, domain, stop)))
        yield


def _write(server: MariaDb, table: str, domain: int, stop: threading.Event) -> None:
    chance, count = random.Random(f"{table} {server.port}"), 0
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SET SESSION gtid_domain_id = {domain}")
        while not stop.wait(chance.uniform(0, 0.02)):
            count += 1
            key, name = chance.randrange(10 * ROWS), f"{table}{count}"
            two_phases = chance.random() < 0.5
            cursor.execute(f"XA START '{name}'" if two_phases else "BEGIN")
            cursor.execute(f"UPDATE {table} SET v = v + 1 WHERE id BETWEEN {key} AND {key + 90}")
            cursor.execute(f"REPLACE INTO {table} VALUES ({key}, {count}, 'replaced')")
            cursor.execute(f"DELETE FROM {table} WHERE id BETWEEN {key + 100} AND {key + 110}")
            if not two_phases:
                cursor.execute("COMMIT")
                continue
            cursor.execute(f"XA END '{name}'")
            cursor.execute(f"XA PREPARE '{name}'")
            time.sleep(chance.uniform(0, 0.05))
            cursor.execute(f"XA COMMIT '{name}'")


def standing_still(replica: MariaDb) -> contextlib.AbstractContextManager[None]:
    """Let a replica stand still most of the time, until the end of the block."""

    def run(stop: threading.Event) -> None:
        while not stop.is_set():
            replica.sql("STOP SLAVE SQL_THREAD")
            stop.wait(1.0)
            replica.sql("START SLAVE SQL_THREAD")
            stop.wait(0.7)

    return beside(run)


def values(server: MariaDb, table: str) -> dict[tuple[int], int]:
    return {(key,): value for key, value in server.sql(f"SELECT id, v FROM {table}")}


def held(query: SnapshotQuery, table: str) -> dict[tuple[int], int]:
    return {key: row["v"] for key, row in query.state[table].items()}


def without_place(row: dict[str, Any]) -> str:
    """Show a row without what is another on each server: the place in its binlog, its number of the transaction."""
    return repr(row | {"source": None, "transaction": row["transaction"] | {"xid": None}})


def take_over(primary: MariaDb, replica: MariaDb) -> None:
    """The replica has all of the primary, which dies; its binlog has other files and places."""
    in_step(primary, replica)
    primary.kill()
    replica.sql("STOP SLAVE", "RESET SLAVE ALL", "FLUSH BINARY LOGS")


@pytest.mark.parametrize(
    "lose", [*(pytest.param(one, marks=pytest.mark.slow) for one in ("", "spool")), "alive", "relay"]
)
def test_case_24_the_primary_fails_over_between_plan_and_replay(
    pair: tuple[MariaDb, MariaDb], tmp_path: Path, lose: str
) -> None:
    """The batch is the same on the new primary, also without its files and without the relay log."""
    primary, replica = pair
    with SnapshotQuery(primary, tmp_path, "s.t", host=hosts(primary, replica), **SMALL_CHUNKS) as query:
        with writing(primary, {"s.t": 0}):
            for _ in range(4):
                query.batch()
            start, end = query.plan()
            before = query.rows(start, end)
        if lose != "alive":
            query.stop()
        take_over(primary, replica)
        replica.sql("UPDATE s.t SET v = v + 1000", "DELETE FROM s.t WHERE id % 7 = 0")
        query.follow(replica)
        with writing(replica, {"s.t": 0}):
            if lose != "alive":
                query.stop(lose=lose)
            again = query.rows(start, end)
            same = without_place if lose == "relay" else repr
            assert sorted(map(same, again)) == sorted(map(same, before))
            query.take(again)
            query.committed(end)
            for _ in range(4):
                query.batch()
        query.catch_up()
        assert held(query, "t") == values(replica, "s.t")


@pytest.mark.parametrize("both", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_case_24_the_new_primary_no_longer_has_the_range(
    pair: tuple[MariaDb, MariaDb], tmp_path: Path, *, both: bool
) -> None:
    """Of `both` hosts the dead one is tried for half a minute; the error says what the other one lacks all the same."""
    primary, replica = pair
    first = {"host": hosts(primary, replica)} if both else {}
    with SnapshotQuery(primary, tmp_path, "s.t", **first, **SMALL_CHUNKS) as query:
        query.batch()
        primary.sql("UPDATE s.t SET v = v + 1")
        start, end = query.plan()
        primary.sql("UPDATE s.t SET v = v + 1")
        query.stop(lose="relay")
        take_over(primary, replica)
        replica.purge_binlogs()
        with (
            SnapshotQuery(replica, tmp_path, "s.t", **first, **SMALL_CHUNKS) as there,
            pytest.raises(ReplicaError, match=r"purged|no longer"),
        ):
            there.rows(start, end)


def test_case_24_the_new_primary_has_the_domains_in_another_order(
    pair: tuple[MariaDb, MariaDb], tmp_path: Path
) -> None:
    """No state of the new primary was ever that of the batch: said, and nothing is guessed."""
    primary, replica = pair
    with SnapshotQuery(primary, tmp_path, "s.*", host=hosts(primary, replica), **SMALL_CHUNKS) as query:
        query.batch()
        with replica.connect(autocommit=False) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT * FROM s.u WHERE id = 10 FOR UPDATE")
            primary.sql("SET gtid_domain_id = 1", "UPDATE s.u SET v = -1 WHERE id = 10")
            primary.sql("SET gtid_domain_id = 1", "UPDATE s.u SET v = -2 WHERE id = 10")
            start, end = query.plan()
            while end.position.get(1) is None or end.snapshot == start.snapshot:
                start, end = query.plan()
            primary.sql("SET gtid_domain_id = 0", "UPDATE s.t SET v = -3 WHERE id = 10")
            behind = primary.value("SELECT @@last_gtid") or primary.gtid_binlog_pos()
            wait_until(lambda: replica.sql("SELECT v FROM s.t WHERE id = 10") == [(-3,)], f"{behind} passed the others")
        in_step(primary, replica)
        query.stop(lose="relay")
        take_over(primary, replica)
        with pytest.raises(DataLossError, match="in another order"):
            query.rows(start, end)


@pytest.mark.slow
@pytest.mark.parametrize("lose", ["spool", "relay"])
def test_cases_24_and_25_tables_are_read_from_a_parallel_replica_that_stands_still(
    pair: tuple[MariaDb, MariaDb], tmp_path: Path, lose: str
) -> None:
    """Two domains, half of it XA: what the replica shows lies behind the batch's position, and before it."""
    primary, replica = pair
    host = f"{replica.host}:{replica.port}"
    with SnapshotQuery(
        primary, tmp_path, "s.*", snapshotHost=host, snapshotRowsPerSecond="40", **SMALL_CHUNKS
    ) as query:
        losses = 0
        with writing(primary, {"s.t": 0, "s.u": 1}), standing_still(replica):
            query.batch()
            while query.reading:
                start, end = query.plan()
                if query.batches in (6, 14):
                    losses += 1
                    before = query.rows(start, end)
                    query.stop(lose=lose)
                    again = query.rows(start, end)
                    assert sorted(map(repr, again)) == sorted(map(repr, before))
                rows = query.rows(start, end)
                query.take(rows)
                query.committed(end)
        query.catch_up()
        assert losses == 2
        for table in ("t", "u"):
            assert query.keys(table) == ids(primary, f"s.{table}")
            assert held(query, table) == values(primary, f"s.{table}")
