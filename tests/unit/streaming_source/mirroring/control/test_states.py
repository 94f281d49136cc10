"""States of a mirrored table: one place sets them, and docs/mirror-reference.md shows every way."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streaming_source.mirroring.control import states
from streaming_source.mirroring.control.states import WAYS, State, StateEvent
from tests.kit.tree import files
from tests.unit.streaming_source.mirroring.control.test_control_table import row

if TYPE_CHECKING:
    from streaming_source.mirroring.control.control_table import ControlRow

PROJECT = Path(__file__).resolve().parents[5]
PAGE = PROJECT / "docs" / "mirror-reference.md"
WORDS = {
    State.READING: "`reading`",
    State.CURRENT: "`current`",
    State.WAITING: "`reading`, waits",
    State.SUSPENDED: "`failed`",
    State.RETRIED: "`failed`, waits",
    State.DROPPED: "`dropped`",
}


def in_state(state: State) -> ControlRow:
    shown, waits = state.value
    return row()._replace(state=shown, waits_for="a word" if waits else None, error="why")


def drawn() -> str:
    """The table of docs/mirror-reference.md."""
    lines = ["| what happens | state before | state after |", "| --- | --- | --- |"]
    for event, ways in WAYS.items():
        (after,) = set(ways.values())
        before = "any" if ways.keys() == set(State) else " or ".join(WORDS[state] for state in WORDS if state in ways)
        lines.append(f"| {event.value} | {before} | {WORDS[after]} |")
    return "\n".join(lines)


def test_the_page_shows_all_ways() -> None:
    assert drawn() in PAGE.read_text(encoding="utf-8"), f"put this into {PAGE.name}:\n{drawn()}"


@pytest.mark.parametrize("state", State)
def test_each_state_is_what_two_columns_say(state: State) -> None:
    assert states.state_of(in_state(state)) is state
    assert f"`{in_state(state).state}`" == WORDS[state].partition(",")[0]
    assert in_state(state).live == (state in (State.READING, State.CURRENT))


@pytest.mark.parametrize("state", State)
def test_any_table_can_be_doubted_refused_and_dropped(state: State) -> None:
    before = in_state(state)
    assert states.state_of(states.doubted(before, 4, "new")) is State.WAITING
    assert states.doubted(before, 4, "new").waits_for != states.doubted(before, 5, "new").waits_for
    assert states.state_of(states.refused(before, "new")) is State.SUSPENDED
    assert states.state_of(states.faulted(before, 4, "new")) is State.RETRIED
    assert states.state_of(states.dropped(before)) is State.DROPPED
    assert states.dropped(before).error is None
    assert {states.doubted(before, 4, "new").error, states.refused(before, "new").error} == {"new"}


@pytest.mark.parametrize("state", [state for state in State if state not in WAYS[StateEvent.COMPLETED]])
def test_a_table_that_takes_no_changes_is_not_settled_by_a_batch(state: State) -> None:
    with pytest.raises(KeyError):
        states.settled(in_state(state), complete=True)


@pytest.mark.parametrize("state", [State.READING, State.CURRENT])
def test_a_table_is_current_once_its_target_is_complete(state: State) -> None:
    complete, incomplete = (states.settled(in_state(state), complete=complete) for complete in (True, False))
    assert (states.state_of(complete), states.state_of(incomplete)) == (State.CURRENT, State.READING)


def test_no_other_module_sets_a_state() -> None:
    """`_replace(state=…)` and `_replace(waits_for=…)` stand in states.py alone; beginnings.py makes first rows."""
    found = {
        path.name
        for path in files(PROJECT / "streaming_source" / "mirroring", "**/*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and {one.arg for one in node.keywords} & {"state", "waits_for"}
    }
    assert found == {"states.py", "beginnings.py"}
