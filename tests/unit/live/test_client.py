from __future__ import annotations

import asyncio
import re
import socket
from typing import TYPE_CHECKING

import pytest
import structlog

from replica.errors import ConfigError, DisconnectedError, describe
from replica.live.client import Replica
from replica.options.config import ReplicaConfig
from replica.relay_writer.writer import RelayWriter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def closed_ports() -> Iterator[tuple[int, int]]:
    """Two that refuse every connection: bound all the while, so that nobody else can listen there."""
    with socket.socket() as one, socket.socket() as other:
        for probe in (one, other):
            probe.bind(("127.0.0.1", 0))
        yield one.getsockname()[1], other.getsockname()[1]


def patient(ports: tuple[int, int], connect_retry_s: float, **more: object) -> ReplicaConfig:
    given = {"user": "repl", "password": "a-secret", "host": ",".join(f"127.0.0.1:{port}" for port in ports)}
    return ReplicaConfig.parse(given | {"connect_retry_s": connect_retry_s} | more)


async def failed_attempts(replica: Replica, count: int) -> None:
    async with asyncio.timeout(60):
        while replica.progress.failed_attempts < count:  # noqa: ASYNC110  (it tells nobody)
            await asyncio.sleep(0.001)


async def test_servers_are_tried_in_turn_with_growing_waits(tmp_path: Path, closed_ports: tuple[int, int]) -> None:
    config = patient(closed_ports, 1000, backoff_initial_s=0.01, backoff_max_s=0.05)
    with structlog.testing.capture_logs() as logs, RelayWriter.open(tmp_path) as relay:
        replica = Replica(config, relay, log=structlog.get_logger())
        running = asyncio.ensure_future(replica.run())
        await failed_attempts(replica, 7)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    tried = [entry["endpoint"] for entry in logs if entry["event"] == "not connected"]
    assert tried[:6] == [f"127.0.0.1:{port}" for port in closed_ports] * 3
    again = [entry for entry in logs if entry["event"] == "reconnecting"]
    for number, entry in enumerate(again[:6]):  # behind the first server's failure it is the second one's turn
        failed, next_one = closed_ports[number % 2], closed_ports[1 - number % 2]
        assert entry["endpoint"] == f"127.0.0.1:{next_one}"
        assert re.search(f"no connection to 127.0.0.1:{failed}.*failed", entry["reason"])
    waits = [entry["wait_s"] for entry in again]
    limits = [0.01, 0.02, 0.04, *[0.05] * len(waits)]
    assert all(0 <= wait <= limit for wait, limit in zip(waits, limits, strict=False))
    assert "a-secret" not in str(logs)
    assert replica.progress.connections == 0


async def test_patience_ends(tmp_path: Path, closed_ports: tuple[int, int]) -> None:
    config = patient(closed_ports, 0.1, backoff_initial_s=0.01)
    with RelayWriter.open(tmp_path) as relay:
        replica = Replica(config, relay, log=structlog.get_logger())
        with pytest.raises(DisconnectedError, match="no connection to") as caught:
            await replica.run()
    assert "connect_retry_s" in caught.value.hint


async def test_a_permanent_error_is_not_tried_again(tmp_path: Path) -> None:
    config = ReplicaConfig.parse({"user": "repl", "password_file": tmp_path / "missing", "connect_retry_s": 60})
    with RelayWriter.open(tmp_path / "relay") as relay:
        replica = Replica(config, relay, log=structlog.get_logger())
        with pytest.raises(ConfigError, match="password_file"):
            await replica.run()


async def test_cancelling_ends_a_wait_for_the_next_attempt(tmp_path: Path, closed_ports: tuple[int, int]) -> None:
    config = patient(closed_ports, 1000, backoff_initial_s=1000, backoff_max_s=1000)
    with RelayWriter.open(tmp_path) as relay:
        replica = Replica(config, relay, log=structlog.get_logger())
        task = asyncio.ensure_future(replica.run())
        await failed_attempts(replica, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def test_errors_are_described_with_advice_and_exit_code() -> None:
    assert describe(ConfigError("port is bad", hint="Use 3306.")) == {
        "error": "ConfigError",
        "message": "port is bad",
        "hint": "Use 3306.",
        "exit_code": 20,
    }
