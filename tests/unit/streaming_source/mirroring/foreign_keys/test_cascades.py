from __future__ import annotations

from replica.snapshot.check.facts import Cascade
from streaming_source.mirroring.foreign_keys.cascades import _children_first, ancestors_of, uppermost
from streaming_source.mirroring.foreign_keys.keys import links_by_parent

P, Q, R = (("d", name) for name in "pqr")


def key(parent: tuple[str, str]) -> Cascade:
    return Cascade("k", parent, ("ON DELETE CASCADE",), ("a",), ("id",))


def test_tables_are_written_from_below_so_that_a_crash_leaves_what_is_found_from_above() -> None:
    links = links_by_parent({Q: [key(P)], R: [key(Q), key(P), key(R)]})
    missed: dict[tuple[str, str], str] = {}
    assert _children_first([P, Q, R], links, missed) == [R, Q, P]
    assert _children_first([Q], links, missed) == [Q]
    assert missed == {}


def test_tables_in_a_circle_are_read_again() -> None:
    missed = {Q: "said"}
    assert _children_first([Q, R], links_by_parent({Q: [key(R)], R: [key(Q)]}), missed) == []
    assert missed[Q] == "said"
    assert "circle" in missed[R]


def test_tables_are_read_again_from_above() -> None:
    """While one is read, nothing tells what its rows take with them."""
    links = links_by_parent({Q: [key(P)], R: [key(Q), key(R)]})
    assert uppermost(ancestors_of([P, Q, R], links)) == [P]
    assert uppermost(ancestors_of([Q, R], links)) == [Q]
    assert uppermost(ancestors_of([R], links)) == [R]
    circle = links_by_parent({Q: [key(R)], R: [key(Q)], P: [key(Q)]})
    assert set(uppermost(ancestors_of([P, Q, R], circle))) == {Q, R}
