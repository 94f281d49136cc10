from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest
import structlog

from replica.client import Replica
from replica.config import ReplicaConfig
from replica.errors import ConfigError, DisconnectedError, describe
from replica.relay.writer import RelayWriter

if TYPE_CHECKING:
    from pathlib import Path


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_servers_are_tried_in_turn_with_growing_waits_until_patience_ends(tmp_path: Path) -> None:
    ports = closed_port(), closed_port()
    config = ReplicaConfig.parse(
        {
            "user": "repl",
            "password": "a-secret",
            "host": ",".join(f"127.0.0.1:{port}" for port in ports),
            "backoff_initial_s": 0.01,
            "backoff_max_s": 0.05,
            "connect_retry_s": 0.4,
        }
    )
    with structlog.testing.capture_logs() as logs, RelayWriter.open(tmp_path) as relay:
        replica = Replica(config, relay, log=structlog.get_logger())
        with pytest.raises(DisconnectedError, match="no connection to") as caught:
            await replica.run()
    assert "connect_retry_s" in caught.value.hint
    tried = [entry["endpoint"] for entry in logs if entry["event"] == "not connected"]
    assert len(tried) > 3
    assert tried[:4] == [f"127.0.0.1:{port}" for port in (*ports, *ports)]
    waits = [entry["wait_s"] for entry in logs if entry["event"] == "reconnecting"]
    assert all(0 <= wait <= 0.05 for wait in waits)
    assert "a-secret" not in str(logs)
    assert replica.progress.connections == 0


async def test_a_permanent_error_is_not_tried_again(tmp_path: Path) -> None:
    config = ReplicaConfig.parse({"user": "repl", "password_file": tmp_path / "missing", "connect_retry_s": 60})
    with RelayWriter.open(tmp_path / "relay") as relay:
        replica = Replica(config, relay, log=structlog.get_logger())
        with pytest.raises(ConfigError, match="password_file"):
            await replica.run()


async def test_cancelling_ends_a_wait_for_the_next_attempt(tmp_path: Path) -> None:
    config = ReplicaConfig.parse(
        {
            "user": "repl",
            "port": closed_port(),
            "backoff_initial_s": 1000,
            "backoff_max_s": 1000,
            "connect_retry_s": 1000,
        }
    )
    with RelayWriter.open(tmp_path) as relay:
        task = asyncio.ensure_future(Replica(config, relay, log=structlog.get_logger()).run())
        await asyncio.sleep(0.05)
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
