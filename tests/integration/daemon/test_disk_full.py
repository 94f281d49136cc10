"""A disk that is full, or nearly: receiving stands still, nothing acknowledged is lost, and it goes on by itself."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from replica.errors import RelayError
from replica.live.embedded import EmbeddedReplica
from replica.protocol.gtid import GtidPosition
from replica.relay_writer.open_file import RESERVE_BYTES
from tests.fixtures.logs.listing import relay_gtids, server_gtids
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.fixtures.replicas import replica_config
from tests.fixtures.small_disk import MountRefusedError, small_disk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from replica.options.config import ReplicaConfig

pytestmark = pytest.mark.server

WAIT_S = 60.0
DISK_MEBIBYTES = 48
LONG_HEARTBEAT_S = 3600
OPTIONS = ("--rpl-semi-sync-master-enabled=ON", "--rpl-semi-sync-master-wait-no-slave=OFF")


@pytest.fixture(scope="module")
def primary() -> Iterator[MariaDb]:
    with MariaDb(None, *OPTIONS) as server:
        server.sql("CREATE DATABASE d", "CREATE TABLE d.t (a MEDIUMBLOB)")
        yield server


@pytest.fixture(autouse=True)
def _quick_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replica.live.backpressure.DISK_RETRY_S", 0.1)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with contextlib.ExitStack() as stack:
        try:
            mounted = stack.enter_context(small_disk(tmp_path, DISK_MEBIBYTES))
        except MountRefusedError as error:
            pytest.skip(f"no disk of our own here ({error}); the test with made-up errors runs")
        yield mounted


@contextlib.contextmanager
def streaming(config: ReplicaConfig, directory: Path) -> Iterator[tuple[EmbeddedReplica, Sequence[Mapping[str, Any]]]]:
    """A replica that is connected, and what it logs."""
    with (
        structlog.testing.capture_logs() as logs,
        EmbeddedReplica(config, directory, log=structlog.get_logger()) as replica,
    ):
        replica.start(None)
        wait_until(lambda: replica.progress.connections, "connected")
        yield replica, logs


def fill(disk: Path, leave_bytes: int) -> Path:
    """Take the disk but for `leave_bytes`."""
    filler = disk / "filler"
    status = os.statvfs(disk)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, status.f_bavail * status.f_frsize - leave_bytes)
    return filler


def write_mebibytes(server: MariaDb, count: int) -> None:
    for _ in range(count):
        server.sql("INSERT INTO d.t VALUES (REPEAT('x', 1000000))")


def caught_up(server: MariaDb, replica: EmbeddedReplica) -> bool:
    return replica.wait_for(GtidPosition.parse(server.gtid_binlog_pos()), WAIT_S)


def events(logs: Sequence[Mapping[str, Any]], name: str) -> list[Mapping[str, Any]]:
    return [entry for entry in logs if entry["event"] == name]


def test_a_full_disk_is_waited_for(primary: MariaDb, disk: Path) -> None:
    before = len(server_gtids(primary))
    config = replica_config(primary, semi_sync=True, heartbeat_s=LONG_HEARTBEAT_S, min_free_bytes=1)
    # No option allows this: where a write happens to take the last byte, receiving would pause before the next fails.
    config = config.model_copy(update={"min_free_bytes": 0})
    with streaming(config, disk / "relay") as (replica, logs):
        progress = replica.progress
        write_mebibytes(primary, 1)
        assert caught_up(primary, replica)
        filler = fill(disk, 3 << 20)
        write_mebibytes(primary, RESERVE_BYTES // (1 << 20) + 6)
        wait_until(lambda: progress.state == "disk full", "the disk is full")
        wait_until(lambda: not primary.dump_threads(), "the primary knows that we left")
        head = replica.head()
        assert replica.log.locate(head.position) == head.location, "what came before can be read meanwhile"
        assert progress.connections == 1
        assert progress.disk_full_events == 1
        wait_until(lambda: progress.paused_s > 0.5, "it is looked at again and again")
        assert progress.state == "disk full"
        filler.unlink()
        assert caught_up(primary, replica)
        assert (progress.state, progress.connections) == ("streaming", 2)
        write_mebibytes(primary, 1)
        assert caught_up(primary, replica)
    assert relay_gtids(primary, disk / "relay") == server_gtids(primary)[before:]
    (said,) = events(logs, "disk full")
    assert said["relay_dir"] == str(disk / "relay")
    assert isinstance(said["free_bytes"], int)
    assert len(events(logs, "disk has room again")) == 1


def test_a_disk_that_is_nearly_full_makes_receiving_pause(primary: MariaDb, disk: Path) -> None:
    before = len(server_gtids(primary))
    config = replica_config(primary, heartbeat_s=0.2, min_free_bytes=8 << 20)
    with streaming(config, disk / "relay") as (replica, logs):
        progress = replica.progress
        write_mebibytes(primary, 1)
        assert caught_up(primary, replica)
        filler = fill(disk, 9 << 20)
        write_mebibytes(primary, RESERVE_BYTES // (1 << 20) + 6)
        wait_until(lambda: progress.state == "paused", "receiving pauses")
        assert progress.pause == "disk nearly full"
        assert os.statvfs(disk).f_bavail > 0
        # Longer than the silence that ends a connection: a pause is not one.
        before_it = (progress.connections, progress.disconnects)
        wait_until(lambda: progress.paused_s > 1.0, "it stands still")
        assert (progress.connections, progress.disconnects) == before_it
        filler.unlink()
        assert caught_up(primary, replica)
        wait_until(lambda: progress.state == "streaming", "it streams")
        assert not progress.pause
    assert relay_gtids(primary, disk / "relay") == server_gtids(primary)[before:]
    (said,) = events(logs, "receiving paused")
    assert said["reason"] == "disk nearly full"
    assert "rpl_semi_sync_master_timeout" in str(said["hint"])
    assert len(events(logs, "receiving goes on")) == 1


def test_made_up_errors_are_waited_for_too(primary: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(server_gtids(primary))
    real = os.pwrite
    full = False

    def maybe(descriptor: int, data: bytes, offset: int) -> int:
        if full and len(data) > 500:  # what recovery writes fits in
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        return real(descriptor, data, offset)

    monkeypatch.setattr("os.pwrite", maybe)
    config = replica_config(primary, semi_sync=True, heartbeat_s=LONG_HEARTBEAT_S, min_free_bytes=1)
    with streaming(config, tmp_path) as (replica, logs):
        for _ in range(3):
            full = True
            write_mebibytes(primary, 1)
            wait_until(lambda: replica.progress.state == "disk full", "the quota is reached")
            if replica.head().location.offset == 0:
                # The disk says that it has room, so it is tried; with files to recover there it would refuse that too.
                wait_until(lambda: replica.progress.disk_full_events >= 3, "it is tried again")
            full = False
            assert caught_up(primary, replica)
        full = True
        write_mebibytes(primary, 1)
        wait_until(lambda: replica.progress.state == "disk full", "the quota is reached")
        replica.close()
        assert replica.progress.state == "stopped", "a full disk is no reason not to stop"
        full = False
    assert len(events(logs, "disk full")) == 4, "once each time, not at every try"
    with EmbeddedReplica(replica_config(primary), tmp_path) as replica:
        replica.start(None)
        assert caught_up(primary, replica)
    assert relay_gtids(primary, tmp_path) == server_gtids(primary)[before:]


def test_another_error_of_the_disk_ends_it_and_the_primary_is_told(
    primary: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    config = replica_config(primary, semi_sync=True, heartbeat_s=LONG_HEARTBEAT_S)
    with EmbeddedReplica(config, tmp_path) as replica:
        replica.start(None)
        wait_until(lambda: replica.progress.connections, "connected")
        monkeypatch.setattr("os.pwrite", refuse)
        write_mebibytes(primary, 1)
        with pytest.raises(RelayError, match="Input/output"):
            replica.wait_for(GtidPosition.parse("4294967295-1-1"), WAIT_S)
        monkeypatch.undo()
        wait_until(lambda: not primary.dump_threads(), "the primary knows that we left")
        assert replica.progress.state == "failed"
