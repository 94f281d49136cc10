"""Where a reading begins or ends: each spelling has one meaning, and one canonical text."""

from __future__ import annotations

import pytest

from replica.options.values import CommitTime, ending_place, start_of_log, starting_place
from replica.protocol.gtid import GtidPosition

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
    for parse in (starting_place, ending_place):
        assert parse(text) == parse(canonical) == meant
        assert str(parse(text)) == canonical


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2026-11-21T20:00:00", "has no time zone"),
        ("2026-11-21 20:00", "has no time zone"),
        ("2026-11-21", "may be a date or a GTID; write 2026-11-21T00:00:00Z"),
        ("2026-02-30T00:00:00Z", "is not a time such as"),
        ("1969-12-31T23:59:59Z", "is outside 1970 to 2106"),
        ("2106-02-07T06:28:16Z", "is outside 1970 to 2106"),
        ("tomorrow", "is neither latest nor"),
        ("", "is empty"),
    ],
)
def test_what_could_mean_two_things_or_nothing_is_refused(text: str, reason: str) -> None:
    for parse in (starting_place, ending_place):
        with pytest.raises(ValueError, match=reason):
            parse(text)


def test_earliest_is_the_oldest_binlog_as_a_start_and_before_the_first_transaction_as_an_end() -> None:
    assert starting_place("earliest") == "earliest"
    assert ending_place(" Earliest ") == GtidPosition()


def test_a_gtid_that_looks_like_a_date_can_still_be_written() -> None:
    assert str(starting_place("2026-11-021")) == "2026-11-21"


def test_a_relay_log_starts_at_a_word_or_a_position() -> None:
    assert start_of_log(" Earliest ") == "earliest"
    assert start_of_log("1-2-9, 0-1-4") == GtidPosition.parse("0-1-4,1-2-9")
    assert start_of_log("") == GtidPosition()
    with pytest.raises(ValueError, match="position --time 2026-11-21T20:00:00Z` prints"):
        start_of_log("2026-11-21 21:00+01:00")
    with pytest.raises(ValueError, match="binlog file and an offset"):
        start_of_log("binlog.000007:4711")
