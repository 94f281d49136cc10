from __future__ import annotations

import json
import socketserver
import threading
import time
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from replica.commands.status import WORST_FIRST, status
from replica.daemon.http import HttpServer, as_json
from replica.daemon.status import verdict
from replica.daemon.status.record import write_status
from replica.errors import ConfigError, DisconnectedError, ProtocolError, RelayError
from replica.relay_log.directory.lock import RelayLock
from replica.relay_writer.writer import RelayWriter
from tests.unit.daemon.records import record

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the machine stands still between two steps of a test."""
    monkeypatch.setattr("replica.daemon.status.verdict.STALE_S", 3600.0)
    monkeypatch.setattr("replica.commands.status.ANSWER_TIMEOUT_S", 60.0)


def asked(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(status, arguments)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def test_a_folder_that_was_never_a_relay_log(tmp_path: Path) -> None:
    with pytest.raises(RelayError, match="holds no relay log"):
        asked("--relay-dir", str(tmp_path))
    with pytest.raises(RelayError, match="is not a folder"):
        asked("--relay-dir", str(tmp_path / "none"))


@pytest.mark.parametrize("arguments", [(), ("--relay-dir", "x", "--url", "y"), ("--url", "ftp://host")])
def test_what_has_no_meaning(arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MARIADB_REPLICA_RELAY_DIR", raising=False)
    with pytest.raises(ConfigError):
        asked(*arguments)


def test_a_daemon_that_writes_its_status(tmp_path: Path) -> None:
    with RelayLock(tmp_path):
        write_status(tmp_path, record(written_at=time.time()))
        code, text = asked("--relay-dir", str(tmp_path))
        assert (code, text.splitlines()[0]) == (0, "healthy")
        code, text = asked("--relay-dir", str(tmp_path), "--json")
    seen = json.loads(text)
    assert (code, seen["verdict"]["exit_code"], seen["status"]["pid"]) == (0, 0, 4711)


def test_where_the_log_of_a_daemon_that_is_gone_ends(tmp_path: Path) -> None:
    RelayWriter.open(tmp_path).close()
    write_status(tmp_path, record(written_at=time.time() - 7200))
    code, text = asked("--relay-dir", str(tmp_path))
    assert code == 3
    assert "ended without a final status" in text
    assert "log ends" in text


def test_the_folder_comes_from_the_daemons_own_configuration(tmp_path: Path) -> None:
    relay, file = tmp_path / "relay", tmp_path / "replica.toml"
    RelayWriter.open(relay).close()
    file.write_text(f'relay_dir = "{relay}"\nuser = "repl"\n')
    assert asked("--config", str(file))[0] == 3


def test_over_http() -> None:
    server = HttpServer(("127.0.0.1", 0), {"/status": lambda: as_json(200, record().model_dump(mode="json"))})
    server.start()
    try:
        assert asked("--url", f"http://{server.address}/")[0] == 0
        code, text = asked("--url", f"http://{server.address}/status", "--json")
        assert (code, json.loads(text)["status"]) == (0, record().model_dump(mode="json"))
        with pytest.raises(DisconnectedError, match=r"does not answer.* ask with http://"):
            asked("--url", f"https://{server.address}")
    finally:
        server.stop()
    with pytest.raises(DisconnectedError, match="does not answer"):
        asked("--url", f"http://{server.address}")


class Stranger(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.recv(1000)
        self.request.sendall(b"HTTP/1.0 200 OK\r\n\r\n<html>")


def test_something_else_over_http() -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), Stranger) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        with pytest.raises(ProtocolError, match="does not return the status of a replica"):
            asked("--url", f"http://127.0.0.1:{server.server_address[1]}")
        server.shutdown()


def test_several_have_a_line_each_and_one_exit_code(tmp_path: Path) -> None:
    up, down, none = tmp_path / "up", tmp_path / "down", tmp_path / "none"
    for folder in (up, down):
        folder.mkdir()
        write_status(folder, record(written_at=time.time()))
    with RelayLock(up):
        code, text = asked(str(up), str(down))
        assert code == 3
        lines = text.splitlines()
        assert lines[0].startswith(f"{up}    healthy")
        assert lines[1].startswith(f"{down}  not running: it ended without a final status")
        assert lines[2] == "1 of 2 healthy"
        code, text = asked(str(down), str(none), str(up), "--json")
        assert asked(str(up)) == asked("--relay-dir", str(up))
    seen = json.loads(text)
    assert code == seen["exit_code"] == RelayError.exit_code  # what cannot be looked at is worst
    assert [one["folder"] for one in seen["daemons"]] == [str(down), str(none), str(up)]
    assert [one.get("verdict", one.get("error"))["exit_code"] for one in seen["daemons"]] == [3, 70, 0]


def test_every_code_of_a_verdict_has_its_rank() -> None:
    assert sorted(WORST_FIRST) == sorted(value for value in vars(verdict).values() if type(value) is int)


def test_clusters_have_a_column_and_a_row(tmp_path: Path) -> None:
    names = {"a": "shop", "b": "", "c": "warehouse"}
    for folder, cluster in names.items():
        (tmp_path / folder).mkdir()
        write_status(tmp_path / folder, record(written_at=time.time(), cluster=cluster))
    _, text = asked(*(str(tmp_path / folder) for folder in names))
    found = [line.removeprefix(str(tmp_path)).split() for line in text.splitlines()]
    assert [line[1] for line in found[:3]] == ["shop", "not", "warehouse"]
    assert len({line.index("not running") for line in text.splitlines()[:3]}) == 1
    _, text = asked(str(tmp_path / "a"))
    assert ["cluster", "shop"] in [line.split() for line in text.splitlines()]
    _, text = asked("--json", str(tmp_path / "a"))
    assert json.loads(text)["status"]["cluster"] == "shop"
