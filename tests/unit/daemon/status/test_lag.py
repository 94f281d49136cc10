from __future__ import annotations

import pytest

from replica.daemon.status.lag import PrimaryLag, bytes_between, groups_between
from replica.handshake.primary.progress import ListedBinlog
from replica.live.progress import Progress
from replica.protocol.gtid import BinlogPosition, GtidPosition
from tests.unit.daemon.records import NOW, answer, head, sample

LOGS = (ListedBinlog("bin.000007", 10_000), ListedBinlog("bin.000008", 500), ListedBinlog("bin.000009", 900))


def progress(**fields: object) -> Progress:
    return Progress(**({"state": "streaming", "last_receipt_at": NOW} | fields))  # type: ignore[arg-type]


def test_a_group_that_arrives_at_once_is_no_lag_though_timestamps_have_whole_seconds() -> None:
    behind = PrimaryLag().sample(sample(NOW + 0.9, head=head(at=NOW), progress=progress(last_receipt_at=NOW + 0.9)))
    assert behind.seconds == 0


def test_old_groups_on_arrival_are_the_lag_and_it_does_not_grow_in_silence() -> None:
    lag = PrimaryLag()
    old = head(at=NOW - 100)
    assert lag.sample(sample(head=old, progress=progress())).seconds == 99
    assert lag.sample(sample(NOW + 5, head=old, progress=progress())).seconds == 99


def test_the_lag_is_by_the_primarys_clock() -> None:
    ahead = answer(clock=NOW + 1000)
    lag = PrimaryLag().sample(sample(head=head("0-1-98", at=NOW + 1000), answer=ahead))
    assert lag.seconds == 0
    late = PrimaryLag().sample(sample(head=head("0-1-98", at=NOW + 940), answer=ahead))
    assert late.seconds == 60


def test_a_session_that_sets_its_clock_ahead_hides_no_lag() -> None:
    """SET timestamp: a group cannot have been committed after it came."""
    lag = PrimaryLag()
    future = head(at=NOW + 1_000_000)
    assert lag.sample(sample(head=future, progress=progress())).seconds == 0
    stalled = progress(state="connecting", last_receipt_at=NOW)
    assert lag.sample(sample(NOW + 50, head=future, progress=stalled)).seconds == 50


def test_a_session_that_sets_its_clock_back_makes_no_lag_longer_than_since_all_was_here() -> None:
    lag = PrimaryLag()
    first = answer(asked_at=NOW, answered_at=NOW, clock=NOW)
    assert lag.sample(sample(head=head(at=NOW), answer=first, progress=progress())).seconds == 0
    old = head("0-1-120", position=9500, at=NOW - 800_000_000)
    assert lag.sample(sample(NOW + 5, head=old, progress=progress(last_receipt_at=NOW + 5))).seconds == 5


def test_a_heartbeat_behind_the_newest_group_is_proof_of_having_all() -> None:
    lag = PrimaryLag()
    old = head(at=NOW - 100)
    lag.sample(sample(head=old, progress=progress()))
    beat = progress(heartbeats=1, primary=old.primary, last_receipt_at=NOW + 1)
    assert lag.sample(sample(NOW + 1, head=old, progress=beat)).seconds == 0


def test_an_answer_asked_for_behind_the_newest_group_is_proof_of_having_all_until_another_comes() -> None:
    lag = PrimaryLag()
    before = answer(asked_at=NOW - 5, answered_at=NOW - 5, clock=NOW - 5)
    old = head(at=NOW - 100)
    assert lag.sample(sample(head=old, answer=before, progress=progress())).seconds == 5  # since that question
    after = answer(asked_at=NOW + 1, answered_at=NOW + 1, clock=NOW + 1)
    assert lag.sample(sample(NOW + 1, head=old, answer=after, progress=progress())).seconds == 0
    idle = lag.sample(sample(NOW + 5.37, head=old, answer=after, progress=progress()))
    assert (idle.seconds, idle.bytes, idle.groups) == (0, 0, 0)
    late = head("0-1-100", position=9500, at=NOW - 10)
    arrived = progress(last_receipt_at=NOW + 6)
    assert lag.sample(sample(NOW + 6, head=late, answer=after, progress=arrived)).seconds == 5


def test_a_heartbeat_before_newer_groups_proves_nothing_about_them() -> None:
    lag = PrimaryLag()
    lag.sample(sample(head=head(at=NOW - 100)))
    later = head("0-1-120", position=9500, at=NOW - 50)
    beat = progress(heartbeats=1, primary=BinlogPosition("bin.000007", 9000), last_receipt_at=NOW + 60)
    assert lag.sample(sample(NOW + 60, head=later, progress=beat)).seconds == pytest.approx(60)


def test_an_answer_that_names_groups_we_lack_makes_the_lag_grow() -> None:
    lag = PrimaryLag()
    assert lag.sample(sample(answer=answer())).seconds == 0
    more = answer(position=GtidPosition.parse("0-1-120"), asked_at=NOW + 10, answered_at=NOW + 10, clock=NOW + 10)
    behind = lag.sample(sample(NOW + 30, answer=more, progress=progress(last_receipt_at=NOW + 29)))
    assert behind.seconds == 30  # since the last answer that named nothing new
    assert behind.groups == 21


