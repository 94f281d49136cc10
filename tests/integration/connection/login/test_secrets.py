"""A password that appears nowhere: the program in each of its ways to fail, and at work; all it writes is searched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
import urllib.request
from typing import TYPE_CHECKING, NamedTuple

import pytest

from replica.commands.cli import main
from replica.errors import AuthenticationError, ConfigError
from replica.handshake.login.login import log_in
from replica.options.config import Endpoint, ReplicaConfig
from tests.fixtures.installation import PROJECT
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.fixtures.network.man_in_the_middle import ManInTheMiddle
from tests.fixtures.ports import reserved_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.server

MARKER = "xyzzy-marked-secret-4711"
GIVEN = {"MARIADB_REPLICA_PASSWORD": MARKER}
WAIT_S = 60


class Attempt(NamedTuple):
    """One call of the program: its arguments, what the environment adds, the exit code it must have."""

    arguments: tuple[str, ...]
    environment: dict[str, str]
    code: int


@pytest.fixture(scope="module")
def primary() -> Iterator[MariaDb]:
    with MariaDb(tls=True) as server:
        server.add_user("repl", MARKER, grants="REPLICATION SLAVE, REPLICATION MASTER ADMIN, SELECT")
        server.add_user("other", "another password")
        yield server


def started(attempt: Attempt) -> subprocess.Popen[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MARIADB_REPLICA_")}
    command = [sys.executable, "-m", "replica", *attempt.arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=PROJECT, env=environment | attempt.environment, stdout=pipe, stderr=pipe, text=True
    )


def written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return str(path)


def where(server: MariaDb, port: int = 0) -> tuple[str, ...]:
    return ("--host", server.host, "--port", str(port or server.port))


def held(attempt: Attempt, code: int | None, text: str) -> None:
    shown = " ".join(attempt.arguments).replace(MARKER, "…")
    assert code == attempt.code, f"{shown}: {text}"
    assert text
    assert MARKER not in text, shown


def checked(attempt: Attempt, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The program in this process: most of its failures are over before Python would have started."""
    with monkeypatch.context() as patched:
        patched.setattr(sys, "argv", ["mariadb-replica", *attempt.arguments])
        for name, value in attempt.environment.items():
            patched.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            main()
    told = capfd.readouterr()
    held(attempt, ended.value.code if isinstance(ended.value.code, int) else None, told.out + told.err)


