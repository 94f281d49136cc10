from __future__ import annotations

from types import SimpleNamespace

import pytest

from replica.errors import ServerError
from replica.handshake.primary import progress as primary
from replica.handshake.primary.progress import ListedBinlog, ask_primary, list_binlogs
from replica.protocol.gtid import BinlogPosition, GtidPosition
from tests.unit.handshake.steps import converse

NOW = 1_700_000_000.0
STATUS = (("Binlog_snapshot_file", "bin.000007"), ("Binlog_snapshot_position", "1234"))
SEMI_SYNC = (("Rpl_semi_sync_master_status", "ON"), ("Rpl_semi_sync_master_clients", "2"))


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours stands still, and the primary's is five seconds ahead."""
    monkeypatch.setattr(primary, "time", SimpleNamespace(time=lambda: NOW))


def answers(**variables: str) -> dict[str, object]:
    return {
        "SELECT TIMESTAMPDIFF": ((str(int(NOW * 1e6) + 5_000_000), "0-1-7,3-2-1", "42"),),
        "SHOW STATUS": (*STATUS, *SEMI_SYNC),
        "SHOW GLOBAL VARIABLES": tuple(variables.items()),
        "SELECT BINLOG_GTID_POS": (("",),),
    }


def test_a_full_answer() -> None:
    said, answer = converse(
        ask_primary("bin.000003"), answers(binlog_expire_logs_seconds="3600", expire_logs_days="0.04")
    )  # type: ignore[arg-type]
    assert (answer.server_id, answer.position) == (42, GtidPosition.parse("0-1-7,3-2-1"))
    assert answer.place == BinlogPosition("bin.000007", 1234)
    assert answer.clock_offset_s == pytest.approx(5.0)
    assert (answer.expiry_s, answer.max_total_bytes, answer.file_kept) == (3600.0, None, True)
    assert (answer.semi_sync, answer.semi_sync_clients) == (True, 2)
    assert len(said) == 4


@pytest.mark.parametrize(
    ("variables", "expiry_s", "max_bytes"),
    [
        ({}, None, None),
        ({"expire_logs_days": "0"}, None, None),
        ({"expire_logs_days": "2"}, 172_800.0, None),  # 10.5 knows days only
        ({"binlog_expire_logs_seconds": "0", "expire_logs_days": "0.000000", "max_binlog_total_size": "0"}, None, None),
        ({"binlog_expire_logs_seconds": "90", "max_binlog_total_size": "1000000"}, 90.0, 1_000_000),
    ],
)
def test_retention_in_every_versions_words(
    variables: dict[str, str], expiry_s: float | None, max_bytes: int | None
) -> None:
    _, answer = converse(ask_primary("bin.000003"), answers(**variables))  # type: ignore[arg-type]
    assert (answer.expiry_s, answer.max_total_bytes) == (expiry_s, max_bytes)


def test_a_purged_file_is_none() -> None:
    _, answer = converse(ask_primary("bin.000003"), {**answers(), "SELECT BINLOG_GTID_POS": ((None,),)})  # type: ignore[dict-item]
    assert answer.file_kept is False


def test_without_a_file_nobody_asks_about_one() -> None:
    said, answer = converse(ask_primary(""), {"SELECT TIMESTAMPDIFF": (("0", None, "1"),)})
    assert (answer.file_kept, answer.place, answer.semi_sync, answer.position) == (None, None, None, GtidPosition())
    assert len(said) == 3


def test_binlog_sizes_and_an_account_that_may_not_see_them() -> None:
    rows = (("bin.000001", "1000"), ("bin.000002", "50"))
    assert converse(list_binlogs(), {"SHOW BINARY LOGS": rows})[1] == (
        ListedBinlog("bin.000001", 1000),
        ListedBinlog("bin.000002", 50),
    )
    assert converse(list_binlogs(), {"SHOW BINARY LOGS": ServerError("no", code=1227)})[1] is None
    with pytest.raises(ServerError):
        converse(list_binlogs(), {"SHOW BINARY LOGS": ServerError("no", code=1381)})
