"""Quantiles of the time to an acknowledgement, from buckets."""

from __future__ import annotations

from replica.live.progress import ACK_BUCKETS_S, AckLatency


def test_there_is_no_quantile_before_the_first_acknowledgement() -> None:
    assert AckLatency().quantile(0.5) is None


def test_a_quantile_is_the_bound_of_its_bucket_and_never_beyond_the_longest() -> None:
    latency = AckLatency()
    for _ in range(99):
        latency.add(ACK_BUCKETS_S[0] / 2)
    latency.add(ACK_BUCKETS_S[3])
    assert latency.quantile(0.5) == ACK_BUCKETS_S[0]
    assert latency.quantile(0.99) == ACK_BUCKETS_S[0]
    assert latency.quantile(1) == ACK_BUCKETS_S[3]
    assert (latency.count, latency.last_s, latency.max_s) == (100, ACK_BUCKETS_S[3], ACK_BUCKETS_S[3])


def test_what_is_longer_than_every_bucket_is_the_longest() -> None:
    latency = AckLatency()
    latency.add(2 * ACK_BUCKETS_S[-1])
    assert latency.quantile(0.5) == 2 * ACK_BUCKETS_S[-1]
    short = AckLatency()
    short.add(ACK_BUCKETS_S[0] / 4)
    assert short.quantile(0.5) == ACK_BUCKETS_S[0] / 4, "no bound is said that nothing reached"
