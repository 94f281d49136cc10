"""`position` over binlog files of a real server, and what it refuses before it looks anywhere."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from replica.commands.cli import program
from replica.errors import ConfigError, DataLossError
from tests.kit.tree import files
from tests.vectors.load import HERE

FILES = sorted(map(str, files(HERE / "11.8", "rotation.*.binlog")))


def _run(*arguments: str) -> str:
    return CliRunner().invoke(program, ["position", *arguments], catch_exceptions=False).stdout


def _found(*arguments: str) -> dict[str, Any]:
    return dict(json.loads(_run("--json", *arguments, *FILES)))


def test_behind_each_transaction_follows_the_next_one_over_all_files() -> None:
    position, seen = _found("--file-pos", "rotation.1.binlog:4"), []
    assert (position["position"], position["next"]["gtid"]) == ("", "0-1-1")
    while position["next"] is not None:
        seen.append(position["next"])
        position = _found("--gtid", position["next"]["gtid"])
    assert len(seen) == 6
    assert position["position"] == "0-1-3,7-1-3"
    for following in seen:
        at = _found("--file-pos", following["place"])
        assert at["next"] == following
        assert not at["inside"]
        file, _, offset = following["place"].partition(":")
        inside = _found("--file-pos", f"{file}:{int(offset) + 19}")
        assert (inside["position"], inside["next"], inside["inside"]) == (at["position"], following, True)


def test_people_are_told_what_follows() -> None:
    assert _run("--time", "2100-01-01T00:00:00Z", *FILES) == "0-1-3,7-1-3\n  nothing follows yet\n"
    lines = _run("--gtid", "0-1-1", FILES[0]).splitlines()
    assert lines == ["0-1-1", "  followed by 0-1-2, committed 2023-11-14T22:13:20Z, at rotation.1.binlog:445"]
    assert "before the first transaction of all" in _run("--time", "1970-01-02T00:00:00Z", *FILES)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ([], ConfigError, "exactly one of --file-pos, --time and --gtid"),
        (["--time", "1970-01-02T00:00:00Z", "--gtid", "0-1-1"], ConfigError, "exactly one of"),
        (["--time", "2026-11-21T20:00"], ConfigError, "has no time zone"),
        (["--file-pos", "binlog.000001"], ConfigError, "is not of the form FILE:POS"),
        (["--file-pos", "binlog.000001:4", *FILES], ConfigError, "is not among the files"),
        (["--file-pos", "rotation.1.binlog:999999", *FILES], ConfigError, "after the end of the file"),
        (["--gtid", "0-9-1", *FILES], DataLossError, "0-9-1 is in none of the files"),
        (["--time", "1970-01-02T00:00:00Z", *FILES[1:]], DataLossError, "may be in an earlier file"),
    ],
)
def test_what_cannot_be_answered_is_refused(arguments: list[str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        _run(*arguments)
