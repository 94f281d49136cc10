from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from replica.commands.cli import program
from replica.commands.explain.command import NOT_FOUND
from replica.errors import ConfigError
from tests.unit.commands.dump.files import vector
from tests.unit.commands.tail.relay_logs import recorded_log

if TYPE_CHECKING:
    from pathlib import Path

FILE = str(vector("11.8/transactions"))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded_log(tmp_path_factory.mktemp("relay"), "11.8", "transactions", max_file_bytes=700).directory


def explain(*arguments: str) -> Result:
    return CliRunner().invoke(program, ["explain", *arguments])


def test_a_relay_log_and_files(directory: Path) -> None:
    for place in (("--relay-dir", str(directory)), (FILE,)):
        done = explain("0-1-4", *place)
        assert done.exit_code == 0, done.exception
        assert done.stdout.startswith("0-1-4  transaction\n")
        told = json.loads(explain("0-1-4", "--json", *place).stdout)
        assert (told["found"], told["gtid"]) == (True, "0-1-4")


def test_not_there_is_an_answer_with_a_code_of_its_own(directory: Path) -> None:
    done = explain("0-1-99", "--relay-dir", str(directory))
    assert done.exit_code == NOT_FOUND
    assert "not there" in done.stdout
    told = explain("0-1-99", FILE, "--json")
    assert told.exit_code == NOT_FOUND
    assert json.loads(told.stdout)["found"] is False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("0-1", FILE), "'0-1' is not a GTID"),
        (("0-1-1", "/nowhere/bin.000001"), "No such file"),
        (("0-1-1", FILE, "--key-file", "/nowhere/keys"), "/nowhere/keys"),
        (("0-1-1",), "neither a relay log nor a primary is given"),
    ],
)
def test_what_is_refused(arguments: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MARIADB_REPLICA_RELAY_DIR", raising=False)
    error = explain(*arguments).exception
    assert isinstance(error, ConfigError)
    assert words in str(error)


def test_a_status_record_of_another_version_is_no_obstacle(directory: Path) -> None:
    (directory / "relay.status").write_text('{"v": 99}')
    done = explain("0-1-4", "--relay-dir", str(directory), "--json")
    (directory / "relay.status").unlink()
    assert json.loads(done.stdout)["acknowledged"] is None


def test_colours_on_demand(directory: Path) -> None:
    assert "\x1b" not in explain("0-1-4", FILE).stdout
    assert "\x1b[36m" in explain("0-1-4", FILE, "--color", "always").stdout
