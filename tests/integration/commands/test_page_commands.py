"""The commands of README and docs, line by line in a shell, against a real server and a daemon of it.

What a page can only make up (hosts, folders, files, GTIDs) is replaced by what the test has, and a text that is not in
the block any more is an error. Each line has to end well; what goes on until someone ends it has to begin well.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.installation import PROJECT
from tests.fixtures.load.beside import beside
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.kit.page_blocks import block

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

pytestmark = [pytest.mark.server, pytest.mark.slow]

SECRET = "replica-secret"
SEMI_SYNC = (
    "--binlog-row-metadata=FULL",
    "--rpl-semi-sync-master-enabled=ON",
    "--rpl-semi-sync-master-wait-point=AFTER_SYNC",
    "--rpl-semi-sync-master-timeout=1",
)
WAIT_S = 60


@dataclass
class Machine:
    """A machine with the program on its path, a server, and a relay log of it."""

    server: MariaDb
    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def relay(self) -> Path:
        return self.folder / "relay"

    def environment(self) -> dict[str, str]:
        programs = self.folder / "programs"
        if not programs.exists():
            programs.mkdir()
            login = f"-h{self.server.host} -P{self.server.port} -uroot -proot"
            client = f'"{self.server.installation.binary("mariadb")}" --no-defaults {login}'
            for name, command in (("mariadb-replica", f'"{sys.executable}" -m replica'), ("mariadb", client)):
                program = programs / name
                program.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
                program.chmod(0o755)
        path = f"{programs}:{os.environ['PATH']}"
        own = {"PATH": path, "PYTHONPATH": str(PROJECT), "MARIADB_REPLICA_PASSWORD": SECRET}
        return os.environ | own | self.variables

    def start(self, line: str, **pipes: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", line],
            cwd=self.folder,
            env=self.environment(),
            text=True,
            start_new_session=True,
            **pipes,  # type: ignore[call-overload]
        )

    def run(self, line: str) -> str:
        """Run a line to its end, which has to be a good one; what it prints."""
        with self.start(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            out, told = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0, f"{line}\n{out}\n{told}"
        return str(out)

    @contextlib.contextmanager
    def going_on(self, line: str) -> Iterator[subprocess.Popen[str]]:
        """Run a line that goes on until it is interrupted."""
        with self.start(line, stdout=subprocess.PIPE) as process:
            try:
                yield process
            finally:
                os.killpg(process.pid, signal.SIGINT)
        assert process.returncode in (0, 130), line


def lines(code: str, written: Mapping[str, str]) -> list[str]:
    """The lines of a block with this test's names in it, a continued line as one."""
    for there, here in written.items():
        assert there in code, there
        code = code.replace(there, here)
    return [line for line in code.replace("\\\n", " ").splitlines() if line]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with MariaDb(None, *SEMI_SYNC) as server:
        server.add_user(grants="REPLICATION SLAVE, REPLICATION MASTER ADMIN, BINLOG MONITOR, SELECT")
        server.sql(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.orders (id INT PRIMARY KEY, state VARCHAR(9), total DECIMAL(9,2))",
            "INSERT INTO shop.orders SELECT seq, 'new', seq FROM shop.seq_1_to_50",
            "UPDATE shop.orders SET state = 'paid' WHERE id = 1",
            "FLUSH BINARY LOGS",
            "INSERT INTO shop.orders VALUES (100, 'new', 1)",
        )
        here = Machine(server, tmp_path_factory.mktemp("page"))
        for number, name in enumerate(server.binlogs()[-2:], 41):
            for prefix in ("bin", "binlog"):
                (here.folder / f"{prefix}.{number:06}").write_bytes((server.datadir / name).read_bytes())
        run = f"mariadb-replica run --relay-dir {here.relay} --host {where(server)} --user repl --start earliest"
        with here.going_on(run):
            wait_until(lambda: up_to_date(here), "the relay log is there")
        yield here


def where(server: MariaDb) -> str:
    return f"{server.host}:{server.port}"


