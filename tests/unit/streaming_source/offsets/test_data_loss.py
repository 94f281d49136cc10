"""Where a query goes on behind a gap, and what it says about it."""

from __future__ import annotations

import pytest

from replica.errors import PositionLostError, PositionPurgedError
from replica.protocol.gtid import GtidPosition
from streaming_source.offsets.data_loss import LOSSES_SHOWN, Loss, Losses, explained, go_on_after, prepared_lost

P = GtidPosition.parse


@pytest.mark.parametrize(
    ("position", "oldest", "goes_on", "after", "up_to"),
    [
        ("0-1-4", "0-1-9", "0-1-9", "0-1-4", "0-1-9"),
        ("0-1-4,1-1-8", "0-2-9,1-1-3", "0-2-9,1-1-8", "0-1-4", "0-2-9"),  # a domain that is ahead stays where it is
        ("0-1-4", "0-1-2,7-1-5", "0-1-4,7-1-5", "", "7-1-5"),  # a domain that the query has not met
        ("", "0-1-3", "0-1-3", "", "0-1-3"),
        ("0-1-4,3-1-1", "0-1-9", "0-1-9,3-1-1", "0-1-4", "0-1-9"),  # one that begins behind the oldest binlog
    ],
)
def test_each_domain_goes_on_at_the_oldest_or_where_it_was(
    position: str, oldest: str, goes_on: str, after: str, up_to: str
) -> None:
    assert go_on_after(P(position), P(oldest)) == (P(goes_on), Loss(P(after), P(up_to)))


@pytest.mark.parametrize(("position", "oldest"), [("0-1-4", "0-1-4"), ("0-1-4,1-1-1", "0-1-2"), ("0-1-4", "")])
def test_nothing_is_lost_where_the_log_begins_before(position: str, oldest: str) -> None:
    assert go_on_after(P(position), P(oldest)) == (P(position), None)


def test_losses_are_logged_and_shown_once_each_and_the_last_ones_only(caplog: pytest.LogCaptureFixture) -> None:
    losses = Losses()
    assert not losses
    for number in range(LOSSES_SHOWN + 3):
        losses.add(Loss(P(f"0-1-{number}"), P(f"0-1-{number + 1},5-1-2")))
    losses.add(Loss(P("0-1-12"), P("0-1-13,5-1-2")))
    assert len(losses.json()) == LOSSES_SHOWN
    assert losses.json()[-1] == {"after": "0-1-12", "upTo": "0-1-13,5-1-2"}
    assert "after 0-1-0 up to 0-1-1, of domain 5 up to 5-1-2 were removed" in caplog.text
    assert "prepared" not in caplog.text
    losses.add(Loss(P("0-1-1"), P("0-1-3"), prepared_only=True))
    assert losses.json()[-1]["preparedOnly"] is True
    assert "prepared after 0-1-1 up to 0-1-3" in caplog.text


def test_every_error_says_the_ways_out_that_there_are() -> None:
    purged = explained(PositionPurgedError("purged", code=1236, hint="x"))
    assert isinstance(purged, PositionPurgedError)
    assert purged.code == 1236
    assert "failOnDataLoss=false continues" in purged.hint
    reset = explained(PositionLostError("reset"))
    assert not isinstance(reset, PositionPurgedError)
    assert "failOnDataLoss=false does not help" in reset.hint
    assert "mariadb-replica position" in explained(PositionLostError("nobody's"), given=True).hint
    prepared = prepared_lost(PositionPurgedError("why"), P("0-1-2"), P("0-1-9"))
    assert "after 0-1-9 are available" in prepared.message
    assert "(why)" in prepared.message
