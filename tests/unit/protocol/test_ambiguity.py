"""Which GTIDs may name more than one place, from the highest numbers behind which domains went back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from replica.protocol.gtid import Gtid, GtidPosition, ambiguous, merged, of_position
from tests.unit.protocol.test_gtid import SMALL


def test_a_position_above_the_highest_names_one_place() -> None:
    highest = {0: 9, 7: 4}
    assert ambiguous(GtidPosition.parse("0-1-9,7-1-5"), highest) == (Gtid(0, 1, 9),)
    assert of_position(GtidPosition.parse("0-1-3,7-1-4,8-1-1"), highest) == highest
    assert of_position(GtidPosition.parse("0-1-10,7-1-5"), highest) == {}


def test_two_memories_of_one_log_are_merged_by_the_higher_number() -> None:
    assert merged({0: 9, 7: 4}, {0: 3, 8: 1}) == {0: 9, 7: 4, 8: 1}


@given(
    SMALL, st.dictionaries(st.integers(0, 2), st.integers(1, 3)), st.dictionaries(st.integers(0, 2), st.integers(1, 3))
)
def test_a_number_up_to_the_highest_of_its_domain_is_ambiguous(
    value: GtidPosition, one: dict[int, int], other: dict[int, int]
) -> None:
    both = {domain: max(one.get(domain, 0), other.get(domain, 0)) for domain in {**one, **other}}
    assert merged(one, other) == both
    expected = {gtid for gtid in value if gtid.domain_id in both and gtid.seq_no <= both[gtid.domain_id]}
    assert set(ambiguous(value, both)) == expected
    assert of_position(value, both) == {gtid.domain_id: both[gtid.domain_id] for gtid in expected}