def up_to_date(machine: Machine) -> bool:
    with machine.start(
        f"mariadb-replica status {machine.relay}", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as asked:
        out, _ = asked.communicate(timeout=WAIT_S)
    return asked.returncode == 0 and machine.server.gtid_binlog_pos() in str(out)


def login(machine: Machine) -> dict[str, str]:
    return {"--host db1": f"--host {where(machine.server)}"}


def shows_changes(machine: Machine, line: str) -> None:
    """A command that shows changes as they come: one comes, and it shows it."""

    def write(stop: threading.Event) -> None:
        while not stop.wait(0.2):
            machine.server.sql("UPDATE shop.orders SET total = total + 1 WHERE id = 100")

    with machine.going_on(line) as process, beside(write):
        assert process.stdout is not None
        assert process.stdout.readline(), line


def test_the_daemon_of_the_page_starts(machine: Machine, tmp_path: Path) -> None:
    written = {"/etc/mariadb-replica": str(tmp_path), "/var/lib/mariadb-replica": str(tmp_path / "relay")}
    example, check, run, status = lines(block("docs/daemon.md", "start"), written)
    machine.run(example)
    settings = tmp_path / "replica.toml"
    text = settings.read_text()
    for there, here in (
        ('# host = "127.0.0.1"', f'host = "{where(machine.server)}"'),
        ('user = "repl"', 'user = "repl"'),
        (re.findall(r"^#? ?relay_dir = .*$", text, re.MULTILINE)[0], f'relay_dir = "{tmp_path / "relay"}"'),
    ):
        assert there in text
        text = text.replace(there, here)
    settings.write_text(text)
    assert "ready to replicate" in machine.run(check)
    with machine.going_on(run):
        wait_until(lambda: machine.start(status, stdout=subprocess.DEVNULL).wait(WAIT_S) == 0, "it is healthy")


def test_the_commands_of_the_readme(machine: Machine, tmp_path: Path) -> None:
    settings = tmp_path / "replica.toml"
    settings.write_text(f'host = "{where(machine.server)}"\nuser = "repl"\nrelay_dir = "{machine.relay}"\n')
    gtid = str(machine.server.gtid_binlog_pos())
    name, position, *_ = machine.server.sql("SHOW MASTER STATUS")[0]
    written = {
        **login(machine),
        "/etc/mariadb-replica.toml": str(settings),
        "/var/lib/mariadb-replica": str(machine.relay),
        "0-1-4711": gtid,
        "bin.000042:4711 …": f"{name}:{position} --host {where(machine.server)} --user repl",
        "--relay-dir …": f"--relay-dir {machine.relay}",
    }
    check, run, status, tail, explain, place = lines(block("README.md", "commands"), written)
    assert "ready to replicate" in machine.run(check)
    with machine.going_on(run):
        wait_until(lambda: up_to_date(machine), "it is healthy")
        assert gtid in machine.run(status)
        shows_changes(machine, tail)
    assert "transaction" in machine.run(explain)
    assert machine.run(place).startswith(gtid)


def test_tail_shows_what_comes(machine: Machine) -> None:
    written = {"/var/lib/replica": str(machine.relay), **login(machine)}
    live, last, direct, piped = lines(block("docs/commands.md", "tail"), written)
    run = f"mariadb-replica run --relay-dir {machine.relay} --host {where(machine.server)} --user repl"
    with machine.going_on(run):
        wait_until(lambda: up_to_date(machine), "it is healthy")
        for line in (live, last, direct, piped.replace("jq .after", "jq --unbuffered .after")):
            shows_changes(machine, line)


def test_explain_finds_a_transaction(machine: Machine) -> None:
    gtid = machine.server.value("SELECT @@gtid_binlog_pos")
    machine.server.sql("FLUSH BINARY LOGS")
    (machine.folder / "bin.000042").write_bytes((machine.server.datadir / machine.server.binlogs()[-2]).read_bytes())
    relay, files, direct = lines(
        block("docs/commands.md", "explain"),
        {"0-1-8": str(gtid), "/var/lib/replica": str(machine.relay), **login(machine)},
    )
    run = f"mariadb-replica run --relay-dir {machine.relay} --host {where(machine.server)} --user repl"
    with machine.going_on(run):
        wait_until(lambda: up_to_date(machine), "it is healthy")
    for line in (relay, files, direct):
        assert "shop.orders" in machine.run(line), line


def test_position_finds_places(machine: Machine) -> None:
    name, place, *_ = machine.server.sql("SHOW MASTER STATUS")[0]
    machine.server.sql("UPDATE shop.orders SET total = 0 WHERE id = 7")
    first = str(machine.server.binlogs()[0])
    (machine.folder / "binlog.000041").write_bytes((machine.server.datadir / first).read_bytes())
    at, time, gtid = lines(
        block("docs/commands.md", "position"),
        {
            "binlog.000042:4711 ": f"{name}:{place} ",
            "2026-11-21T20:00:00Z": "2020-01-01T00:00:00Z",
            "0-1-4711 binlog.000041 binlog.000042": "0-1-2 binlog.000041",
            "/var/lib/replica": str(machine.relay),
            **login(machine),
        },
    )
    assert machine.run(at).startswith("0-1-")
    assert "followed by" in machine.run(time)
    assert machine.run(gtid).startswith("0-1-2")


def test_check_says_how_tables_will_be_read(machine: Machine) -> None:
    (line,) = lines(block("docs/snapshot.md", "check"), login(machine))
    assert "shop.orders" in machine.run(line)


def test_the_account_of_the_page_can_read_the_tables(machine: Machine) -> None:
    code = block("docs/snapshot.md", "account").replace("'repl'", "'tables'")
    machine.server.sql(*(statement for statement in code.split(";") if statement.strip()))
    machine.variables = {"MARIADB_REPLICA_PASSWORD": "choose-one"}
    try:
        said = machine.run(
            f"mariadb-replica check --initial --host {where(machine.server)} --user tables --table 'shop.*'"
        )
    finally:
        machine.variables = {}
    assert "ready to begin with the tables" in said


def test_dump_shows_files(machine: Machine) -> None:
    machine.run("mkdir -p backup && gzip -c bin.000041 > backup/bin.000007.gz")
    for page in ("README.md", "docs/dump.md"):
        code = block("README.md", "dump") if page == "README.md" else block("docs/dump.md", "dump")
        for line in lines(code, {"jq .after": "jq -e .after"} if page == "README.md" else {}):
            if "| mariadb" in line:  # the changes again, into the same server: without its tables
                machine.server.sql("DROP DATABASE IF EXISTS shop_kept", "RENAME TABLE shop.orders TO shop.kept")
            assert machine.run(line) or "| mariadb" in line, line
            if "| mariadb" in line:
                machine.server.sql("DROP TABLE IF EXISTS shop.orders", "RENAME TABLE shop.kept TO shop.orders")


def test_purge_removes_files(machine: Machine) -> None:
    rehearse, real = lines(
        block("docs/commands.md", "purge"), {"/var/lib/replica": str(machine.relay), "--keep 1g": "--keep 1"}
    )
    before = sorted(machine.relay.glob("relay.0*"))
    machine.run(rehearse)
    assert sorted(machine.relay.glob("relay.0*")) == before
    machine.run(real)


def test_what_was_lost_is_applied_to_the_new_primary(
    machine: Machine, make_server: Callable[..., MariaDb], tmp_path: Path
) -> None:
    server, new = make_server(None, "--binlog-row-metadata=FULL"), make_server()
    server.add_user()
    create = ("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v TEXT)", "INSERT INTO d.t VALUES (1, 'a')")
    server.sql(*create)
    new.sql(*create)
    position = str(server.gtid_binlog_pos())
    server.sql("INSERT INTO d.t VALUES (2, 'b')", "UPDATE d.t SET v = 'c' WHERE id = 1")
    there = Machine(server, tmp_path)
    with there.going_on(
        f"mariadb-replica run --relay-dir {there.relay} --host {where(server)} --user repl --start earliest"
    ):
        wait_until(lambda: up_to_date(there), "the relay log is there")
    applying = Machine(new, tmp_path / "new", {"NEW_PRIMARY_GTID_BINLOG_POS": position})
    applying.folder.mkdir()
    (line,) = lines(block("docs/daemon.md", "lost"), {"/var/lib/mariadb-replica": str(there.relay)})
    applying.run(line)
    assert new.sql("SELECT * FROM d.t ORDER BY id") == server.sql("SELECT * FROM d.t ORDER BY id")
