from __future__ import annotations

import pytest

from replica.daemon.status.page import moment, size, span


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0004, "0.4 ms"), (0.0123, "12.3 ms"), (2, "2 s"), (59.4, "59.4 s"), (59.99, "60 s"), (60, "1 min"),
        (90, "1 min 30 s"), (3599.9, "1 h"), (3660, "1 h 1 min"), (100_000, "1 d 3 h"),
    ],
)  # fmt: skip
def test_spans(seconds: float, words: str) -> None:
    assert span(seconds) == words


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5 GiB"), (3 << 40, "3 TiB"), (5 << 50, "5120 TiB")],
)
def test_sizes(count: int, words: str) -> None:
    assert size(count) == words


def test_moments_are_utc() -> None:
    assert moment(0) == "1970-01-01 00:00:00 UTC"