@pytest.mark.parametrize("state", ["connecting", "paused", "disk full"])
def test_without_a_stream_it_grows_from_the_last_proof(state: str) -> None:
    lag = PrimaryLag()
    lag.sample(sample(answer=answer()))
    away = progress(state=state)
    assert lag.sample(sample(NOW + 100, answer=answer(), progress=away)).seconds == 100


def test_without_a_stream_a_fresh_answer_still_proves_that_nothing_is_missing() -> None:
    fresh = answer(asked_at=NOW + 99, answered_at=NOW + 99, clock=NOW + 99)
    away = progress(state="connecting")
    assert PrimaryLag().sample(sample(NOW + 100, answer=fresh, progress=away)).seconds == 0


def test_a_stream_without_heartbeats_is_no_proof() -> None:
    lag = PrimaryLag()
    lag.sample(sample(answer=answer()))
    assert lag.sample(sample(NOW + 20, answer=answer(), progress=progress())).seconds == 20


def test_nothing_is_known_before_anything_happened() -> None:
    behind = PrimaryLag().sample(sample(head=head("", at=0), progress=progress(last_receipt_at=0.0)))
    assert (behind.seconds, behind.bytes, behind.groups, behind.purge) == (None, None, None, "unknown")


def test_a_clock_that_is_put_back_makes_no_negative_lag() -> None:
    lag = PrimaryLag()
    lag.sample(sample(answer=answer()))
    behind = lag.sample(sample(NOW - 1000, answer=answer(), progress=progress(state="connecting")))
    assert behind.seconds is not None
    assert behind.seconds >= 0


def test_groups_are_counted_by_domain_and_a_reset_domain_is_not_negative() -> None:
    ours, theirs = GtidPosition.parse("0-1-99,1-1-50"), GtidPosition.parse("0-1-104,1-2-10,7-1-3")
    assert groups_between(ours, theirs) == 5 + 0 + 3


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (("bin.000007", 4000), ("bin.000007", 9000), 5000),
        (("bin.000007", 9000), ("bin.000007", 4000), 0),
        (("bin.000007", 4000), ("bin.000009", 300), 6000 + 500 + 300),
        (("bin.000006", 4000), ("bin.000009", 300), None),
        (("bin.000009", 4), ("bin.000007", 300), None),
    ],
)
def test_bytes_over_files(ours: tuple[str, int], theirs: tuple[str, int], expected: int | None) -> None:
    assert bytes_between(BinlogPosition(*ours), BinlogPosition(*theirs), LOGS) == expected


def test_bytes_are_unknown_without_sizes_and_on_another_server() -> None:
    more = answer(position=GtidPosition.parse("0-1-120"), place=BinlogPosition("bin.000008", 400))
    assert PrimaryLag().sample(sample(answer=more)).bytes is None
    assert PrimaryLag().sample(sample(answer=more, binlogs=LOGS)).bytes == 1400
    promoted = progress(primary_server_id=1)  # by now; the newest relay file is of its predecessor
    assert PrimaryLag().sample(sample(answer=more, binlogs=LOGS, head_server_id=2, progress=promoted)).bytes is None
    assert PrimaryLag().sample(sample(answer=answer(), head_server_id=2, progress=promoted)).bytes == 0  # by GTID
    here, there = answer(position=more.position, place=more.place, uid="a"), "b"  # nodes of one cluster, with one id
    assert PrimaryLag().sample(sample(answer=here, binlogs=LOGS, head_uid=there)).bytes is None
    assert PrimaryLag().sample(sample(answer=here, binlogs=LOGS, head_uid="a")).bytes == 1400


def test_what_a_server_has_that_we_do_not_stream_from_proves_nothing() -> None:
    lag = PrimaryLag()
    lag.sample(sample(answer=answer()))
    other = answer(server_id=9, asked_at=NOW + 50, position=GtidPosition.parse("0-1-3"))
    behind = lag.sample(sample(NOW + 50, answer=other, progress=progress(state="connecting", primary_server_id=1)))
    assert (behind.seconds, behind.groups, behind.bytes, behind.purge) == (50, None, None, "unknown")


@pytest.mark.parametrize(
    ("changed", "gtid", "expected"),
    [
        ({"expiry_s": 3600.0}, "0-1-99", (3600.0, "by age")),  # what is needed next is not even written
        ({"expiry_s": 3600.0}, "0-1-90", (3540.0, "by age")),  # the file it stands in lives as long as its last write
        ({"expiry_s": 30.0}, "0-1-90", (0.0, "by age")),
        ({}, "0-1-90", (None, "never")),
        ({"file_kept": False}, "0-1-90", (0.0, "gone")),
        ({"file_kept": False, "expiry_s": 30.0}, "0-1-99", (30.0, "by age")),
        ({"max_total_bytes": 1000}, "0-1-90", (None, "unknown")),
        ({"max_total_bytes": 1000}, "0-1-99", (None, "by size")),
    ],
)
def test_how_long_the_position_is_safe(
    changed: dict[str, object], gtid: str, expected: tuple[float | None, str]
) -> None:
    behind = PrimaryLag().sample(sample(head=head(gtid, at=NOW - 60), answer=answer(**changed)))
    assert (behind.safe_s, behind.purge) == expected


def test_the_time_that_is_safe_runs_down_while_the_primary_does_not_answer() -> None:
    away = progress(state="connecting")
    behind = PrimaryLag().sample(sample(NOW + 600, answer=answer(expiry_s=3600.0), progress=away))
    assert (behind.safe_s, behind.purge) == (3000.0, "by age")
