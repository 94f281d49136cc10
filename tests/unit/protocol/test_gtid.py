"""GTIDs and positions: text, order, and what may not be a position."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import ConfigError
from replica.protocol.gtid import BinlogPosition, Gtid, GtidPosition, Order, covers

U32 = st.integers(0, 2**32 - 1)
GTIDS = st.builds(Gtid, U32, U32, st.integers(0, 2**64 - 1))
POSITIONS = st.lists(GTIDS, max_size=5, unique_by=lambda g: g.domain_id).map(lambda gs: GtidPosition(tuple(gs)))
# Few values, so that positions meet.
SMALL = st.lists(
    st.builds(Gtid, st.integers(0, 2), st.integers(1, 2), st.integers(1, 3)),
    max_size=3,
    unique_by=lambda g: g.domain_id,
).map(lambda gs: GtidPosition(tuple(gs)))
MIRROR = {
    Order.EQUAL: Order.EQUAL,
    Order.BEFORE: Order.AFTER,
    Order.AFTER: Order.BEFORE,
    Order.CONCURRENT: Order.CONCURRENT,
}


def position(text: str) -> GtidPosition:
    return GtidPosition.parse(text)


@given(GTIDS)
def test_gtid_round_trip(gtid: Gtid) -> None:
    assert Gtid.parse(str(gtid)) == gtid


@given(POSITIONS)
def test_position_round_trip(value: GtidPosition) -> None:
    assert GtidPosition.parse(str(value)) == value
    assert pickle.loads(pickle.dumps(value)) == value  # noqa: S301
    assert hash(GtidPosition(tuple(reversed(value.gtids)))) == hash(value)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        ("  ", ""),
        ("7-2-9,0-1-4711", "0-1-4711,7-2-9"),
        (" 0-1-2 , 1-1-3 ", "0-1-2,1-1-3"),
        ("0-1-007", "0-1-7"),
    ],
)
def test_canonical_text(text: str, canonical: str) -> None:
    assert str(position(text)) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "0-1", "0-1-2-3", "a-1-2", "0-1-2,", ",", "0--1-2", "+0-1-2", "0-1-2_0", "0-1-٣", "4294967296-1-1",
        "0-4294967296-1", "0-1-18446744073709551616", "0-1-" + "9" * 10_000, "0-1-2;0-1-3", "latest",
    ],
)  # fmt: skip
def test_bad_text_is_a_config_error_with_advice(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        position(text)
    assert "domain-server-sequence" in caught.value.hint
    assert len(str(caught.value)) < 300


@given(st.text(max_size=30))
def test_any_text_parses_or_is_a_config_error(text: str) -> None:
    try:
        value = position(text)
    except ConfigError:
        return
    assert position(str(value)) == value


def test_two_gtids_of_one_domain_conflict() -> None:
    with pytest.raises(ConfigError, match="domain 0 is named twice"):
        position("0-1-2,0-2-3")


def test_advance_replaces_its_domain_even_with_a_lower_number() -> None:
    start = position("0-1-10,7-1-5")
    assert str(start.advance(Gtid(0, 2, 3))) == "0-2-3,7-1-5"
    assert str(start.advance(Gtid(3, 1, 1))) == "0-1-10,3-1-1,7-1-5"
    assert str(start) == "0-1-10,7-1-5"


def test_last_of_takes_the_last_entry_per_domain_in_list_order() -> None:
    state = [Gtid(7, 1, 5), Gtid(0, 2, 9), Gtid(0, 1, 12), Gtid(7, 3, 4)]
    assert str(GtidPosition.last_of(state)) == "0-1-12,7-3-4"


def test_lookup() -> None:
    value = position("0-1-4,7-1-2")
    assert value[7] == Gtid(7, 1, 2)
    assert 3 not in value
    assert value.get(3) is None
    assert list(value) == [Gtid(0, 1, 4), Gtid(7, 1, 2)]
    assert len(value) == 2
    with pytest.raises(KeyError):
        value[3]


@pytest.mark.parametrize(
    ("a", "b", "order"),
    [
        ("", "", Order.EQUAL),
        ("", "0-1-1", Order.BEFORE),
        ("0-1-1", "0-1-2", Order.BEFORE),
        ("0-1-5", "0-2-6", Order.BEFORE),
        ("0-1-5", "0-2-5", Order.CONCURRENT),
        ("0-1-2,7-1-1", "0-1-1,7-1-2", Order.CONCURRENT),
        ("0-1-2,7-1-1", "0-1-2", Order.AFTER),
        ("0-1-1", "7-1-1", Order.CONCURRENT),
    ],
)
def test_compare(a: str, b: str, order: Order) -> None:
    assert position(a).compare(position(b)) is order
    assert position(b).compare(position(a)) is MIRROR[order]


@given(SMALL, SMALL, SMALL)
def test_compare_is_a_partial_order(a: GtidPosition, b: GtidPosition, c: GtidPosition) -> None:
    assert a.compare(a) is Order.EQUAL
    assert (a.compare(b) is Order.EQUAL) == (a == b)
    assert b.compare(a) is MIRROR[a.compare(b)]
    if a.compare(b) is Order.BEFORE and b.compare(c) is Order.BEFORE:
        assert a.compare(c) is Order.BEFORE


@given(SMALL, st.integers(0, 2))
def test_a_higher_number_in_a_domain_comes_after(value: GtidPosition, domain: int) -> None:
    current = value.get(domain)
    later = value.advance(Gtid(domain, 1, current.seq_no + 1 if current else 1))
    assert value.compare(later) is Order.BEFORE


def test_binlog_positions_order_by_file_then_offset() -> None:
    assert BinlogPosition("bin.000001", 900) < BinlogPosition("bin.000002", 4) < BinlogPosition("bin.000002", 5 << 30)
    assert str(BinlogPosition("bin.000002", 4)) == "bin.000002:4"


@given(SMALL, SMALL)
def test_covering_is_having_reached_every_domain_by_its_number(a: GtidPosition, b: GtidPosition) -> None:
    numbers = {gtid.domain_id: gtid.seq_no for gtid in a}
    assert covers(a, b) == all(numbers.get(gtid.domain_id, 0) >= gtid.seq_no for gtid in b)
    if b.compare(a) in (Order.BEFORE, Order.EQUAL):
        assert covers(a, b)


@given(st.from_regex(r"[a-z:.]{1,9}\.[0-9]{6}", fullmatch=True), st.integers(0, 2**63 - 1))
def test_binlog_position_round_trip(file: str, offset: int) -> None:
    value = BinlogPosition(file, offset)
    assert BinlogPosition.parse(f" {value}\n") == value


@pytest.mark.parametrize(
    "text", ["", ":4", "bin.000001", "bin.000001:", "bin.000001:-4", "bin.000001:٣", "b:" + "9" * 99]
)
def test_what_is_no_file_and_offset_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is not of the form FILE:POS"):
        BinlogPosition.parse(text)