def test_no_way_to_give_it_makes_a_refused_login_tell_it(
    primary: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    toml = written(tmp_path / "good.toml", f"user = 'other'\npassword = '{MARKER}'\n")
    option_file = written(tmp_path / "my.cnf", f"[client]\nuser=other\npassword='{MARKER}'\n")
    password_file = written(tmp_path / "password", MARKER)
    other = (*where(primary), "--user", "other")
    for arguments, given in (
        ((*other, "--password", MARKER), {}),
        ((*other, "--json"), GIVEN),
        ((*other, "--password-file", password_file), {}),
        ((*where(primary), "--config", toml), {}),
        ((*where(primary), "--defaults-file", option_file), {}),
    ):
        checked(Attempt(("check", *arguments), given, 31), monkeypatch, capfd)


def test_no_mistake_in_an_option_tells_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    bad_toml = written(tmp_path / "bad.toml", f"user = 'other'\npassword = {MARKER}\n")
    no_text = written(tmp_path / "list.toml", f"user = 'other'\npassword = ['{MARKER}']\n")
    bad_option_file = written(tmp_path / "bad.cnf", f"password='{MARKER}'\n[client]\n")
    own_group = written(tmp_path / "own.cnf", f"[mariadb-replica]\nuser=other\npasword={MARKER}\n")
    password_file = written(tmp_path / "password", MARKER)
    (tmp_path / "latin1").write_bytes(MARKER.encode() + b"\xe4")
    for arguments, given in (
        (("--user", "u", "--config", bad_toml), {}),
        (("--user", "u", "--config", no_text), {}),
        (("--defaults-file", bad_option_file), {}),
        (("--defaults-file", own_group), {}),
        (("--user", "u", "--password-file", str(tmp_path / "latin1")), {}),
        (("--user", "u", "--password-file", password_file), GIVEN),
        (("--user", "u", "--port", "no-number"), GIVEN),
        (("--user", "u", "--no-such-option"), GIVEN),
        (("--user", "u"), GIVEN | {"MARIADB_REPLICA_PASWORD": MARKER}),
        (("--user", "u", "--host", f"mysql://u:{MARKER}@db1/"), {}),
        (("--user", "u", "--host", f"u:{MARKER}@db1"), {}),
    ):
        checked(Attempt(("check", *arguments), given, 20), monkeypatch, capfd)


def test_no_server_gets_it_out_of_a_daemon(primary: MariaDb, tmp_path: Path) -> None:
    certificates = primary.certificates
    assert certificates is not None
    with (
        ManInTheMiddle(primary.host, primary.port, certificates) as man,
        ManInTheMiddle(primary.host, primary.port, certificates, asks_for="mysql_clear_password") as asker,
        reserved_port() as nobody,
    ):
        ways = (
            (*where(primary), "--user", "other"),
            (*where(primary, man.port), "--user", "repl", "--tls", "verify-ca"),
            (*where(primary, asker.port), "--user", "repl", "--tls", "verify-password"),
            ("--host", f"127.0.0.1:{nobody}", "--user", "repl", "--connect-retry", "0.1"),
        )
        attempts = [
            Attempt(("run", *way, "--relay-dir", str(tmp_path / str(n))), GIVEN, 31 if n < 3 else 40)
            for n, way in enumerate(ways)
        ]
        for attempt, process in [(attempt, started(attempt)) for attempt in attempts]:
            out, err = process.communicate(timeout=WAIT_S)
            held(attempt, process.returncode, out + err)
        assert MARKER.encode() not in man.heard + asker.heard


@pytest.fixture
def http_port() -> Iterator[int]:
    with reserved_port() as port:
        yield port


def test_nor_does_a_daemon_at_work(primary: MariaDb, tmp_path: Path, http_port: int) -> None:
    option_file = written(tmp_path / "my.cnf", f"[client]\nuser=repl\npassword='{MARKER}'\n")
    directory = tmp_path / "relay"
    arguments = (
        *("run", "--defaults-file", option_file, *where(primary), "--relay-dir", str(directory)),
        *("--http-listen", f"127.0.0.1:{http_port}", "--log-level", "debug", "--tls", "required", "--compress"),
    )
    process = started(Attempt(arguments, {}, 0))
    try:
        wait_until(primary.dump_threads, "the daemon to replicate")
        primary.sql("CREATE OR REPLACE DATABASE secret_work")
        pages = [
            urllib.request.urlopen(f"http://127.0.0.1:{http_port}/{page}", timeout=WAIT_S).read().decode()
            for page in ("metrics", "status", "healthz")
        ]
        wait_until(lambda: any(directory.glob("relay.status")), "the status file")
        told = started(Attempt(("status", "--relay-dir", str(directory), "--json"), {}, 0)).communicate(timeout=WAIT_S)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=WAIT_S)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert json.loads(told[0])
    for text in (out, err, *pages, *told):
        assert MARKER not in text
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert len(files) >= 3
    for path in files:
        assert MARKER.encode() not in path.read_bytes(), path


async def test_objects_and_errors_do_not_show_it(primary: MariaDb) -> None:
    config = ReplicaConfig.parse({"host": primary.host, "port": primary.port, "user": "other", "password": MARKER})
    assert MARKER not in f"{config!r} {config} {config.model_dump()} {config.model_dump_json()}"
    with pytest.raises(AuthenticationError) as caught:
        await log_in(config, Endpoint(primary.host, primary.port))
    assert MARKER not in "".join(traceback.format_exception(caught.value))
    with pytest.raises(ConfigError) as refused:
        ReplicaConfig.parse({"user": "u", "password": MARKER, "password_file": "/x", "port": "a"})
    assert MARKER not in "".join(traceback.format_exception(refused.value))
    assert MARKER not in f"{refused.value!r} {vars(refused.value)}"
