from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.errors import ConfigError, PrerequisiteError
from replica.handshake.start.binlog import state_at
from replica.handshake.start.start import gtids, latest_and_prepared, starting_position
from replica.protocol.events.transaction_events import XaId
from replica.protocol.gtid import Gtid, GtidPosition
from tests.unit.handshake.steps import converse

if TYPE_CHECKING:
    from replica.handshake.registration import Rows


def test_latest_is_the_end_of_the_binlog() -> None:
    said, position = converse(starting_position("latest"), {"SELECT @@GLOBAL.gtid_binlog_pos": [("7-2-9,0-1-3",)]})
    assert str(position) == "0-1-3,7-2-9"
    assert len(said) == 1


def test_what_is_prepared_is_asked_between_two_looks_at_the_end() -> None:
    answers: dict[str, Rows] = {
        "SELECT @@GLOBAL.gtid_binlog_pos": [("0-1-3",)],
        "XA RECOVER": [
            ("1", "1", "0", "'a'"),
            ("1", "1", "1", "'a','b'"),
            ("7", "1", "0", "X'ff',X'',7"),
            ("2147483647", "3", "2", "X'615c62',X'7122',2147483647"),
        ],
    }
    said, latest = converse(latest_and_prepared(), answers)
    assert latest.prepared == {
        *(XaId(1, b"a", b""), XaId(1, b"a", b"b"), XaId(7, b"\xff", b"")),
        XaId(2147483647, b"a\\b", b'q"'),
    }
    assert str(latest.before) == str(latest.position) == "0-1-3"
    assert [str(sql).split()[0] for sql in said] == ["SELECT", "DO", "XA", "SELECT"]


def test_a_gtid_position_asks_nothing() -> None:
    said, position = converse(starting_position("0-1-3"), {})
    assert (said, str(position)) == ([], "0-1-3")


def test_other_words_are_refused() -> None:
    with pytest.raises(ConfigError):
        converse(starting_position("newest"), {})


@pytest.mark.parametrize(("oldest", "newest"), [(1, 1), (1, 40), (17, 40), (39, 40), (40, 40), (999_999, 1_000_001)])
def test_earliest_is_the_start_of_the_oldest_file(oldest: int, newest: int) -> None:
    answers: dict[str, Rows] = {"SHOW STATUS": [("Binlog_snapshot_file", f"db1.x.{newest:06d}")]}
    answers |= {
        f"SELECT BINLOG_GTID_POS('db1.x.{number:06d}', 4)": [(f"0-1-{number}",)] for number in range(oldest, newest + 1)
    }
    answers["SELECT BINLOG_GTID_POS"] = [(None,)]
    said, position = converse(starting_position("earliest"), answers)
    assert position == GtidPosition((Gtid(0, 1, oldest),))
    assert len(said) < 25


def test_a_server_without_binlog_has_no_earliest() -> None:
    with pytest.raises(PrerequisiteError):
        converse(starting_position("earliest"), {"SHOW STATUS": [("Binlog_snapshot_file", "")]})


def test_file_names_are_quoted() -> None:
    said, _ = converse(state_at("b'in\\x.000003", 9), {"SELECT": [(None,)]})
    assert said == [r"SELECT BINLOG_GTID_POS('b''in\\x.000003', 9)"]


def test_lists_with_several_servers_of_a_domain() -> None:
    assert gtids("0-1-3, 0-2-9,\n7-1-1") == (Gtid(0, 1, 3), Gtid(0, 2, 9), Gtid(7, 1, 1))
    assert gtids("") == gtids(None) == ()
