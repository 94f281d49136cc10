"""Which GTIDs may name more than one place, from the highest numbers behind which domains went back."""

from __future__ import annotations

from replica.protocol.gtid import Gtid, GtidPosition, ambiguous, merged, of_position


def test_a_position_above_the_highest_names_one_place() -> None:
    highest = {0: 9, 7: 4}
    assert ambiguous(GtidPosition.parse("0-1-9,7-1-5"), highest) == (Gtid(0, 1, 9),)
    assert of_position(GtidPosition.parse("0-1-3,7-1-4,8-1-1"), highest) == highest
    assert of_position(GtidPosition.parse("0-1-10,7-1-5"), highest) == {}


def test_two_memories_of_one_log_are_merged_by_the_higher_number() -> None:
    assert merged({0: 9, 7: 4}, {0: 3, 8: 1}) == {0: 9, 7: 4, 8: 1}
