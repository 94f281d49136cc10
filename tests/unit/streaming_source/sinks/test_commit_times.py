from __future__ import annotations

from streaming_source.sinks.query_lag import NewestCommit


def test_a_commit_is_not_older_than_one_before_it() -> None:
    newest = NewestCommit()
    assert newest.take([], 100.0) is None
    assert newest.take([90.0], 100.0) == 90.0
    assert newest.take([5.0], 101.0) == 90.0
    assert newest.take([95.0, 6.0], 102.0) == 95.0


def test_what_lies_in_the_future_is_now_and_is_forgotten() -> None:
    newest = NewestCommit()
    assert newest.take([2_000_000_000.0], 100.0) == 100.0
    assert newest.take([], 101.0) is None
    assert newest.take([99.0], 102.0) == 99.0
    assert newest.take([4_294_967_295.0, 100.0], 103.0) == 103.0
    assert newest.take([], 2_100_000_000.0) == 100.0
