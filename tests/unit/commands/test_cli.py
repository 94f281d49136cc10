from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from replica.commands.arguments import flags
from replica.commands.cli import main, program
from replica.commands.outcome import BROKEN_PIPE
from replica.daemon.config import DaemonConfig
from replica.version import __version__
from tests.kit.some import some

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("command", ["run", "check"])
def test_every_option_of_the_table_is_on_the_command_line(command: str) -> None:
    text = CliRunner().invoke(program, [command, "--help"], terminal_width=200).output
    for name in some(DaemonConfig.help()):
        assert f"--{name.removesuffix('_s').replace('_', '-')}" in text
    for name in some(flags(DaemonConfig)):
        assert f"--no-{name.replace('_', '-')}" in text


def test_the_version_is_the_packages() -> None:
    assert __version__ in CliRunner().invoke(program, ["--version"]).output


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["run", "--relay-directory", "/x"], "--relay-dir"),
        (["run", "--user", "repl"], "relay_dir"),
        (["sing"], "sing"),
        (["check", "--user"], "--user"),
        (["check"], "user"),
        (["check", "--user", "repl", "--port", "x"], "port"),
    ],
)
def test_mistakes_end_with_code_20_and_one_message(
    arguments: list[str], word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # no option file of whoever runs the tests
    monkeypatch.setattr("sys.argv", ["mariadb-replica", *arguments])
    for name in ("USER", "RELAY_DIR"):
        monkeypatch.delenv(f"MARIADB_REPLICA_{name}", raising=False)
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 20
    assert word in capsys.readouterr().err


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["files"], ["dump", "--help"]])
def test_output_that_no_disk_takes_ends_with_one_line(arguments: list[str], unbuffered: str) -> None:
    command = [sys.executable, "-m", "replica", *arguments]
    with open("/dev/full", "w") as device:  # noqa: PTH123  (a device, not a path of ours)
        ran = subprocess.run(
            command,
            stdout=device,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            check=False,
        )
    assert ran.stderr == "mariadb-replica: standard output cannot be written: No space left on device.\n"
    assert ran.returncode == 1


@pytest.mark.parametrize("arguments", [["files"], ["--help"], ["dump", "--help"]])
def test_a_reader_that_goes_away_ends_it_as_it_ends_dump(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "replica", *arguments], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(writer)
    assert ran.stderr == ""
    assert ran.returncode == BROKEN_PIPE
