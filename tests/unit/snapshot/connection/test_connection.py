"""A connection that reads tables, against what a server says byte for byte, and against what none says."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import (
    AuthenticationError,
    DisconnectedError,
    PrerequisiteError,
    ProtocolError,
    ReplicaError,
    ServerError,
)
from replica.handshake.registration import Query
from replica.protocol.gtid import GtidPosition
from replica.protocol.packets.packets import PacketSplitter
from replica.snapshot.connection import connection as module
from replica.snapshot.connection.connection import SessionLimits, ask_position, begin, settle, text_literal
from tests.fixtures.network.hostile import OK, column, rows
from tests.unit.snapshot.wired import WAYS, Way, connected, packets

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replica.handshake.registration import Rows, Steps
    from replica.snapshot.connection.connection import TableConnection

EOF = b"\xfe\0\0\x02\0"
PREPARED = bytes.fromhex("00 09000000 0100 0000 00 0000")
ROWS = [b"\0\0\1a", b"\0\4"]
TIMEOUT = b"\xff\xb1\x07#70100Query execution was interrupted (max_statement_time exceeded)"
KILLED = b"\xff\x87\x07#70100Connection was killed"
DENIED = b"\xff\x76\x04#42000SELECT command denied to user"


def result(*said: bytes) -> list[bytes]:
    """The answers to PREPARE and EXECUTE of a result with one column."""
    return [PREPARED, column(), EOF, b"\x01", column(), EOF, *said]


def read(connection: TableConnection, sql: str = "SELECT c FROM t") -> list[bytes]:
    got: list[bytes] = []
    for stretch in connection.select(sql).stretches():
        data = stretch.data[stretch.start : stretch.end].tobytes()
        got += [data] if stretch.joined else [bytes(row) for row in PacketSplitter().feed(data)]
    return got


def read_for_ever(connection: TableConnection) -> None:
    while True:
        assert read(connection) == ROWS


def heard(sent: bytes) -> list[bytes]:
    return [bytes(payload) for payload in PacketSplitter().feed(sent)]


@pytest.mark.parametrize("way", WAYS)
def test_a_result_and_what_is_asked_for_it(way: Way) -> None:
    with connected(way, packets(result(*ROWS, EOF)), packets([OK]), hang_up=False) as (connection, far):
        assert read(connection) == ROWS
        assert connection.rows("COMMIT") == []
        connection.close()
        assert heard(far.heard()) == [
            b"\x16SELECT c FROM t",
            b"\x17\x09\0\0\0\0\1\0\0\0",
            b"\x19\x09\0\0\0",
            b"\x03COMMIT",
            b"\x01",
        ]


@pytest.mark.parametrize("way", WAYS)
def test_the_columns_are_known_before_the_rows(way: Way) -> None:
    with connected(way, packets(result(EOF)), hang_up=False) as (connection, _):
        stream = connection.select("SELECT c FROM t")
        assert [(one.name, one.type, one.charset) for one in stream.columns] == [("c", 0xFD, 45)]
        assert list(stream.stretches()) == []
        assert list(stream.stretches()) == []


@pytest.mark.parametrize("before", [0, 1, 2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("way", WAYS)
def test_after_an_error_anywhere_the_connection_goes_on(way: Way, before: int) -> None:
    answer = [*result(*ROWS)[:before], TIMEOUT]
    with connected(way, packets(answer), packets(rows((b"1",))), hang_up=False) as (connection, far):
        with pytest.raises(ServerError, match="db:3306 answered with error 1969") as caught:
            read(connection)
        assert caught.value.code == 1969
        assert connection.rows("SELECT 1") == [("1",)]
        closed = b"\x19\x09\0\0\0" in heard(far.heard())
        assert closed == (before >= 3)  # what was prepared is dropped


@pytest.mark.parametrize("way", WAYS)
def test_errors_keep_their_meaning(way: Way) -> None:
    with connected(way, packets([DENIED]), packets([KILLED])) as (connection, _):
        with pytest.raises(AuthenticationError, match="refused: SELECT command denied"):
            connection.select("SELECT c FROM t")
        with pytest.raises(DisconnectedError, match="killed"):
            connection.rows("SELECT 1")
        with pytest.raises(DisconnectedError):
            connection.rows("SELECT 1")


@pytest.mark.parametrize("way", WAYS)
def test_a_result_that_is_left_before_its_end_ends_the_connection(way: Way) -> None:
    with connected(way, packets(result(*ROWS, EOF))) as (connection, _):
        for _stretch in connection.select("SELECT c FROM t").stretches():
            break
        with pytest.raises(DisconnectedError, match="left before its end"):
            connection.rows("SELECT 1")
        with pytest.raises(DisconnectedError, match="left before its end"):
            connection.select("SELECT 1")


@pytest.mark.parametrize("way", WAYS)
def test_arguments_are_quoted(way: Way) -> None:
    with connected(way, packets([OK]), hang_up=False) as (connection, far):
        connection.rows("SELECT '100%%', %s, %s", ("it's", "\\"))
        assert heard(far.heard()) == [b"\x03SELECT '100%', 'it\\'s', '\\\\'"]


@pytest.mark.parametrize("way", WAYS)
def test_a_snapshot_and_positions(way: Way) -> None:
    level = rows((b"REPEATABLE-READ", b"0-1-7,3-1-9"), width=2)
    with connected(way, packets([OK]), packets(level), packets(rows((b"0-1-8",))), packets([OK]), hang_up=False) as (
        one,
        _,
    ):
        assert one.begin_snapshot() == GtidPosition.parse("0-1-7,3-1-9")
        assert one.position() == GtidPosition.parse("0-1-8")
        one.end_snapshot()


@pytest.mark.parametrize("answer", [rows((b"a", b"b"), width=2), rows(), rows((b"no position",)), [OK]])
@pytest.mark.parametrize("way", WAYS)
def test_an_answer_without_sense(way: Way, answer: list[bytes]) -> None:
    with connected(way, packets(answer)) as (connection, _), pytest.raises(ProtocolError):
        connection.position()


@pytest.mark.parametrize("way", WAYS)
def test_small_answers_are_small(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_COLUMNS_BYTES", 200)
    with (
        connected(way, packets(result(EOF))) as (connection, _),
        pytest.raises(ProtocolError, match="db:3306: a reply of more than 200 bytes"),
    ):
        connection.select("SELECT c FROM t")


@pytest.mark.parametrize("way", WAYS)
def test_closing_wakes_a_thread_that_waits(way: Way) -> None:
    with connected(way, packets(result(*ROWS)), hang_up=False) as (connection, _):
        closing = threading.Timer(0.05, connection.close)
        closing.start()
        with pytest.raises(DisconnectedError, match="the connection to db:3306 was closed"):
            read(connection)
        closing.join()
        with pytest.raises(DisconnectedError, match="was closed"):
            connection.rows("SELECT 1")
        connection.close()


@pytest.mark.parametrize("before", range(20))
@pytest.mark.parametrize("way", WAYS)
def test_closing_at_any_moment(way: Way, before: int) -> None:
    """From another thread, while this one reads many results."""
    with connected(way, *[packets(result(*ROWS, EOF))] * 200, hang_up=False) as (connection, _):
        closing = threading.Timer(before / 1000, connection.close)
        closing.start()
        with pytest.raises(DisconnectedError):
            read_for_ever(connection)
        closing.join()


CONVERSATION = packets([*result(*ROWS, EOF)])


@pytest.mark.parametrize("way", WAYS)
def test_every_truncation_of_a_conversation_is_the_end_of_the_connection(way: Way) -> None:
    for length in range(len(CONVERSATION)):
        with connected(way, CONVERSATION[:length]) as (connection, _), pytest.raises(DisconnectedError):
            read(connection)


@given(
    st.sampled_from(WAYS),
    st.lists(st.tuples(st.integers(0, len(CONVERSATION) - 1), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_damaged_bytes_are_a_result_or_an_error_of_ours(way: Way, changes: Iterable[tuple[int, int]]) -> None:
    said = bytearray(CONVERSATION)
    for place, value in changes:
        said[place] = value
    with connected(way, bytes(said)) as (connection, _), contextlib.suppress(ReplicaError):
        assert all(isinstance(row, bytes) for row in read(connection))


@given(st.sampled_from(WAYS), st.lists(st.binary(max_size=30), max_size=10))
def test_any_packets_are_a_result_or_an_error_of_ours(way: Way, payloads: list[bytes]) -> None:
    with connected(way, packets(payloads)) as (connection, _), contextlib.suppress(ReplicaError):
        read(connection)


@pytest.mark.parametrize(
    "answer",
    [
        [bytes.fromhex("00 09000000 ff0f 0000 00 0000"), *[column()] * 5000],  # columns without end
        [*result(), b"\xfe" * 9],
        [*result(), b"\xfb/etc/passwd"],
        [*result(), b""],
        [*result(*ROWS), b"\x01"],
        [b"\x00"],
        [OK],
        [EOF],
        [b"\xfb/etc/passwd"],
        [PREPARED, column(), EOF, OK],
        [PREPARED, column(), EOF, b"\xfb/etc/passwd"],
    ],
)
@pytest.mark.parametrize("way", WAYS)
def test_hostile_answers(way: Way, answer: list[bytes]) -> None:
    with connected(way, packets(answer), hang_up=False) as (connection, far):
        with pytest.raises(ProtocolError, match="db:3306"):
            read(connection)
        with pytest.raises(ProtocolError):
            connection.rows("SELECT 1")
        assert b"passwd" not in far.heard()


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
