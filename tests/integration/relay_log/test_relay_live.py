"""The relay log beside real servers: what is stored, what their own tools say about it, and how each dump ends."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
from typing import TYPE_CHECKING, NamedTuple

import pytest

from replica.errors import (
    DisconnectedError,
    DuplicateServerIdError,
    PositionLostError,
    PositionPurgedError,
    ReplicaError,
)
from replica.handshake.login.login import log_in
from replica.handshake.registration import Registration, register
from replica.live.session import Agreed, Session
from replica.protocol.gtid import BinlogPosition, GtidPosition
from replica.relay_log.location import relay_numbers, relay_path
from replica.relay_log.log import RelayLog
from replica.relay_writer.writer import RelayWriter
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.fixtures.replicas import replica_config
from tests.integration.connection.semisync.semi_sync import OPTIONS
from tools.bench.replica.bench_memory import WANTED_PEAK_MB
from tools.bench.replica.bench_memory import measure as measure_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.server

WAIT_S = 60
HEARTBEAT_S = 30.0
"""Three of them are silence enough to end a session: no test that is not about that may come near it."""


class Running(NamedTuple):
    session: Session
    task: asyncio.Task[None]
    thread_id: int

    async def cancel(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


async def start(
    server: MariaDb, relay: RelayWriter, *, semi_sync: bool = False, heartbeat_s: float = HEARTBEAT_S
) -> Running:
    """A running session at the relay log's position; the primary has begun its dump."""
    config = replica_config(server)
    login = await log_in(config, config.endpoints[0])
    wanted = Registration(
        server_id=4711,
        position=relay.position,
        heartbeat_s=heartbeat_s,
        semi_sync=semi_sync,
        strict_mode=False,
        annotate=True,
    )
    await login.run(register(wanted))
    detached = login.detach()
    session = Session(relay, Agreed(semi_sync=semi_sync, heartbeat_s=heartbeat_s))
    task = asyncio.ensure_future(_run(session, detached))
    await asyncio.to_thread(wait_until, lambda: task.done() or login.thread_id in server.dump_threads(), "the dump")
    return Running(session, task, login.thread_id)


async def _run(session: Session, detached: object) -> None:
    # The detached connection must live as long as its transport is used.
    await session.run(detached.transport, detached.leftover)  # type: ignore[attr-defined]


async def receive(server: MariaDb, relay: RelayWriter, target: str | None = None) -> None:
    """Receive up to the server's position, then hang up."""
    wanted = GtidPosition.parse(server.gtid_binlog_pos() if target is None else target)
    running = await start(server, relay)
    deadline = asyncio.get_running_loop().time() + WAIT_S
    while relay.position != wanted:
        assert not running.task.done(), running.task.exception()
        assert asyncio.get_running_loop().time() < deadline, f"{relay.position}, not {wanted}"
        await asyncio.sleep(0.01)
    await running.cancel()


async def ended(task: asyncio.Task[None]) -> ReplicaError:
    with pytest.raises(ReplicaError) as caught:
        await asyncio.wait_for(task, WAIT_S)
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


@pytest.fixture(scope="module")
def large(server_version: str) -> Iterator[MariaDb]:
    with MariaDb(server_version, *OPTIONS, "--max-allowed-packet=1G") as server:
        server.sql("CREATE DATABASE big", "CREATE TABLE big.t (b LONGBLOB) ENGINE=MyISAM")
        yield server


@pytest.mark.parametrize("semi_sync", [False, True])
@pytest.mark.edge(55)
async def test_rows_around_the_packet_limit(large: MariaDb, tmp_path: Path, *, semi_sync: bool) -> None:
    large.sql(f"SET GLOBAL rpl_semi_sync_master_enabled = {semi_sync:d}", "FLUSH BINARY LOGS")
    with RelayWriter.open(tmp_path, start=GtidPosition.parse(large.gtid_binlog_pos())) as relay:
        running = await start(large, relay, semi_sync=semi_sync)
        # One row of one LONGBLOB costs 38 bytes in its event, with its checksum.
        for event in (2**24 - 4, 2**24 - 3, 2**24 - 2, 2**24 - 1, 2**24, 2 * 0xFFFFFF - 1):
            await asyncio.to_thread(large.sql, f"INSERT INTO big.t VALUES (REPEAT('b', {event - 38}))")
        wanted = GtidPosition.parse(large.gtid_binlog_pos())
        await asyncio.to_thread(wait_until, lambda: relay.position == wanted, "all rows in the relay log")
        if semi_sync:
            assert running.session.progress.acknowledged == relay.head.primary
        await running.cancel()
    large.sql("SET GLOBAL rpl_semi_sync_master_enabled = 0", "SET sql_log_bin = 0", "TRUNCATE big.t")
    ours = [line for n in relay_numbers(tmp_path) for line in await sizes(large, relay_path(tmp_path, n))]
    theirs = [line for name in large.binlogs()[-1:] for line in await sizes(large, large.datadir / name)]
    assert ours == theirs
    assert len(ours) == 6


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
    server = make_server(server_version, *OPTIONS)

    def status(name: str) -> str:
        return str(server.sql(f"SHOW STATUS LIKE 'Rpl_semi_sync_master_{name}'")[0][1])

    def waits() -> bool:
        if status("clients") == "1":
            server.sql("CREATE OR REPLACE DATABASE waits")
        return (status("clients"), status("status")) == ("1", "ON")

    with RelayWriter.open(tmp_path) as relay:
        running = await start(server, relay, semi_sync=True)
        progress = running.session.progress
        await asyncio.to_thread(wait_until, waits, "the primary waits for the replica")
        before, unacknowledged = int(status("yes_tx")), status("no_tx")
        await asyncio.to_thread(write, server)
        wanted = GtidPosition.parse(server.gtid_binlog_pos())
        assert relay.position == wanted, "every commit returned after its acknowledgement"
        assert status("status") == "ON"
        assert status("no_tx") == unacknowledged
        assert int(status("yes_tx")) > before + 10
        assert progress.acknowledged == relay.head.primary
        await asyncio.to_thread(server.sql, "FLUSH BINARY LOGS", "INSERT INTO shop.m VALUES (9)")
        assert progress.acknowledged == relay.head.primary
        assert_end(server, progress.acknowledged)
        await running.cancel()
        # A dump that begins inside a file (11.4+ jumps there) must find the same positions.
        again = await start(server, relay, semi_sync=True)
        old = running.thread_id
        await asyncio.to_thread(wait_until, lambda: old not in server.dump_threads(), "the first one's dump has ended")
        await asyncio.to_thread(wait_until, waits, "the primary waits for the second")
        before = int(status("yes_tx"))
        await asyncio.to_thread(server.sql, "INSERT INTO shop.t (b) VALUES ('again')", "INSERT INTO shop.m VALUES (10)")
        assert int(status("yes_tx")) == before + 2
        assert again.session.progress.acknowledged == relay.head.primary
        assert_end(server, again.session.progress.acknowledged)
        await again.cancel()


