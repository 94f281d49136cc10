"""The canonical text of startingPosition and endingPosition, and what it stands for."""

from __future__ import annotations

import pytest

from replica.protocol.gtid import GtidPosition
from streaming_source.offsets.positions import CommitTime, parse_position
from streaming_source.options.values import end_position, position

T = 1_795_291_200  # 2026-11-21T20:00:00Z


@pytest.mark.parametrize(
    ("text", "canonical", "meant"),
    [
        (" Latest ", "latest", "latest"),
        ("1-2-9, 0-1-4", "0-1-4,1-2-9", GtidPosition.parse("0-1-4,1-2-9")),
        ("2026-11-21T20:00:00Z", "2026-11-21T20:00:00Z", CommitTime(T)),
        ("2026-11-21 21:00:00+01:00", "2026-11-21T20:00:00Z", CommitTime(T)),
        ("20261121T200000Z", "2026-11-21T20:00:00Z", CommitTime(T)),
        ("2026-11-21T20:00:00.25Z", "2026-11-21T20:00:01Z", CommitTime(T + 1)),  # no transaction is a quarter late
    ],
)
def test_each_spelling_has_one_text_and_one_meaning(text: str, canonical: str, meant: object) -> None:
    for parse in (position, end_position):
        assert parse(text) == canonical
        assert parse(canonical) == canonical
    assert parse_position(canonical) == meant


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2026-11-21T20:00:00", "does not say in which time zone"),
        ("2026-11-21 20:00", "does not say in which time zone"),
        ("2026-11-21", "may be a date or a GTID; write 2026-11-21T00:00:00Z"),
        ("2026-02-30T00:00:00Z", "is not a time such as"),
        ("1969-12-31T23:59:59Z", "is outside 1970 to 2106"),
        ("2106-02-07T06:28:16Z", "is outside 1970 to 2106"),
        ("tomorrow", "is neither latest nor"),
        ("", "is empty"),
    ],
)
def test_what_could_mean_two_things_or_nothing_is_refused(text: str, reason: str) -> None:
    for parse in (position, end_position):
        with pytest.raises(ValueError, match=reason):
            parse(text)


def test_earliest_is_no_end() -> None:
    assert parse_position(position("earliest")) == "earliest"
    with pytest.raises(ValueError, match="is neither latest nor a time nor"):
        end_position("earliest")


def test_a_gtid_that_looks_like_a_date_can_still_be_written() -> None:
    assert position("2026-11-021") == "2026-11-21"
