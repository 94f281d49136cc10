"""The order in which columns get their new names: each is free when it is given."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streaming_source.mirroring.statements.alterations import composed, ordered, renamed
from streaming_source.mirroring.writers.target_format import RenameColumn

NAMES = st.sampled_from(["a", "A", "b", "c", "d", "_renamed_0", "_renamed_1"])


def distinct(names: list[str]) -> list[str]:
    """The names that Spark tells apart."""
    return list({name.lower(): name for name in names}.values())


@given(st.lists(NAMES).map(distinct), st.lists(NAMES).map(distinct), st.data())
def test_all_columns_end_with_their_names(before: list[str], after: list[str], data: st.DataObject) -> None:
    size = min(len(before), len(after))
    names = dict(zip(before[:size], data.draw(st.permutations(after[:size])), strict=True))
    there = {name: name for name in names}  # what is called so, by what it was called first
    for old, new in ordered(names):
        assert new.lower() not in {name.lower() for name in there if name != old} or new.lower() == old.lower()
        there[new] = there.pop(old)
    assert {first: now for now, first in there.items()} == names


def test_what_changes_places_goes_through_a_name_that_no_column_has() -> None:
    assert renamed({"a": "b", "b": "a"}, ["_renamed_0"]) == [
        RenameColumn("a", "_renamed_1"),
        RenameColumn("b", "a"),
        RenameColumn("_renamed_1", "b"),
    ]
    assert renamed({"a": "b", "b": "c"}) == [RenameColumn("b", "c"), RenameColumn("a", "b")]
    assert renamed({"a": "a"}) == []


def test_names_over_two_statements() -> None:
    assert composed({"c": "b", "n": "x"}, {"b": "a"}) == {"c": "a"}
