"""States of a mirrored table, and all transitions between them.

Each function takes a table's control row and returns it in its next state. No other module sets a state; the first row
of a table is `reading`. docs/mirror-reference.md has the same table of transitions.
"""

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from replica.schema.patterns import table_text
from streaming_source.mirroring.control import control_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming_source.mirroring.control.control_table import ControlRow


class State(enum.Enum):
    """State of a table. The value is the column `state`, and whether `waits_for` is set."""

    READING = control_table.READING, False
    """The snapshot of the table is running. Changes are applied to the target."""
    CURRENT = control_table.CURRENT, False
    """The target is equal to the table at the position."""
    WAITING = control_table.READING, True
    """The table waits for a re-snapshot. Until then nothing is applied to the target."""
    SUSPENDED = control_table.FAILED, False
    """The table is suspended. Nothing is applied to the target."""
    RETRIED = control_table.FAILED, True
    """The table is suspended for a reason that may be transient. The mirror re-snapshots it without a request."""
    DROPPED = control_table.DROPPED, False
    """The table was dropped on the server."""


class StateEvent(enum.Enum):
    """Event that changes a state. The value is the event's name in docs/mirror-reference.md."""

    COMPLETED = "a batch ends: the snapshot is complete, and no cascade is left to apply"
    INCOMPLETE = "a batch ends: the snapshot is running, or a cascade is left to apply"
    DOUBTED = "the table needs a re-snapshot: statement, other definition, change without rows, lost snapshot rows"
    REFUSED = "the table cannot continue"
    FAULTED = "the target could not be written, for a reason that may be transient"
    DROPPED = "DROP TABLE, or RENAME to another name"


_LIVE: Final = (State.READING, State.CURRENT)
WAYS: Final[Mapping[StateEvent, Mapping[State, State]]] = MappingProxyType(
    {
        StateEvent.COMPLETED: dict.fromkeys(_LIVE, State.CURRENT),
        StateEvent.INCOMPLETE: dict.fromkeys(_LIVE, State.READING),
        StateEvent.DOUBTED: dict.fromkeys(State, State.WAITING),
        StateEvent.REFUSED: dict.fromkeys(State, State.SUSPENDED),
        StateEvent.FAULTED: dict.fromkeys(State, State.RETRIED),
        StateEvent.DROPPED: dict.fromkeys(State, State.DROPPED),
    }
)
"""Next state by event and state before. Other combinations cannot happen."""


def state_of(row: ControlRow) -> State:
    """Return the state of a table."""
    return State((row.state, row.waits_for is not None))


def settled(row: ControlRow, *, complete: bool) -> ControlRow:
    """Return the row of a live table after a micro-batch.

    Args:
        row: the row of the table.
        complete: whether the target is equal to the table at the end of the micro-batch.
    """
    return _transitioned(row, StateEvent.COMPLETED if complete else StateEvent.INCOMPLETE)


def doubted(row: ControlRow, batch: int, why: str) -> ControlRow:
    """Return the row of a table that needs a re-snapshot because its target may be wrong after a micro-batch.

    Args:
        row: the row of the table.
        batch: the number of the micro-batch.
        why: the reason to show.
    """
    return _transitioned(row, StateEvent.DOUBTED)._replace(waits_for=_request(row, batch), error=why)


def refused(row: ControlRow, why: str) -> ControlRow:
    """Return the row of a suspended table."""
    return _transitioned(row, StateEvent.REFUSED)._replace(error=why)


def faulted(row: ControlRow, batch: int, why: str) -> ControlRow:
    """Return the row of a table that could not be written in a micro-batch, and that the mirror re-snapshots.

    Args:
        row: the row of the table.
        batch: the number of the micro-batch.
        why: the reason to show.
    """
    return _transitioned(row, StateEvent.FAULTED)._replace(waits_for=_request(row, batch), error=why)


def dropped(row: ControlRow) -> ControlRow:
    """Return the row of a table that was dropped on the server."""
    return _transitioned(row, StateEvent.DROPPED)._replace(error=None)


def _transitioned(row: ControlRow, event: StateEvent) -> ControlRow:
    state, _ = WAYS[event][state_of(row)].value
    return row._replace(state=state, waits_for=None)


def _request(row: ControlRow, batch: int) -> str:
    """Return the text that identifies a request; each micro-batch has its own."""
    return f"{table_text(row.name)} from batch {batch}"
