from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from replica.commands.check.command import check_all, check_command
from replica.commands.options_page import example
from tests.unit.commands.check.facts import config

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


NO_SERVERS = "127.0.0.1:1,[::1]:1"


async def test_each_server_has_its_own_error_and_the_machine_is_looked_at_all_the_same(tmp_path: Path) -> None:
    *servers, here = await check_all(config(host=NO_SERVERS, relay_dir=tmp_path, min_free_bytes="1m"), {})
    assert [(report.subject, report.error and report.error.exit_code) for report in servers] == [
        ("127.0.0.1:1", 40),
        ("[::1]:1", 40),
    ]
    assert here.error is None
    assert {"relay_dir", "disk", "kernels", "descriptors"} <= {one.check for one in here.results}
    assert os.listdir(tmp_path) == []  # noqa: PTH208


@pytest.mark.parametrize("name", ["relay.identity", "relay.head"])
async def test_damaged_files_of_the_relay_log_are_told(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"no such thing" * 1000)
    *_, here = await check_all(config(host=NO_SERVERS, relay_dir=tmp_path), {})
    assert here.error is not None
    assert here.error.exit_code == 70
    assert name in here.error.message
    assert here.error.hint


async def test_a_taken_address_is_a_matter_of_configuration(tmp_path: Path) -> None:
    *_, here = await check_all(config(host=NO_SERVERS, relay_dir=tmp_path, http_listen="192.0.2.1:9306"), {})
    assert here.error is not None
    assert here.error.exit_code == 20


async def test_where_the_password_comes_from_is_looked_at() -> None:
    *_, here = await check_all(config(host=NO_SERVERS, password="x"), {"password": "--password"})
    assert [one.state for one in here.results if one.check == "password"] == ["warning"]
