"""The command as a process: outputs, what goes to standard error, exit codes."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from replica.commands.cli import program
from replica.commands.outcome import BROKEN_PIPE
from replica.errors import ChecksumError, ConfigError, ReplicaError, TruncatedError
from tests.unit.commands.dump.files import vector
from tests.vectors.load import HERE

if TYPE_CHECKING:
    from pathlib import Path

FULL = str(vector("11.8/metadata_full"))
PLAIN = str(vector("11.8/transactions"))


def dump(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(program, ["dump", *arguments], input=stdin)


def refusal(*arguments: str) -> ReplicaError:
    error = dump(*arguments).exception
    assert isinstance(error, ReplicaError), error
    return error


def process(*arguments: str, **more: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "replica", "dump", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


@pytest.mark.parametrize("output", [(), ("--json",), ("--events",), ("--sql",), ("--count",), ("--count", "--json")])
def test_every_output_of_a_file(output: tuple[str, ...]) -> None:
    found = dump(*output, FULL)
    assert found.exit_code == 0, found.exception
    assert len(found.stdout) > 500
    assert found.stderr == ""


def test_outputs_exclude_each_other() -> None:
    assert "--json and --sql exclude each other" in str(refusal("--json", "--sql", FULL))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    error = refusal("--json", str(tmp_path / "bin.000001"))
    assert isinstance(error, ConfigError)
    assert "No such file" in str(error)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--start-gtid", "1-2"), "--start-gtid: '1-2' is not a GTID"),
        (("--stop-time", "soon"), "--stop-time: 'soon' is not a time such as 2026-11-21T20:00:00Z"),
        (
            ("--start-time", "2026-11-21 13:00:00"),
            "--start-time: '2026-11-21 13:00:00' has no time zone",
        ),
        (("--start-time", "2026-11-21"), "--start-time: '2026-11-21' has no time zone; append Z (UTC)"),
        (("--start-gtid", "bin.000007:4711"), "mariadb-replica position --file-pos bin.000007:4711"),
        (("--table", "orders"), "'orders' is not of the form database.table"),
        (("--schema", "/nowhere/schema.sql"), "/nowhere/schema.sql"),
        (("--key-file", "/nowhere/keys"), "/nowhere/keys"),
    ],
)
def test_bad_options_are_refused_by_name(arguments: tuple[str, str], words: str) -> None:
    error = refusal(*arguments, FULL)
    assert isinstance(error, ConfigError)
    assert words in str(error)


def test_standard_input_and_compressed_files(tmp_path: Path) -> None:
    plain = dump("--json", FULL).stdout
    packed = tmp_path / "log.gz"
    packed.write_bytes(gzip.compress(vector("11.8/metadata_full").read_bytes()))
    assert dump("--json", str(packed)).stdout == plain.replace("metadata_full.binlog", "log.gz")
    with process("--json", "-", stdin=subprocess.PIPE) as run:
        out, errors = run.communicate(vector("11.8/metadata_full").read_bytes())
    assert run.returncode == 0, errors
    assert out.decode() == plain.replace("metadata_full.binlog", "standard input")


def test_several_files_in_order() -> None:
    files = [str(vector(f"11.8/rotation.{number}")) for number in (1, 2, 3, 4)]
    shown = [json.loads(line) for line in dump("--json", *files).stdout.splitlines()]
    assert [row["file"] for row in shown] == sorted(row["file"] for row in shown)
    assert len({row["file"] for row in shown}) > 1
    # The CREATE TABLE of the first file names the columns in all of them.
    assert "@1" not in dump("--json", *files).stdout


def test_names_from_a_schema_file(tmp_path: Path) -> None:
    schema = tmp_path / "schema.sql"
    schema.write_text("CREATE DATABASE v; USE v; CREATE TABLE t (a INT PRIMARY KEY, b INT, c INT, d INT);")
    found = dump("--json", "--schema", str(schema), str(vector("11.8/rotation.2")))
    assert '"@1"' in dump("--json", str(vector("11.8/rotation.2"))).stdout
    columns = len(json.loads(found.stdout.splitlines()[0])["after"])
    if columns == 4:
        assert '"a":' in found.stdout
    else:  # another number of columns than the file has: not believed
        assert '"@1"' in found.stdout


def damaged(tmp_path: Path) -> Path:
    """One byte of a rows event in the middle is another."""
    data = bytearray(vector("11.8/metadata_full").read_bytes())
    data[8600] ^= 0x55
    path = tmp_path / "bad.binlog"
    path.write_bytes(data)
    return path


def test_everything_before_damage_is_shown(tmp_path: Path) -> None:
    found = dump("--json", str(damaged(tmp_path)))
    assert isinstance(found.exception, ChecksumError)
    assert "bad.binlog" in str(found.exception)
    good = dump("--json", FULL).stdout.replace("metadata_full.binlog", "bad.binlog")
    assert found.stdout
    assert good.startswith(found.stdout)


def test_damage_is_skipped_only_when_asked_and_said(tmp_path: Path) -> None:
    found = dump("--json", "--skip-damaged", str(damaged(tmp_path)))
    assert found.exit_code == 0
    assert "left out" in found.stderr
    everything = dump("--json", FULL).stdout.splitlines()
    shown = found.stdout.splitlines()
    assert 0 < len(everything) - len(shown) < 5
    assert shown[-1].replace("bad.binlog", "metadata_full.binlog") == everything[-1]


def test_a_torn_end_is_an_error_after_all_that_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "torn.binlog"
    path.write_bytes(vector("11.8/metadata_full").read_bytes()[:-40])
    found = dump("--count", str(path))
    assert isinstance(found.exception, TruncatedError)
    assert "Write_rows_v1" in found.stdout
    found = dump("--json", str(path))
    assert isinstance(found.exception, TruncatedError)
    assert len(found.stdout.splitlines()) >= len(dump("--json", FULL).stdout.splitlines()) - 1


def test_selection_by_gtid_and_time() -> None:
    def gtids(*arguments: str) -> list[str]:
        lines = dump("--json", *arguments, PLAIN).stdout.splitlines()
        return list(dict.fromkeys(json.loads(line)["gtid"] for line in lines))

    everything = gtids()
    assert gtids("--start-gtid", "0-1-13", "--stop-gtid", "0-1-16") == ["0-1-14", "0-1-16"]
    assert gtids("--stop-gtid", "7-1-2") == ["7-1-1", "7-99-2"]
    assert gtids("--start-time", "2023-11-14 22:13:21Z") == ["0-1-13"]
    assert gtids("--start-time", "2023-11-14T22:13:20.5Z") == ["0-1-13"]
    assert gtids("--stop-time", "2023-11-14T23:13:21+01:00") == [gtid for gtid in everything if gtid != "0-1-13"]


def test_what_cannot_be_reproduced_makes_the_exit_code() -> None:
    found = dump("--sql", PLAIN)
    assert found.exit_code == 50
    assert "LOAD DATA" in found.stderr
    assert "-- transactions.binlog: LOAD DATA" in found.stdout


def test_a_reader_that_goes_away_is_no_error() -> None:
    files = [FULL] * 120  # more than the buffers and the largest pipe of a Linux take
    with process("--json", *files) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        assert run.stdout.read(100)
        run.stdout.close()
        assert run.stderr.read() == b""
    assert run.returncode == BROKEN_PIPE


def test_an_interrupt_ends_it_quietly() -> None:
    with process("--events", *[FULL] * 120) as run:
        assert run.stdout is not None
        assert run.stdout.read(100)
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate()
    assert run.returncode == 130
    assert b"Traceback" not in errors


KEYS = str(HERE / "encryption.keys")


@pytest.mark.parametrize("mode", ["cbc", "ctr"])
def test_encrypted_files(mode: str) -> None:
    """With their keys they hold what the server itself decrypted and sent, without them they are refused."""
    path = HERE / "11.8" / f"encryption.{mode}.encrypted"
    found = dump("--events", "--key-file", KEYS, str(path))
    assert found.exit_code == 0, found.exception
    shown = [json.loads(line) for line in found.stdout.splitlines()]
    assert [event["type"] for event in shown[:2]] == ["Format_description", "Start_encryption"]
    rows, sent = (
        dump("--json", "--key-file", KEYS, str(path.with_suffix(end))).stdout for end in (".encrypted", ".sent")
    )
    assert rows
    assert rows.replace(".encrypted", ".sent") == sent
    without = refusal("--json", str(path))
    assert "key" in str(without)
