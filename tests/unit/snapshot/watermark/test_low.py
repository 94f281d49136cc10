"""What a replica's positions of ten seconds ago prove, against a relay log whose groups are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.protocol.events.transaction_events import XaId
from replica.protocol.gtid import Gtid, GtidPosition
from replica.relay_log.log import RelayLog
from replica.relay_writer.writer import RelayWriter
from replica.snapshot.watermark.low import ReplicaWatermark
from replica.snapshot.watermark.primary import MAX_PAIRS, ROWLESS, TEN_SECONDS, ServerStatus
from tests.kit.binlog.primary import Primary
from tests.kit.relay.driving import receive

if TYPE_CHECKING:
    from pathlib import Path


def filled(directory: Path, *groups: str, start: str = "", xa: dict[str, str] | None = None) -> RelayLog:
    """A relay log of groups of these GTIDs; `xa`: which of them prepare or commit the XA transaction x."""
    primary = Primary()
    primary.open_file("bin.000001")
    for text in groups:
        gtid = Gtid.parse(text)
        match (xa or {}).get(text):
            case "prepare":
                primary.xa_prepare("x", gtid)
            case "commit":
                primary.xa_end("x", gtid=gtid)
            case _:
                primary.transaction(gtid)
    with RelayWriter.open(directory, start=GtidPosition.parse(start)) as relay:
        receive(relay, primary.wire())
    return RelayLog(directory)


X = frozenset({XaId(1, b"x", b"")})


def look(
    positions: ReplicaWatermark, log: RelayLog, position: str, now_s: float, prepared: frozenset[XaId] = frozenset()
) -> str | None:
    positions.update(ServerStatus(None, 0, GtidPosition.parse(position), 0, prepared), log.head(), now_s)
    lower = positions.watermark(now_s)
    return None if lower is None else str(lower.position)


def aged(log: RelayLog, position: str) -> tuple[str | None, str]:
    """L once the replica has been at a position for long, and the reason."""
    positions = ReplicaWatermark(log)
    assert look(positions, log, position, 0) is None
    return look(positions, log, position, TEN_SECONDS), positions.reason


def test_a_position_counts_once_it_is_old_enough(tmp_path: Path) -> None:
    log = filled(tmp_path, *(f"0-1-{number}" for number in range(1, 31)))
    positions = ReplicaWatermark(log)
    for second in range(30):
        wanted = f"0-1-{second - 9}" if second >= 10 else None
        assert look(positions, log, f"0-1-{second + 1}", second) == wanted
        assert wanted or "not 10 s old" in positions.reason


TWO = ("0-1-1", "5-1-1", "0-1-2", "5-1-2", "0-1-3", "5-1-3")


@pytest.mark.parametrize(
    ("position", "lower"),
    [
        ("0-1-3,5-1-3", "0-1-3,5-1-3"),
        ("0-1-2,5-1-3", "0-1-2,5-1-1"),
        ("0-1-3,5-1-1", "0-1-1,5-1-1"),
        ("0-1-1,5-1-3", "0-1-1"),
        ("0-1-9,5-1-9,7-3-8", "0-1-3,5-1-3"),
        ("0-2-9,5-1-2", "0-1-2,5-1-2"),
        ("0-1-3", ""),
        ("", ""),
        ("7-3-8", ""),
        ("0-2-2,5-1-3", None),
    ],
)
def test_it_is_the_last_place_that_the_replica_has_in_all_domains(
    tmp_path: Path, position: str, lower: str | None
) -> None:
    found, reason = aged(filled(tmp_path, *TWO), position)
    assert found == lower
    assert lower is not None or "before the start of the relay log" in reason


def test_a_replica_that_stands_where_the_log_begins_or_before(tmp_path: Path) -> None:
    log = filled(tmp_path, "0-1-8", "0-1-9", "5-1-4", start="0-1-7,5-1-3")
    assert aged(log, "0-1-7,5-1-4")[0] == "0-1-7,5-1-3"
    assert aged(log, "0-1-9,5-1-3")[0] == "0-1-7,5-1-3"
    found, reason = aged(log, "0-1-6,5-1-4")
    assert found is None
    assert "0-1-6" in reason


def test_a_log_that_is_behind_the_replica_is_followed(tmp_path: Path) -> None:
    log = filled(tmp_path, "0-1-1", "0-1-2")
    positions = ReplicaWatermark(log)
    look(positions, log, "0-1-4", 0)
    assert look(positions, log, "0-1-4", 10) == "0-1-2"
    primary = Primary()
    primary.open_file("bin.000002")
    for number in range(3, 7):
        primary.transaction(Gtid(0, 1, number))
    with RelayWriter.open(tmp_path) as relay:
        receive(relay, primary.wire())
    assert look(positions, log, "0-1-4", 11) == "0-1-4"


def test_xa_commits_that_the_engine_is_not_done_with_are_gone_back_before(tmp_path: Path) -> None:
    log = filled(tmp_path, *(f"0-1-{n}" for n in range(1, 9)), xa={"0-1-3": "prepare", "0-1-5": "commit"})
    positions = ReplicaWatermark(log)
    look(positions, log, "0-1-4", 0, X)
    assert look(positions, log, "0-1-8", 10, X) == "0-1-4", "the replica has not got to it"
    assert look(positions, log, "0-1-8", 20, X) == "0-1-4"
    assert look(positions, log, "0-1-8", 900, X) == "0-1-4", "however long it takes"
    assert look(positions, log, "0-1-8", 901) == "0-1-8"


def test_xa_commits_that_the_log_had_before_the_replica_prepared_them(tmp_path: Path) -> None:
    log = filled(tmp_path, *(f"0-1-{n}" for n in range(1, 9)), xa={"0-1-3": "prepare", "0-1-5": "commit"})
    positions = ReplicaWatermark(log)
    look(positions, log, "0-1-2", 0)
    assert look(positions, log, "0-1-2", 10) == "0-1-2"
    assert look(positions, log, "0-1-8", 11, X) == "0-1-2"
    assert look(positions, log, "0-1-8", 21, X) == "0-1-4", "it is in the replica's binlog, and hangs"
    assert look(positions, log, "0-1-8", 22) == "0-1-8"


def test_it_does_not_go_back_before_an_xa_commit_whose_rows_the_log_has_not(tmp_path: Path) -> None:
    log = filled(tmp_path, *(f"0-1-{n}" for n in range(1, 9)), xa={"0-1-5": "commit"})
    positions = ReplicaWatermark(log)
    look(positions, log, "0-1-4", 0, X)
    assert look(positions, log, "0-1-8", 10, X) is None
    assert positions.reason == ROWLESS
    assert look(positions, log, "0-1-8", 20, X) is None
    assert look(positions, log, "0-1-8", 21) == "0-1-8"


def test_without_a_relay_log_there_is_no_place(tmp_path: Path) -> None:
    positions = ReplicaWatermark(RelayLog(tmp_path))
    assert look(positions, RelayLog(tmp_path), "0-1-1", 0) is None
    assert positions.reason == "the relay log has not begun"


def test_positions_in_memory_are_bounded(tmp_path: Path) -> None:
    log = filled(tmp_path, "0-1-1")
    positions = ReplicaWatermark(log)
    for number in range(1, MAX_PAIRS + 20):
        look(positions, log, f"0-1-{number}", 0)
    assert len(positions._positions) == MAX_PAIRS
