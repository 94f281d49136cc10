from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from replica.commands.check.command import check_command
from replica.commands.options_page import example

if TYPE_CHECKING:
    from pathlib import Path

NOBODY = ["--user", "repl", "--host", "127.0.0.1:1"]
SECRET = "hunter2-nobody-knows"


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No option file of whoever runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path))


def test_the_answer_for_programs_is_one_object_with_the_exit_code() -> None:
    done = CliRunner().invoke(check_command, [*NOBODY, "--json", "--password", SECRET])
    answer = json.loads(done.stdout)
    assert (done.exit_code, answer["exit_code"], answer["ok"]) == (40, 40, False)
    server, machine = answer["reports"]
    assert (server["subject"], server["error"]["error"], server["checks"]) == ("127.0.0.1:1", "DisconnectedError", [])
    assert machine["error"] is None
    assert {"check", "state", "what", "fix"} == set(machine["checks"][0])
    assert SECRET not in done.output


def test_the_answer_for_people_ends_with_a_verdict() -> None:
    done = CliRunner().invoke(check_command, NOBODY)
    assert done.exit_code == 40
    assert done.stdout.endswith("NOT ready to replicate (127.0.0.1:1: exit code 40)\n")


@pytest.mark.parametrize("plain", [True, False])
def test_colours_are_for_those_who_want_them(*, plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if plain:
        monkeypatch.setenv("NO_COLOR", "1")
    done = CliRunner().invoke(check_command, NOBODY, color=True)
    assert ("\x1b[" in done.stdout) != plain


def test_the_example_needs_no_options_and_nothing_else_is_printed() -> None:
    done = CliRunner().invoke(check_command, ["--example-config"])
    assert (done.exit_code, done.stdout) == (0, example())


def test_the_effective_configuration_asks_nobody() -> None:
    done = CliRunner().invoke(check_command, [*NOBODY, "--config-only", "--json", "--password", SECRET])
    assert done.exit_code == 0
    shown = json.loads(done.stdout)
    assert shown["host"] == {"value": "127.0.0.1:1", "source": "--host"}
    assert shown["password"] == {"value": "********", "source": "--password"}
    assert SECRET not in done.output
