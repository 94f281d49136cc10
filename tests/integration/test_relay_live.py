"""The relay log beside real servers: what is stored, what their own tools say about it, and how each dump ends."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from replica.errors import (
    DisconnectedError,
    DuplicateServerIdError,
    PositionLostError,
    PositionPurgedError,
    ReplicaError,
)
from replica.handshake.login import log_in
from replica.handshake.registration import Registration, register
from replica.protocol.gtid import BinlogPosition, GtidPosition
from replica.relay.location import relay_numbers, relay_path
from replica.relay.log import RelayLog
from replica.relay.writer import RelayWriter
from replica.session import Session
from tests.bench.bench_memory import WANTED_PEAK_MB
from tests.bench.bench_memory import measure as measure_memory
from tests.fixtures.mariadb import wait_until
from tests.fixtures.replicas import replica_config

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server

HEARTBEAT_S = 0.5
SEMI_SYNC = ("--rpl-semi-sync-master-enabled=ON", "--rpl-semi-sync-master-timeout=2000")


async def start(
    server: MariaDb, relay: RelayWriter, *, server_id: int = 4711, semi_sync: bool = False
) -> tuple[Session, asyncio.Task[None]]:
    """A running session at the relay log's position."""
    config = replica_config(server)
    login = await log_in(config, config.endpoints[0])
    wanted = Registration(
        server_id=server_id,
        position=relay.position,
        heartbeat_s=HEARTBEAT_S,
        semi_sync=semi_sync,
        strict_mode=False,
        annotate=True,
    )
    await login.run(register(wanted))
    detached = login.detach()
    session = Session(relay, semi_sync=semi_sync, heartbeat_s=HEARTBEAT_S)
    return session, asyncio.ensure_future(_run(session, detached))


async def _run(session: Session, detached: object) -> None:
    # The detached connection must live as long as its transport is used.
    await session.run(detached.transport, detached.leftover)  # type: ignore[attr-defined]


async def receive(server: MariaDb, relay: RelayWriter, target: str | None = None) -> None:
    """Receive up to the server's position, then hang up."""
    wanted = GtidPosition.parse(server.gtid_binlog_pos() if target is None else target)
    _, task = await start(server, relay)
    deadline = asyncio.get_running_loop().time() + 30
    while relay.position != wanted:
        assert not task.done(), task.exception()
        assert asyncio.get_running_loop().time() < deadline, f"{relay.position}, not {wanted}"
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])


async def ended(task: asyncio.Task[None]) -> ReplicaError:
    with pytest.raises(ReplicaError) as caught:
        await asyncio.wait_for(task, 30)
    return caught.value


