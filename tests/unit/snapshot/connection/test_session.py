"""The session that reads tables: what is set, and what is refused when it is read back."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import pytest

from replica.errors import PrerequisiteError, ProtocolError
from replica.handshake.registration import Query
from replica.protocol.gtid import GtidPosition
from replica.snapshot.connection.session import SessionLimits, ask_position, begin, settle, text_literal

if TYPE_CHECKING:
    from replica.handshake.registration import Rows, Steps

_Result = TypeVar("_Result")

KEPT = {
    "autocommit": "ON",
    "character_set_results": "",
    "log_bin": "ON",
    "sql_big_selects": "ON",
    "sql_mode": "",
    "sql_quote_show_create": "ON",
    "sql_select_limit": "18446744073709551615",
    "system_versioning_asof": "DEFAULT",
    "time_zone": "+00:00",
    "tx_isolation": "REPEATABLE-READ",
}


def held(steps: Steps[_Result], *answers: Rows) -> tuple[_Result, list[str]]:
    """The result of a conversation, and the statements in it; what is not answered gives no rows."""
    said, left = [], list(answers)
    step = next(steps)
    try:
        while True:
            assert isinstance(step, Query)
            said.append(step.sql)
            asks = step.sql.startswith(("SELECT", "SHOW"))
            step = steps.send(left.pop(0) if asks else [])
    except StopIteration as done:
        return done.value, said


def settled(**variables: str | None) -> tuple[str, list[str]]:
    found = {name: value for name, value in (KEPT | variables).items() if value is not None}
    return held(settle(SessionLimits(12.5, 0.2)), list(found.items()))


def test_limits_are_set_and_the_level_is_known_by_its_name() -> None:
    name, said = settled()
    assert name == "tx_isolation"
    assert said[0] == "ROLLBACK"
    assert "max_statement_time = 12.5, lock_wait_timeout = 1, innodb_lock_wait_timeout = 1" in said[2]
    assert settled(tx_isolation=None, transaction_isolation="REPEATABLE-READ")[0] == "transaction_isolation"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tx_isolation", "READ-COMMITTED"),
        ("transaction_isolation", "SERIALIZABLE"),
        ("time_zone", "SYSTEM"),
        ("sql_mode", "PAD_CHAR_TO_FULL_LENGTH"),
        ("sql_select_limit", "100"),
        ("character_set_results", "utf8mb4"),
        ("autocommit", "OFF"),
        ("system_versioning_asof", "2020-01-01 00:00:00.000000"),
        ("tx_isolation", None),
    ],
)
def test_a_session_that_does_not_keep_what_was_set_is_refused(name: str, value: str | None) -> None:
    with pytest.raises(PrerequisiteError, match=name if value else "no isolation level") as caught:
        settled(**{name: value})
    assert "init_connect" in caught.value.hint


@pytest.mark.parametrize("value", ["OFF", None])
def test_a_server_without_a_binlog_is_refused(value: str | None) -> None:
    with pytest.raises(PrerequisiteError, match="log_bin is off"):
        settled(log_bin=value)


def test_a_snapshot_is_opened_before_its_position_is_read() -> None:
    position, said = held(begin("tx_isolation"), [("REPEATABLE-READ", "0-1-7")])
    assert position == GtidPosition.parse("0-1-7")
    assert said == [
        "START TRANSACTION READ ONLY, WITH CONSISTENT SNAPSHOT",
        "SELECT @@session.tx_isolation, @@global.gtid_binlog_pos",
    ]
    with pytest.raises(PrerequisiteError, match="READ-UNCOMMITTED"):
        held(begin("tx_isolation"), [("READ-UNCOMMITTED", "0-1-7")])


def test_positions() -> None:
    assert held(ask_position(), [("",)])[0] == GtidPosition()
    with pytest.raises(ProtocolError, match="position is invalid"):
        held(ask_position(), [("a lie",)])


def test_texts_are_quoted() -> None:
    assert text_literal("it's \\ 'so'") == r"'it\'s \\ \'so\''"
