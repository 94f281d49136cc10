"""`tail` as a command and as a process: options, what ends it, and what stands where."""

from __future__ import annotations

import contextlib
import io
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
from replica.commands.dump.outputs.json_lines import write_json_rows
from replica.commands.outcome import BROKEN_PIPE
from replica.commands.tail.command import JsonLines, PrettyLines, Tail
from replica.commands.tail.lines import Colours, Transactions
from replica.commands.tail.source import OPERATIONS, Changes
from replica.errors import ConfigError, DataLossError, RelayError, ReplicaError
from replica.protocol.gtid import GtidPosition
from replica.readers.log.in_relay_log import RelayLogReader
from replica.readers.rows.names import DefinedBefore
from replica.readers.rows.progress import Notices
from replica.readers.rows.reading import PreparedBefore
from replica.readers.rows.without_rows import StatementChanges
from replica.relay_log.location import RelayLocation, index_path, relay_path
from tests.fixtures.installation import PROJECT
from tests.kit.some import some
from tests.unit.commands.dump.files import reading as file_reading
from tests.unit.commands.dump.files import said, vector
from tests.unit.commands.tail.relay_logs import live_reading, recorded_log

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from replica.relay_log.log import RelayLog

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
    after_statements = [after for line, after in pairwise(text.splitlines()) if line.startswith("  sql  ")]
    assert all("without rows: changes of v." in after for after in some(after_statements))
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


BEGIN = RelayLocation(1, 0)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> RelayLog:
    return recorded_log(tmp_path_factory.mktemp("relay"), "11.8", "transactions", max_file_bytes=700)


def shown(
    log: RelayLog,
    patterns: Sequence[str] = (),
    *,
    as_json: bool = False,
    ops: Sequence[str] = (),
    count: int | None = None,
    start: RelayLocation = BEGIN,
    silent: bool = True,
    skip: GtidPosition | None = None,
    beside: io.StringIO | None = None,
    **selection: Any,
) -> str:
    out = io.BytesIO()
    ask = DefinedBefore(log, start).table
    reading, names = live_reading(log, patterns, ask=ask, start=skip or GtidPosition(), **selection)
    notices = Notices(beside or io.StringIO())
    lines = Transactions(names, Colours(on=False), silent)
    output: Any = JsonLines(names, out, notices) if as_json else PrettyLines(lines, out)
    wanted = frozenset(OPERATIONS[op] for op in ops) if ops else None
    tail = Tail(
        reading,
        Changes(reading, output.texts, wanted),
        output,
        PreparedBefore(log, start),
        count,
        StatementChanges(names.wants),
    )
    head = log.head()
    assert head is not None
    for part in RelayLogReader(log).parts(start, head.location):
        if not tail.show(part):
            break
    return out.getvalue().decode()


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_json_has_the_rows_of_dump(log: RelayLog) -> None:
    out = io.BytesIO()
    write_json_rows(file_reading([vector("11.8/transactions")]), out)
    expected, found = rows(out.getvalue().decode()), rows(shown(log, as_json=True))
    for row in expected + found:
        del row["file"], row["position"]  # another file
    assert found == expected
    assert len(found) > 10


def test_a_page_of_it(log: RelayLog) -> None:
    text = shown(log)
    for lines in (
        ["0-1-1  thread 6", "  sql     CREATE DATABASE v"],
        ["0-1-4  thread 6", "  # INSERT INTO t VALUES (1, 'kept')", "  # INSERT INTO t VALUES (3, 'kept')"],
        ["  insert  v.t           a=1  b='kept'", "  insert  v.t           a=3  b='kept'"],
        ["0-1-12  thread 7  XA PREPARE X'7832',X'',1: its rows are shown when it is committed"],
        ["0-1-14  thread 6  XA COMMIT X'7831',X'6272616e6368',7", "  insert  v.t           a=11  b='xa'"],
        ["0-1-15  thread 7  XA ROLLBACK X'7832',X'',1: its rows were never committed"],
    ):
        assert "\n".join(lines) + "\n" in text
    gtids = [line.split()[2] for line in text.splitlines() if not line.startswith(" ")]
    assert gtids == list(dict.fromkeys(gtids))
    assert len(gtids) > 20


