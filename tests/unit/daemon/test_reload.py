"""Options that are read again: which of them count at once, what is said, and that a bad file changes nothing."""

from __future__ import annotations

import asyncio
import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from replica.daemon.config import DaemonConfig
from replica.daemon.logs import LogWriter
from replica.daemon.retain import Retaining
from replica.daemon.run import RELOADED, Reloader, differences
from replica.live.client import Replica
from replica.options.values import Endpoint
from replica.protocol.gtid import GtidPosition
from replica.relay_writer.writer import RelayWriter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET = "marker-of-a-secret"


class Running:
    """A daemon's parts, not connected, with their options in a file."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "replica.toml"
        self.write(retain_s="1d", log_level="error")
        self.config = self.read()
        self._stream = io.StringIO()
        self._logs = LogWriter(style="json", level=self.config.log_level, stream=self._stream)
        self.relay = RelayWriter.open(folder / "relay", start=GtidPosition)
        self.replica = Replica(self.config, self.relay, log=self._logs.logger)
        self.retaining = Retaining(self.config, folder / "relay", self._logs.logger)
        self.reloader = Reloader(self.config, self.read, self._logs)

    def write(self, text: str = "", **options: object) -> None:
        given: dict[str, object] = {"user": "repl", "host": "a,b", "password": SECRET} | options
        self.file.write_text(text + "".join(f"{name} = {json.dumps(value)}\n" for name, value in given.items()))

    def read(self) -> DaemonConfig:
        return DaemonConfig.from_file(self.file, {})

    async def reload(self, times: int = 1) -> None:
        serving = asyncio.create_task(self.reloader.serve(self.replica, self.retaining))
        said = self._stream.getvalue().count("\n")
        self.reloader.ask()
        while self._stream.getvalue().count("\n") < said + times:  # noqa: ASYNC110  (another thread writes)
            await asyncio.sleep(0.001)
        serving.cancel()

    def lines(self) -> list[dict[str, Any]]:
        assert SECRET not in self._stream.getvalue()
        return [json.loads(line) for line in self._stream.getvalue().splitlines()]

    def end(self) -> None:
        self._logs.close()
        self.relay.close()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    parts = Running(tmp_path)
    yield parts
    parts.end()


async def test_hosts_retention_and_log_level_change_at_once_and_the_rest_is_named(running: Running) -> None:
    running.write(host="b,c:3307", retain_s="2h", retain_bytes="1g", log_level="info", http_listen=":9306")
    await running.reload()
    (line,) = running.lines()
    assert (line["event"], line["changed"]) == ("reloaded", "host, retain_s, retain_bytes, log_level")
    assert line["needs_restart"] == "http_listen"
    policy = running.retaining._retention.policy
    assert (policy.retain_s, policy.retain_bytes) == (7200, 1 << 30)
    assert running.replica._config.endpoints == (Endpoint("b", 3306), Endpoint("c", 3307))
    # What changed counts as running now, what needs a restart is told again, and `info` lines are wanted.
    await running.reload()
    assert [(line["changed"], line["needs_restart"]) for line in running.lines()[1:]] == [("", "http_listen")]


async def test_a_file_that_is_wrong_changes_nothing_and_says_why(running: Running) -> None:
    running.write(retain_s="2h", retian_bytes="1g")
    await running.reload()
    running.write("[section]\n", retain_s="2h")
    await running.reload()
    running.file.unlink()
    await running.reload()
    assert [line["event"] for line in running.lines()] == ["not reloaded"] * 3
    assert "unknown option 'retian_bytes'" in running.lines()[0]["message"]
    assert "Did you mean retain_bytes?" in running.lines()[0]["hint"]
    assert "has a section" in running.lines()[1]["message"]
    assert "cannot be read" in running.lines()[2]["message"]
    assert running.retaining._retention.policy.retain_s == 86_400
    running.write(retain_s="3h")
    await running.reload()
    assert running.lines()[-1]["changed"] == "retain_s, log_level"


async def test_a_bug_is_logged_and_the_next_signal_is_answered(running: Running) -> None:
    def broken() -> DaemonConfig:
        raise RuntimeError("a bug")

    running.reloader._read_config = broken
    await running.reload()
    running.reloader._read_config = running.read
    await running.reload()
    assert [line["event"] for line in running.lines()] == ["internal error", "reloaded"]


def test_a_secret_is_compared_and_a_drawn_server_id_is_not() -> None:
    def config(**options: object) -> DaemonConfig:
        return DaemonConfig.parse({"user": "repl"} | options)

    assert differences(config(), config()) == []
    assert differences(config(password="one"), config(password="other")) == ["password"]
    assert differences(config(server_id=5), config()) == ["server_id"]
    assert differences(config(), config(server_id=5)) == ["server_id"]


def test_what_changes_without_a_restart_is_an_option() -> None:
    assert set(DaemonConfig.model_fields) >= RELOADED
