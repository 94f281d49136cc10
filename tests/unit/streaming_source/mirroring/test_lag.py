"""The lag of a batch: by the newest commit of its tables, else by the last transaction of the binlog."""

from __future__ import annotations

import datetime as dt

from replica.protocol.fingerprint import Fingerprint
from replica.protocol.gtid import Gtid, GtidPosition
from streaming_source.mirroring.lag import lag_at
from streaming_source.offsets.offset import SourceOffset

NOW = dt.datetime(2026, 11, 23, 12, 0, 10, 500_000, dt.UTC)


def end(time: int | None) -> SourceOffset:
    last = None if time is None else Fingerprint(Gtid.parse("0-1-7"), time, 0, 0, 0)
    return SourceOffset(GtidPosition.parse("0-1-7"), GtidPosition.parse("0-1-7"), last=last)


def test_the_newest_commit_of_the_batch_counts() -> None:
    times = [NOW - dt.timedelta(seconds=9), None, NOW - dt.timedelta(seconds=2.5)]
    assert lag_at(NOW, times, end(1)) == 2.5


def test_without_changes_the_last_transaction_counts() -> None:
    assert lag_at(NOW, [None], end(int(NOW.timestamp()) - 3)) == 3.5
    assert lag_at(NOW, [], end(None)) is None
    assert lag_at(NOW, [], end(0)) is None


def test_a_clock_that_is_ahead_of_ours_is_no_negative_lag() -> None:
    assert lag_at(NOW, [NOW + dt.timedelta(seconds=5)], end(None)) == 0.0
