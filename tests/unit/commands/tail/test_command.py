"""`tail` as a command and as a process: options, what ends it, and what stands where."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from replica.commands.cli import program
from replica.commands.dump.output import BROKEN_PIPE
from replica.errors import ConfigError, DataLossError, RelayError, ReplicaError
from replica.relay_log.location import index_path, relay_path
from tests.fixtures.installation import PROJECT
from tests.unit.commands.tail.relay_logs import recorded_log

if TYPE_CHECKING:
    from pathlib import Path

ALONE = ": no changes arrive until its replica runs again."


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = recorded_log(tmp_path_factory.mktemp("relay"), "11.8", "transactions", max_file_bytes=700)
    return log.directory


def tail(directory: Path, *arguments: str) -> Result:
    return CliRunner().invoke(program, ["tail", "--relay-dir", str(directory), "--no-follow", *arguments])


def process(directory: Path, *arguments: str, **more: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "replica", "tail", "--relay-dir", str(directory), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=PROJECT, **more)


def gtids(done: Result) -> list[str]:
    assert done.exit_code == 0, done.exception
    return [line.split()[2] for line in done.stdout.splitlines() if not line.startswith(" ")]


def refusal(directory: Path, *arguments: str) -> ReplicaError:
    error = tail(directory, *arguments).exception
    assert isinstance(error, ReplicaError), error
    return error


def test_where_it_begins(directory: Path) -> None:
    every = gtids(tail(directory, "--from", "earliest"))
    assert gtids(tail(directory)) == []
    assert gtids(tail(directory, "-n", "3")) == every[-3:]
    assert gtids(tail(directory, "-n", "0")) == []
    # Behind a GTID of one domain: of that domain what follows, of the others what lies behind it in the log.
    assert gtids(tail(directory, "--from", "0-1-13")) == every[every.index("0-1-13") + 1 :]
    assert gtids(tail(directory, "--from", "0-1-31")) == []


def test_filters(directory: Path) -> None:
    assert {gtid.split("-")[0] for gtid in gtids(tail(directory, "--from", "earliest", "--gtid-domain", "7"))} == {"7"}
    text = tail(directory, "--from", "earliest", "--table", "v.m,v.c").stdout
    tables = {line.split()[1] for line in text.splitlines() if line.startswith("  insert")}
    assert tables == {"v.m", "v.c"}
    said = pairwise(text.splitlines())
    assert all("without rows: changes of v." in after for line, after in said if line.startswith("  sql  "))
    assert "CREATE DATABASE v" not in text
    only = tail(directory, "--from", "earliest", "--op", "statement").stdout
    assert "CREATE DATABASE v" in only
    assert "insert  v." not in only
    assert "CREATE DATABASE v" not in tail(directory, "--from", "earliest", "--op", "insert").stdout


def test_json_and_count(directory: Path) -> None:
    done = tail(directory, "--from", "earliest", "--json", "--count", "2")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["gtid"] for row in rows] == ["0-1-4", "0-1-4", "0-1-5"]
    assert {"gtid", "ordinal", "commit_time", "file", "position", "op", "database", "table", "before", "after"} == set(
        rows[0]
    )


def test_colours_on_demand_only(directory: Path) -> None:
    assert "\x1b" not in tail(directory, "-n", "1").stdout
    assert "\x1b[36m" in tail(directory, "-n", "1", "--color", "always").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--from", "yesterday"), "--from: 'yesterday' is neither latest nor earliest"),
        (("--from", "3-1-1"), "no transaction of domain 3"),
        (("--from", "earliest", "-n", "1"), "-n counts back from the end"),
        (("--table", "orders"), "'orders' is not of the form database.table"),
        (("--direct",), "--direct and --relay-dir exclude each other"),
        (("--schema", "/nowhere/schema.sql"), "/nowhere/schema.sql"),
    ],
)
def test_what_is_refused(directory: Path, arguments: tuple[str, ...], words: str) -> None:
    error = refusal(directory, *arguments)
    assert isinstance(error, ConfigError)
    assert words in str(error)


def test_nothing_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MARIADB_REPLICA_RELAY_DIR", raising=False)
    error = CliRunner().invoke(program, ["tail"]).exception
    assert isinstance(error, ConfigError)
    assert "neither a relay log nor a primary is given" in str(error)


def test_no_relay_log(tmp_path: Path) -> None:
    assert isinstance(refusal(tmp_path / "nowhere"), RelayError)
    (tmp_path / "letter").write_text("dear")
    assert "holds no relay log" in str(refusal(tmp_path))


def test_the_directory_may_come_from_the_environment_or_the_daemons_file(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARIADB_REPLICA_RELAY_DIR", str(directory))
    here = CliRunner().invoke(program, ["tail", "--no-follow", "-n", "1"])
    assert len(gtids(here)) == 1
    monkeypatch.delenv("MARIADB_REPLICA_RELAY_DIR")
    file = tmp_path / "replica.toml"
    file.write_text(f'relay_dir = "{directory}"\nretain_s = "1d"\n')
    assert gtids(CliRunner().invoke(program, ["tail", "--no-follow", "-n", "1", "--config", str(file)])) == gtids(here)


def test_a_purged_start(tmp_path: Path) -> None:
    log = recorded_log(tmp_path, "11.8", "transactions", max_file_bytes=700)
    for number in (1, 2, 3):
        relay_path(log.directory, number).unlink()
        index_path(log.directory, number).unlink()
    error = refusal(tmp_path, "--from", "0-1-1")
    assert isinstance(error, DataLossError)
    assert "Use --from earliest to start" in str(error)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_every_signal_to_end_is_a_clean_end(
    directory: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    before = signal.getsignal(number)
    monkeypatch.setattr("replica.commands.tail.command.sleeper", lambda _: lambda _: signal.raise_signal(number))
    done = CliRunner().invoke(program, ["tail", "--relay-dir", str(directory), "-n", "1"])
    assert len(gtids(done)) == 1
    assert done.stderr == f"mariadb-replica: no process writes {directory} now{ALONE}\n"
    assert signal.getsignal(number) == before


def test_a_process_ends_cleanly_when_it_is_told_to(directory: Path) -> None:
    with process(directory, "-n", "1") as running:
        assert running.stdout is not None
        assert running.stdout.readline()
        assert running.stderr is not None
        assert running.stderr.readline() == f"mariadb-replica: no process writes {directory} now{ALONE}\n".encode()
        running.send_signal(signal.SIGTERM)
        _, said = running.communicate(timeout=60)
        assert (running.returncode, said) == (0, b"")


def test_a_reader_that_goes_away_ends_it_although_nothing_is_written(directory: Path) -> None:
    with process(directory, "-n", "1") as running:
        assert running.stdout is not None
        assert running.stdout.readline()
        running.stdout.close()
        assert running.wait(60) == BROKEN_PIPE
        assert running.stderr is not None
        assert b"Traceback" not in running.stderr.read()


def test_on_a_terminal_it_has_colours_and_says_what_it_follows(directory: Path) -> None:
    master, terminal = pty.openpty()
    command = [sys.executable, "-m", "replica", "tail", "--relay-dir", str(directory), "-n", "2"]
    environment = {**os.environ, "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(command, stdout=terminal, stderr=terminal, cwd=PROJECT, env=environment) as running:
        os.close(terminal)
        text, deadline = b"", time.monotonic() + 60
        while b"DROP DATABASE" not in text and time.monotonic() < deadline:
            text += os.read(master, 4096)
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 0
        with contextlib.suppress(OSError):  # EIO: nobody has the other end any more
            while more := os.read(master, 4096):
                text += more
    os.close(master)
    assert f"following {directory} from ".encode() in text
    assert b"Ctrl-C ends it" in text
    assert b"\x1b[36m" in text
    assert b"2 transactions, 0 rows" in text