def test_xa_rows_that_were_prepared_before_the_start(log: RelayLog) -> None:
    start = log.locate(GtidPosition.parse("0-1-13"))
    assert start is not None
    found = rows(shown(log, as_json=True, start=start, count=1))
    assert [(row["gtid"], row["after"]["a"]) for row in found] == [("0-1-14", 11)]


def test_only_some_tables_operations_and_domains(log: RelayLog) -> None:
    assert {row["table"] for row in rows(shown(log, ["v.m"], as_json=True))} == {"m"}
    assert rows(shown(log, as_json=True, ops=["delete"])) == [
        row for row in rows(shown(log, as_json=True)) if row["op"] == "delete"
    ]
    assert {row["gtid"].split("-")[0] for row in rows(shown(log, as_json=True, domains=frozenset({7})))} == {"7"}
    assert "  sql  " not in shown(log, ["v.t"], silent=False)


def test_what_lies_up_to_a_position_is_stepped_over(log: RelayLog) -> None:
    found = rows(shown(log, as_json=True, skip=GtidPosition.parse("0-1-13,7-99-1000")))
    assert found[0]["gtid"] == "0-1-14"
    assert {row["gtid"].split("-")[0] for row in found} == {"0"}


@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_so_many_transactions(log: RelayLog, count: int) -> None:
    text = shown(log, count=count)
    assert sum(not line.startswith(" ") for line in text.splitlines()) == count
    assert shown(log).startswith(text)
    assert len({row["gtid"] for row in rows(shown(log, as_json=True, count=count))}) == count


def test_tables_of_every_type(tmp_path: Path) -> None:
    text = shown(recorded_log(tmp_path, "11.8", "metadata_full"))
    assert "NULL" in text
    assert "\x1b" not in text
    updates = some(line for line in text.splitlines() if line.startswith("  update"))
    assert all("→" in line or "no shown column" in line for line in updates)


def test_images_that_hold_only_what_changed(tmp_path: Path) -> None:
    text = shown(recorded_log(tmp_path, "11.8", "minimal_image"))
    assert "→" in text


def test_a_prepare_that_was_purged_is_said(tmp_path: Path) -> None:
    log = recorded_log(tmp_path, "11.8", "transactions", max_file_bytes=700)
    start = log.locate(GtidPosition.parse("0-1-13"))
    assert start is not None
    for number in range(1, start.file):
        relay_path(tmp_path, number).unlink()
        index_path(tmp_path, number).unlink()
    out = io.BytesIO()
    reading, names = live_reading(log, schema=None)
    output = JsonLines(names, out, Notices(io.StringIO()))
    tail = Tail(reading, Changes(reading, output.texts), output, PreparedBefore(log, start))
    head = log.head()
    assert head is not None
    assert all(tail.show(part) for part in RelayLogReader(log).parts(start, head.location))
    assert "commits the XA transaction" in said(reading)
    assert reading.notices.exit_code == DataLossError.exit_code
    assert "0-1-16" in out.getvalue().decode()


def test_changes_that_were_logged_as_statements_are_shown_and_counted(log: RelayLog) -> None:
    text = shown(log, ["v.m"], silent=False)
    assert "sql     INSERT INTO m VALUES (3)\n  1 statement without rows: changes of v.m\n" in text
    assert "INSERT INTO s" not in text, "not of the tables that are asked for"
    everything = shown(log)
    assert "2 statements without rows: changes of v.s, v.m" in everything
    assert "LOAD DATA INFILE" in everything
    assert "statements without rows" not in shown(log, ["v.t"], silent=False)


def test_json_says_beside_the_rows_what_has_none(log: RelayLog) -> None:
    beside = io.StringIO()
    assert rows(shown(log, ["v.m"], as_json=True, beside=beside))
    assert beside.getvalue() == (
        "mariadb-replica: 0-1-24 changed rows of v.m by a statement that was logged without them\n"
    )
