"""Frontiers: any run of begun, delivered and repeated tables against a plain model, JSON that is their identity."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.snapshot.frontier import NOTHING, Frontier

_names = st.tuples(st.text("abßé", min_size=1, max_size=2), st.text("xyz😀", min_size=1, max_size=2))
_keys = st.binary(min_size=1, max_size=20)
_steps = st.lists(
    st.tuples(st.just("begin"), st.integers(1, 4))
    | st.tuples(st.just("key"), st.integers(0, 9), _keys, st.integers(1, 1000))
    | st.tuples(st.just("whole"), st.integers(0, 9), st.integers(0, 1000))
    | st.tuples(st.just("again"), _names)
    | st.tuples(st.just("gone"), _names),
    max_size=30,
)


def _run(names: list[tuple[str, str]], steps: list[tuple[object, ...]]) -> Frontier:
    """Go through the steps with a frontier and a dict of what is delivered of each table; they agree after each."""
    frontier, model, waiting, rows = Frontier(), dict.fromkeys(names, NOTHING), sorted(names), 0
    whole: dict[tuple[str, str], bytes | None] = {**model}
    passed: set[tuple[str, str]] = set()
    for step in steps:
        match step:
            case ["begin", int(number)]:
                new, waiting = waiting[:number], waiting[number:]
                frontier = frontier.begin(new)
                passed |= set(new)
            case ["key", int(which), bytes(kept), int(count)] if frontier.open:
                name = frontier.open[which % len(frontier.open)][0]
                frontier, rows = frontier.advance(name, kept, count), rows + count
                whole[name] = kept
            case ["whole", int(which), int(count)] if frontier.open:
                name = frontier.open[which % len(frontier.open)][0]
                frontier, rows = frontier.advance(name, None, count), rows + count
                whole[name] = None
            case ["again", name] if name in passed:
                frontier = frontier.restarted([name])
                whole[name] = NOTHING
            case ["gone", name] if name in passed:
                frontier = frontier.without([name])
                whole[name] = None
        assert {name: frontier.reached(name) for name in names} == whole
        assert frontier.rows == rows
    return frontier


@settings(max_examples=200)
@given(st.lists(_names, unique=True, max_size=12), _steps)
def test_what_is_delivered_of_each_table_is_what_was_said_of_it(
    names: list[tuple[str, str]], steps: list[tuple[object, ...]]
) -> None:
    frontier = _run(names, steps)
    text = json.dumps(frontier.json())
    assert Frontier.parse(json.loads(text)) == frontier
    assert json.dumps(Frontier.parse(json.loads(text)).json()) == text
    assert [name for name, _ in frontier.open] == sorted(name for name, _ in frontier.open)


@given(st.lists(_names, min_size=2, unique=True))
def test_names_are_in_the_order_of_their_bytes(names: list[tuple[str, str]]) -> None:
    assert sorted(names) == sorted(names, key=lambda name: (name[0].encode(), name[1].encode()))


def test_a_table_made_later_is_the_streams_where_its_name_was_passed_and_else_read() -> None:
    frontier = Frontier().begin([("shop", "a"), ("shop", "m")]).advance(("shop", "a"), None, 5)
    assert frontier.reached(("shop", "b")) is None
    assert frontier.reached(("shop", "m")) == NOTHING
    assert frontier.reached(("shop", "z")) == NOTHING
    assert frontier.restarted([("shop", "b"), ("shop", "z")]).reached(("shop", "b")) == NOTHING
    assert frontier.restarted([("shop", "z")]) == frontier, "its turn comes"


def test_it_stays_below_4_kb_with_10_000_tables_of_which_the_first_is_the_largest() -> None:
    names = [(f"database_{n // 100:03}", f"table_with_a_long_name_{n:05}") for n in range(10_000)]
    frontier, key = Frontier(), bytes(64)
    frontier = frontier.begin(names[:16])
    for name in names[:16]:
        frontier = frontier.advance(name, key, 100_000)
    for name in names[16:]:
        frontier = frontier.begin([name]).advance(name, None, 1_000_000)
        assert len(json.dumps(frontier.json())) < 4096
    assert frontier.after == names[-1]
    assert frontier.reached(names[0]) == key


def test_what_is_not_begun_or_delivered_already_is_refused() -> None:
    frontier = Frontier().begin([("a", "a")])
    with pytest.raises(ValueError, match=r"a\.b is not open"):
        frontier.advance(("a", "b"), b"k", 1)
    with pytest.raises(ValueError, match="is not open"):
        frontier.advance(("a", "a"), None, 3).advance(("a", "a"), None, 1)


def test_behind_the_last_table_everything_is_delivered_but_what_is_open() -> None:
    frontier = Frontier().begin([("a", "a"), ("a", "b")]).advance(("a", "a"), None, 3).finish()
    assert not frontier.finished
    assert (frontier.reached(("a", "b")), frontier.reached(("z", "z"))) == (NOTHING, None)
    done = frontier.advance(("a", "b"), None, 1)
    assert (done.finished, done.rows) == (True, 4)
    assert done.begin([("z", "z")]) == done
    again = done.restarted([("z", "z")])
    assert (again.reached(("z", "z")), again.reached(("a", "b")), again.finished) == (NOTHING, None, False)
    assert Frontier.parse(json.loads(json.dumps(again.json()))) == again


@pytest.mark.parametrize(
    "value",
    [{}, {"rows": "x"}, {"rows": 1, "after": ["a"]}, {"rows": 1, "open": [["a", "b", "?"]]}, {"rows": 1, "open": [1]}],
)
def test_what_is_no_frontier_is_refused(value: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        Frontier.parse(value)
