"""The lag of a batch: by the newest commit of its tables, else by the last transaction of the binlog."""

from __future__ import annotations

import datetime as dt

from replica.protocol.groups.fingerprint import Fingerprint
from replica.protocol.gtid import Gtid, GtidPosition
from streaming_source.mirroring.control.metrics import MirrorLag
from streaming_source.offsets.offset import SourceOffset

NOW = dt.datetime(2026, 11, 23, 12, 0, 10, 500_000, dt.UTC)
OLD = dt.datetime(2001, 9, 9, tzinfo=dt.UTC)


def end(time: int | None) -> SourceOffset:
    last = None if time is None else Fingerprint(Gtid.parse("0-1-7"), time, 0, 0, 0)
    return SourceOffset(GtidPosition.parse("0-1-7"), GtidPosition.parse("0-1-7"), last=last)


def ago(seconds: float) -> dt.datetime:
    return NOW - dt.timedelta(seconds=seconds)


def test_the_newest_commit_of_the_batch_counts() -> None:
    assert MirrorLag().at(NOW, [(ago(9), None), (None, ago(1)), (ago(2.5), ago(100))], end(1)) == 2.5


def test_without_changes_the_last_transaction_counts() -> None:
    assert MirrorLag().at(NOW, [(None, None)], end(int(NOW.timestamp()) - 3)) == 3.5
    assert MirrorLag().at(NOW, [], end(None)) is None
    assert MirrorLag().at(NOW, [], end(0)) is None


def test_a_clock_that_is_ahead_of_ours_is_no_negative_lag() -> None:
    assert MirrorLag().at(NOW, [(ago(-5), None)], end(None)) == 0.0


def test_a_session_that_sets_its_clock_back_makes_no_lag_of_decades() -> None:
    """SET timestamp: the lag is not longer than since the change before, or since the target was made."""
    lag = MirrorLag()
    assert lag.at(NOW, [(OLD, ago(60))], end(None)) == 60.0
    assert lag.at(NOW, [(ago(7), ago(60))], end(None)) == 7.0
    assert lag.at(NOW, [(OLD, None)], end(None)) == 7.0
    assert lag.at(NOW, [], end(int(OLD.timestamp()))) == 7.0


def test_a_session_that_sets_its_clock_ahead_hides_no_later_lag() -> None:
    lag = MirrorLag()
    assert lag.at(NOW, [(dt.datetime(2105, 1, 1, tzinfo=dt.UTC), ago(60))], end(None)) == 0.0
    assert lag.at(NOW, [(ago(30), ago(60))], end(None)) == 30.0