async def listed(server: MariaDb, path: Path) -> list[str]:
    """Every statement and event that the server's own tool finds in a file, without what belongs to files."""
    command = [server.binary("mariadb-binlog"), "--no-defaults", "-v", "--verify-binlog-checksum", str(path)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
    assert not [line for line in done.stderr.splitlines() if "WARNING" not in line], done.stderr
    assert "Error" not in done.stderr
    of_the_file = re.compile(r"\t(Start: binlog|Rotate to|Gtid list|Binlog checkpoint|Stop)|^# at |^ROLLBACK|^#$")
    first = done.stdout.find("GTID ")
    lines = done.stdout[first:].splitlines() if first >= 0 else []
    return [line for line in lines if not of_the_file.search(line)]


def write(server: MariaDb) -> None:
    """Groups of every shape that ends differently."""
    server.sql("DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop")
    server.sql(
        "CREATE TABLE shop.t (a INT AUTO_INCREMENT PRIMARY KEY, b LONGTEXT) ENGINE=InnoDB",
        "CREATE TABLE shop.m (a INT) ENGINE=MyISAM",
        "INSERT INTO shop.t (b) VALUES ('one'), ('two')",
        "INSERT INTO shop.m VALUES (1)",
        "BEGIN",
        "INSERT INTO shop.t (b) VALUES (REPEAT('x', 5000))",
        "SAVEPOINT s",
        "UPDATE shop.t SET b = 'y'",
        "ROLLBACK TO s",
        "DELETE FROM shop.t WHERE a = 1",
        "COMMIT",
        "BEGIN",
        "INSERT INTO shop.m VALUES (2)",
        "INSERT INTO shop.t (b) VALUES ('rolled back')",
        "ROLLBACK",
        "SET gtid_domain_id = 7",
        "CREATE TABLE shop.c AS SELECT * FROM shop.t",
        "XA START 'x'",
        "INSERT INTO shop.t (b) VALUES ('prepared')",
        "XA END 'x'",
        "XA PREPARE 'x'",
        "XA COMMIT 'x'",
        "ALTER TABLE shop.t ADD COLUMN c INT",
    )


async def test_the_tool_lists_the_same_events_as_in_the_primarys_files(server: MariaDb, tmp_path: Path) -> None:
    write(server)
    server.sql("FLUSH BINARY LOGS")
    write(server)
    with RelayWriter.open(tmp_path) as relay:
        await receive(server, relay)
    ours = [line for n in relay_numbers(tmp_path) for line in await listed(server, relay_path(tmp_path, n))]
    theirs = [line for name in server.binlogs() for line in await listed(server, server.datadir / name)]

    def events(lines: list[str]) -> list[str]:
        return [line for line in lines if line.startswith("#") and "end_log_pos" in line]

    def rows(lines: list[str]) -> list[str]:
        return [line for line in lines if line.startswith("###")]

    assert len(events(ours)) > 60
    assert events(ours) == events(theirs)
    assert rows(ours) == rows(theirs)


@pytest.mark.parametrize("semi_sync", [False, True])
@pytest.mark.edge(55)
async def test_rows_around_the_packet_limit(
    make_server: Callable[..., MariaDb], server_version: str, tmp_path: Path, *, semi_sync: bool
) -> None:
    server = make_server(server_version, "--max-allowed-packet=1G", "--innodb-log-file-size=128M", *SEMI_SYNC)
    server.sql("CREATE DATABASE big", "CREATE TABLE big.t (b LONGBLOB)")
    with RelayWriter.open(tmp_path) as relay:
        session, task = await start(server, relay, semi_sync=semi_sync)
        # One row of one LONGBLOB costs 38 bytes in its event, with its checksum.
        for event in (2**24 - 4, 2**24 - 3, 2**24 - 2, 2**24 - 1, 2**24, 2 * 0xFFFFFF - 1, 64 << 20):
            await asyncio.to_thread(server.sql, f"INSERT INTO big.t VALUES (REPEAT('b', {event - 38}))")
        wanted = GtidPosition.parse(server.gtid_binlog_pos())
        await asyncio.to_thread(wait_until, lambda: relay.position == wanted, "all rows in the relay log")
        if semi_sync:
            assert session.progress.acknowledged == relay.head.primary
        task.cancel()
        await asyncio.wait([task])
    ours = [line for n in relay_numbers(tmp_path) for line in await sizes(server, relay_path(tmp_path, n))]
    theirs = [line for name in server.binlogs() for line in await sizes(server, server.datadir / name)]
    assert ours == theirs
    assert len(ours) == 7


async def sizes(server: MariaDb, path: Path) -> list[str]:
    """The rows events the tool finds, each with its position and checksum."""
    command = [
        server.binary("mariadb-binlog"),
        "--no-defaults",
        "--verify-binlog-checksum",
        "--base64-output=decode-rows",
    ]
    done = await asyncio.to_thread(subprocess.run, [*command, str(path)], capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "Write_rows" in line]


@pytest.mark.edge(75)
@pytest.mark.edge(77)
@pytest.mark.edge(78)
async def test_semi_sync_commits_wait_for_our_disk(
    make_server: Callable[..., MariaDb], server_version: str, tmp_path: Path
) -> None:
    server = make_server(server_version, *SEMI_SYNC)

    def status(name: str) -> str:
        return str(server.sql(f"SHOW STATUS LIKE 'Rpl_semi_sync_master_{name}'")[0][1])

    with RelayWriter.open(tmp_path) as relay:
        session, task = await start(server, relay, semi_sync=True)
        await asyncio.to_thread(wait_until, lambda: status("clients") == "1", "the replica counts as semi-synchronous")
        before = int(status("yes_tx"))
        await asyncio.to_thread(write, server)
        wanted = GtidPosition.parse(server.gtid_binlog_pos())
        assert relay.position == wanted, "every commit returned after its acknowledgement"
        assert status("status") == "ON"
        assert status("no_tx") == "0"
        assert int(status("yes_tx")) > before + 10
        assert session.progress.acknowledged == relay.head.primary
        await asyncio.to_thread(server.sql, "FLUSH BINARY LOGS", "INSERT INTO shop.m VALUES (9)")
        assert session.progress.acknowledged == end_of_binlog(server)
        task.cancel()
        await asyncio.wait([task])
        # A dump that begins inside a file (11.4+ jumps there) must find the same positions.
        session, task = await start(server, relay, semi_sync=True)
        await asyncio.to_thread(wait_until, lambda: status("clients") == "1", "the replica is back")
        before = int(status("yes_tx"))
        await asyncio.to_thread(server.sql, "INSERT INTO shop.t (b) VALUES ('again')", "INSERT INTO shop.m VALUES (10)")
        assert int(status("yes_tx")) == before + 2
        assert session.progress.acknowledged == end_of_binlog(server) == relay.head.primary
        task.cancel()
        await asyncio.wait([task])


def end_of_binlog(server: MariaDb) -> BinlogPosition:
    file, position, *_ = server.sql("SHOW MASTER STATUS")[0]
    return BinlogPosition(str(file), int(position))


@pytest.mark.edge(57)
async def test_checksums_switched_off_and_on(
    make_server: Callable[..., MariaDb], server_version: str, tmp_path: Path
) -> None:
    server = make_server(server_version)
    server.sql("CREATE DATABASE c", "CREATE TABLE c.t (a INT)", "INSERT INTO c.t VALUES (1)")
    with RelayWriter.open(tmp_path) as relay:
        await receive(server, relay)
        for algorithm in ("NONE", "CRC32", "NONE"):
            _, task = await start(server, relay)
            await asyncio.sleep(0.1)
            server.sql(f"SET GLOBAL binlog_checksum = {algorithm}", "INSERT INTO c.t VALUES (2)")
            wanted = GtidPosition.parse(server.gtid_binlog_pos())
            await asyncio.to_thread(wait_until, lambda w=wanted: relay.position == w, "the row after the change")
            task.cancel()
            await asyncio.wait([task])
    log, head = RelayLog(tmp_path), RelayLog(tmp_path).head()
    assert head is not None
    begin = log.locate(GtidPosition())
    assert begin is not None
    assert [r.checksum for r in log.ranges(begin, head.location, 1 << 20)] == [True, False, True, False]
    for number in relay_numbers(tmp_path):
        await listed(server, relay_path(tmp_path, number))


@pytest.mark.edge(58)
async def test_crashes_of_the_primary_lose_and_double_nothing(
    make_server: Callable[..., MariaDb], server_version: str, tmp_path: Path
) -> None:
    server = make_server(server_version)
    server.sql("CREATE DATABASE k", "CREATE TABLE k.t (a INT AUTO_INCREMENT PRIMARY KEY, b TEXT)")
    with RelayWriter.open(tmp_path) as relay:
        for _ in range(3):
            _, task = await start(server, relay)
            for _ in range(20):
                await asyncio.to_thread(server.sql, "INSERT INTO k.t (b) VALUES (REPEAT('k', 3000))")
            await asyncio.to_thread(server.kill)
            assert type(await ended(task)) is DisconnectedError
            await asyncio.to_thread(server.start)
        await receive(server, relay)
    ours = [line for n in relay_numbers(tmp_path) for line in await listed(server, relay_path(tmp_path, n))]
    theirs = [line for name in server.binlogs() for line in await listed(server, server.datadir / name)]
    inserts = [line for line in ours if line.startswith("### INSERT INTO")]
    # The binlog is the truth: without flushing its log at each commit the engine may have lost rows in a crash.
    assert inserts == [line for line in theirs if line.startswith("### INSERT INTO")]
    assert len(inserts) == 60


@pytest.mark.edge(67)
@pytest.mark.edge(68)
async def test_how_dumps_end(make_server: Callable[..., MariaDb], server_version: str, tmp_path: Path) -> None:
    server = make_server(server_version)
    server.sql("CREATE DATABASE e")
    with RelayWriter.open(tmp_path / "a") as relay, RelayWriter.open(tmp_path / "b") as other:
        _, task = await start(server, relay)
        await asyncio.sleep(0.3)
        _, second = await start(server, other)  # the same server id
        assert type(await ended(task)) is DuplicateServerIdError
        await asyncio.to_thread(wait_until, lambda: len(server.dump_threads()) == 1, "one dump thread is left")
        server.sql(f"KILL QUERY {server.dump_threads()[0]}")
        assert type(await ended(second)) is DisconnectedError
        _, task = await start(server, relay)
        await asyncio.to_thread(wait_until, server.dump_threads, "the dump runs")
        server.sql(f"KILL {server.dump_threads()[0]}")
        assert type(await ended(task)) is DisconnectedError
        session, task = await start(server, relay)
        # Before its first packet a server may be silent for long; it is reading its way to our position.
        await asyncio.to_thread(wait_until, lambda: session.progress.heartbeats, "it streams")
        server.signal(signal.SIGSTOP)
        try:
            error = await ended(task)
        finally:
            server.signal(signal.SIGCONT)
        assert type(error) is DisconnectedError
        assert "heartbeat" in str(error)
        _, task = await start(server, relay)
        await asyncio.sleep(0.3)
        await asyncio.to_thread(server.stop)
        assert type(await ended(task)) is DisconnectedError


@pytest.mark.parametrize(
    ("position", "kind"),
    [
        ("", PositionPurgedError),
        ("0-1-1", PositionPurgedError),
        ("0-1-999", PositionLostError),
        ("0-9-2", PositionLostError),
    ],
)
async def test_positions_the_server_does_not_have(
    make_server: Callable[..., MariaDb], server_version: str, tmp_path: Path, position: str, kind: type[ReplicaError]
) -> None:
    server = make_server(server_version)
    server.sql("CREATE DATABASE p", "CREATE TABLE p.t (a INT)", "INSERT INTO p.t VALUES (1)", "FLUSH BINARY LOGS")
    server.sql("INSERT INTO p.t VALUES (2)")
    wait_until(lambda: purged(server), "the first file can be purged")
    with RelayWriter.open(tmp_path, start=GtidPosition.parse(position)) as relay:
        _, task = await start(server, relay)
        error = await ended(task)
        assert type(error) is kind
        assert error.code == 1236
        assert error.hint


def purged(server: MariaDb) -> bool:
    """The primary keeps a file until its checkpoint has moved on."""
    newest = server.binlogs()[-1]
    server.sql(f"PURGE BINARY LOGS TO '{newest}'")
    return server.binlogs() == [newest]


@pytest.mark.slow
def test_a_transaction_of_two_gigabytes_in_bounded_memory() -> None:
    result = measure_memory(2000)
    assert result["received_bytes"] > 2_000_000_000
    assert result["peak_bytes"] < WANTED_PEAK_MB * 1_000_000
