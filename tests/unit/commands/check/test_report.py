from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.commands.check.report import Report, Result, lines
from replica.errors import DisconnectedError, PrerequisiteError

if TYPE_CHECKING:
    from collections.abc import Iterator

GOOD = Report("db1:3306", [Result("log_bin", "ok", "ON")], version="11.8.6-MariaDB", account="repl@%")
BAD = Report(
    "db2:3306",
    [
        Result("log_bin", "missing", "off", "restart it"),
        Result("clock", "warning", "late"),
        Result("read_only", "note", "ON", "SET GLOBAL read_only = OFF;"),
    ],
    error=PrerequisiteError("no."),
)
GONE = Report("db3:3306", error=DisconnectedError("no connection to db3:3306: refused."))


def plain(*reports: Report, encoding: str = "utf-8") -> str:
    text = "\n".join(lines(reports, encoding=encoding))
    while "\x1b[" in text:
        before, _, after = text.partition("\x1b[")
        text = before + after.partition("m")[2]
    return text


def test_every_state_has_a_word_beside_its_mark() -> None:
    text = plain(GOOD, BAD, GONE)
    for line in (
        "db1:3306  11.8.6-MariaDB  as repl@%",
        "  ✓ ok       log_bin              ON",
        "  ✗ MISSING  log_bin              off",
        "  ! warning  clock                late",
        "  · note     read_only            ON",
        "  1 missing (1 warning)",
        "  FAILED no connection to db3:3306: refused.",
        "NOT ready to replicate (db2:3306: exit code 21, db3:3306: exit code 40)",
    ):
        assert line in text.splitlines(), text
    assert f"{'fix: restart it':>48}" in text


def test_a_good_server_is_ready() -> None:
    text = plain(GOOD)
    assert text.endswith("  ready (no warning)\n\nready to replicate")
    assert "SET GLOBAL" not in text


def test_settings_that_a_restart_forgets_are_told_so_once() -> None:
    assert plain(BAD, BAD).count("SET GLOBAL holds until the server restarts") == 1


@pytest.mark.parametrize("encoding", ["ascii", "latin1", "no-such-encoding"])
def test_a_terminal_without_our_marks_gets_others(encoding: str) -> None:
    text = plain(GOOD, BAD, encoding=encoding)
    assert text.isascii()
    assert "  x MISSING  log_bin" in text


def test_what_a_server_says_commands_no_terminal() -> None:
    evil = Report("db\x1b[2J", [Result("version", "ok", "11\x1b]0;owned\x07", "\r\n")], version="\x9b1m")
    text = plain(evil)
    assert "\\x1b]0;owned\\x07" in text
    assert not set(text) & {"\x07", "\r", "\x9b"}


def test_a_report_is_told_before_the_next_one_is_asked_for() -> None:
    asked: list[str] = []

    def reports() -> Iterator[Report]:
        for report in (GOOD, GONE):
            asked.append(report.subject)
            yield report

    for line in lines(reports(), encoding="utf-8"):
        if "ready" in line:
            break
    assert asked == [GOOD.subject]