def assert_end(server: MariaDb, place: BinlogPosition | None) -> None:
    """Not SHOW MASTER STATUS: the server appends a BINLOG_CHECKPOINT behind the last group whenever it likes."""
    assert place is not None
    assert place.file == server.binlogs()[-1]
    there = server.value(f"SELECT BINLOG_GTID_POS('{place.file}', {place.position})")
    assert GtidPosition.parse(there) == GtidPosition.parse(server.gtid_binlog_pos())


@pytest.mark.edge(57)
async def test_checksums_switched_off_and_on(
    make_server: Callable[..., MariaDb], server_version: str, tmp_path: Path
) -> None:
    server = make_server(server_version)
    server.sql("CREATE DATABASE c", "CREATE TABLE c.t (a INT)", "INSERT INTO c.t VALUES (1)")
    with RelayWriter.open(tmp_path) as relay:
        await receive(server, relay)
        for algorithm in ("NONE", "CRC32", "NONE"):
            running = await start(server, relay)
            server.sql(f"SET GLOBAL binlog_checksum = {algorithm}", "INSERT INTO c.t VALUES (2)")
            wanted = GtidPosition.parse(server.gtid_binlog_pos())
            await asyncio.to_thread(wait_until, lambda w=wanted: relay.position == w, "the row after the change")
            await running.cancel()
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
            running = await start(server, relay)
            for _ in range(20):
                await asyncio.to_thread(server.sql, "INSERT INTO k.t (b) VALUES (REPEAT('k', 3000))")
            await asyncio.to_thread(server.kill)
            assert type(await ended(running.task)) is DisconnectedError
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
        first = await start(server, relay)
        second = await start(server, other)  # the same server id
        assert type(await ended(first.task)) is DuplicateServerIdError
        server.sql(f"KILL QUERY {second.thread_id}")
        assert type(await ended(second.task)) is DisconnectedError
        third = await start(server, relay)
        server.sql(f"KILL {third.thread_id}")
        assert type(await ended(third.task)) is DisconnectedError
        fourth = await start(server, relay, heartbeat_s=0.2)
        # Before its first packet a server may be silent for long; it is reading its way to our position.
        heard = fourth.session.progress
        await asyncio.to_thread(wait_until, lambda: heard.heartbeats or fourth.task.done(), "it streams")
        server.signal(signal.SIGSTOP)
        try:
            error = await ended(fourth.task)
        finally:
            server.signal(signal.SIGCONT)
        assert type(error) is DisconnectedError
        assert "heartbeat" in str(error)
        fifth = await start(server, relay)
        await asyncio.to_thread(server.stop)
        assert type(await ended(fifth.task)) is DisconnectedError


@pytest.fixture(scope="module")
def purged(server_version: str) -> Iterator[MariaDb]:
    """0-1-4 is what it still has."""
    with MariaDb(server_version) as server:
        server.sql("CREATE DATABASE p", "CREATE TABLE p.t (a INT)", "INSERT INTO p.t VALUES (1)", "FLUSH BINARY LOGS")
        server.sql("INSERT INTO p.t VALUES (2)")
        server.purge_binlogs()
        yield server


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
    purged: MariaDb, tmp_path: Path, position: str, kind: type[ReplicaError]
) -> None:
    with RelayWriter.open(tmp_path, start=GtidPosition.parse(position)) as relay:
        error = await ended((await start(purged, relay)).task)
        assert type(error) is kind
        assert error.code == 1236
        assert error.hint


@pytest.mark.slow
def test_a_transaction_of_two_gigabytes_in_bounded_memory() -> None:
    result = measure_memory(2000)
    assert result["received_bytes"] > 2_000_000_000
    assert result["peak_bytes"] < WANTED_PEAK_MB * 1_000_000
