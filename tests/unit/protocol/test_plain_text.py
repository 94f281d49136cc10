"""What strangers wrote does not command a terminal, whoever prints it."""

from __future__ import annotations

import io
import json

import click
import pytest

from replica.commands import cli
from replica.daemon.logs import LogWriter
from replica.daemon.status.page import page
from replica.daemon.status.verdict import judge, running
from replica.errors import ServerError
from replica.protocol.plain_text import has_control, one_line, plain_event, plain_json, printable
from replica.readers.rows.progress import Notices
from tests.unit.daemon.records import NOW, head, record

HOSTILE = "bin\x00\n\r\x1b[2J\x07\x7f\x9b31m.000001"
SHOWN = "bin\\x00\\x0a\\x0d\\x1b[2J\\x07\\x7f\\x9b31m.000001"


def test_control_characters_are_shown_in_hex() -> None:
    assert one_line(HOSTILE) == SHOWN
    assert printable("a\x1b[2J\n\tb\r") == "a\\x1b[2J\n\tb\\x0d"
    assert has_control(HOSTILE)
    assert not has_control("bin-ü.000001")


def test_events_of_a_log() -> None:
    event = {"event": HOSTILE, "exception": "a\n  b\x1b", "count": 3}
    assert plain_event(None, "info", event) == {"event": SHOWN, "exception": "a\n  b\\x1b", "count": 3}
    assert json.loads(plain_json(json.dumps(HOSTILE, ensure_ascii=False))) == HOSTILE


@pytest.mark.parametrize("style", ["json", "text"])
def test_the_daemons_log(style: str) -> None:
    stream = io.StringIO()
    writer = LogWriter(style=style, level="info", stream=stream)
    writer.logger.info("not connected", error=HOSTILE)
    writer.close()
    (line,) = stream.getvalue().split("\n")[:-1]
    assert not has_control(line)


def test_the_page_of_status() -> None:
    hostile = {
        "position": {"primary_file": HOSTILE},
        "connection": {"primary_version": HOSTILE, "last_error": HOSTILE},
        "primary_error": HOSTILE,
        "not_ready": f"failed: {HOSTILE}",
    }
    one = record(**hostile)
    for verdict in (judge(one, holder="1", now=NOW), judge(one, holder=None, now=NOW), running(one)):
        lines = click.unstyle(page(one, head(), verdict, NOW)).split("\n")
        assert not any(map(has_control, lines))
        assert any(SHOWN in line for line in lines)


def test_the_line_of_an_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(*_arguments: object, **_options: object) -> None:
        raise ServerError(f"db1 answered with error 1: {HOSTILE}.")

    monkeypatch.setattr(cli.program, "main", fails)
    with pytest.raises(SystemExit):
        cli.main()
    assert capsys.readouterr().err == f"mariadb-replica: db1 answered with error 1: {SHOWN}.\n"


def test_what_a_dump_says_beside_its_output() -> None:
    stream = io.StringIO()
    Notices(stream).say(HOSTILE)
    assert stream.getvalue() == f"mariadb-replica: {SHOWN}\n"
