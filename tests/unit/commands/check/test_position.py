from __future__ import annotations

import dataclasses

import pytest

from replica.commands.check.continuation import position, purged_before
from replica.commands.check.report import Result
from replica.errors import ConfigError, PositionLostError
from replica.protocol.gtid import GtidPosition
from tests.unit.commands.check.facts import GOOD, config, end
from tests.unit.handshake.steps import converse

THERE = {"SELECT @@GLOBAL.gtid_binlog_state": [("0-1-100", "")], "SELECT BINLOG_GTID_POS": [("0-1-90",)]}


def test_a_log_that_can_go_on() -> None:
    _, found = converse(position(GOOD, end(), config()), THERE)
    assert isinstance(found, Result)
    assert found.state == "ok"
    assert "0-1-90" in found.what


def test_a_server_that_was_reset() -> None:
    reset = {**THERE, "SELECT BINLOG_GTID_POS": [("0-1-12",)]}
    _, found = converse(position(GOOD, end(), config()), reset)
    assert isinstance(found, PositionLostError)
    assert "reset" in found.message


def test_a_server_that_lags() -> None:
    _, found = converse(position(GOOD, end("0-1-300"), config(host="db1,db2")), THERE)
    assert isinstance(found, Result)
    assert (found.state, "0-1-300" in found.what) == ("warning", True)
    _, alone = converse(position(GOOD, end("0-1-300"), config()), THERE)
    assert isinstance(alone, PositionLostError)


def test_a_purged_position() -> None:
    _, found = converse(position(GOOD, end("0-1-30"), config()), {**THERE, "SELECT BINLOG_GTID_POS": [("0-1-30",)]})
    assert isinstance(found, PositionLostError)
    assert "purged" in found.message


@pytest.mark.parametrize(
    ("wanted", "oldest", "lost"),
    [
        ("0-1-40", "0-1-40", False),
        ("0-1-39", "0-1-40", True),
        ("", "0-1-40", True),
        ("", "", False),
        ("0-1-50", "0-1-40,7-2-1", True),
        ("0-1-50,7-2-1", "0-1-40,7-2-1", False),
        ("0-2-50,9-9-9", "0-1-40", False),
    ],
)
def test_the_oldest_file_must_begin_at_or_before_the_position(wanted: str, oldest: str, *, lost: bool) -> None:
    found = purged_before(GtidPosition.parse(wanted), GtidPosition.parse(oldest))
    assert (found is not None) == lost


@pytest.mark.parametrize(
    ("start", "word"), [("latest", "after 0-1-100"), ("earliest", "after 0-1-40"), ("0-1-90", "after 0-1-90")]
)
def test_a_first_start(start: str, word: str) -> None:
    _, found = converse(position(GOOD, None, config(start=start)), THERE)
    assert isinstance(found, Result)
    assert (found.state, word in found.what) == ("ok", True)


def test_a_first_start_before_the_oldest_file() -> None:
    _, found = converse(position(GOOD, None, config(start="0-1-20")), THERE)
    assert isinstance(found, PositionLostError)


def test_a_start_that_is_none() -> None:
    with pytest.raises(ConfigError, match="yesterday"):
        converse(position(GOOD, None, config(start="yesterday")), THERE)


def test_an_empty_log_is_asked_from_its_beginning() -> None:
    empty = dataclasses.replace(GOOD, oldest=GtidPosition())
    _, found = converse(position(empty, None, config(start="earliest")), THERE)
    assert isinstance(found, Result)
    assert "very beginning" in found.what
