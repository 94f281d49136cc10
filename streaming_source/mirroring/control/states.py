"""The states of a mirrored table, and every way from one to another.

In: a table's control row, and what happened to the table. Out: the row in its next state. No other module sets a state;
the first row of a table is `reading`. docs/mirror.md shows the same table.
"""

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from replica.schema.patterns import table_text
from streaming_source.mirroring.control import control_row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming_source.mirroring.control.control_row import ControlRow


class State(enum.Enum):
    """The state of a table; the value is what the columns `state` and `waits_for` say: which, and whether it waits."""

    READING = control_row.READING, False
    """Rows of the table still come. Changes go into the target."""
    CURRENT = control_row.CURRENT, False
    """The target is what the server had at the position."""
    WAITING = control_row.READING, True
    """The table is to be read again. Until then nothing goes into the target."""
    SUSPENDED = control_row.FAILED, False
    """The table cannot go on. The target stays as it is."""
    RETRIED = control_row.FAILED, True
    """The table cannot go on, for a reason that may pass: it is read again by itself."""
    DROPPED = control_row.DROPPED, False
    """The server has the table no more."""


class Happening(enum.Enum):
    """The events that change a state; the value is their name in docs/mirror.md."""

    COMPLETED = "a batch ends with all rows there, and nothing left to follow"
    INCOMPLETE = "a batch ends while rows still come, or a foreign key is still to be followed"
    DOUBTED = "it is to be read again: a statement, rows of another definition, a change without rows"
    REFUSED = "it cannot go on"
    FAULTED = "it could not be written, for a reason that may pass"
    DROPPED = "DROP TABLE, or RENAME to another name"


_LIVE: Final = (State.READING, State.CURRENT)
WAYS: Final[Mapping[Happening, Mapping[State, State]]] = MappingProxyType(
    {
        Happening.COMPLETED: dict.fromkeys(_LIVE, State.CURRENT),
        Happening.INCOMPLETE: dict.fromkeys(_LIVE, State.READING),
        Happening.DOUBTED: dict.fromkeys(State, State.WAITING),
        Happening.REFUSED: dict.fromkeys(State, State.SUSPENDED),
        Happening.FAULTED: dict.fromkeys(State, State.RETRIED),
        Happening.DROPPED: dict.fromkeys(State, State.DROPPED),
    }
)
"""The next state, by what happens and the state before. What is not here cannot happen."""


def state_of(row: ControlRow) -> State:
    """Return the state of a table."""
    return State((row.state, row.waits_for is not None))


def settled(row: ControlRow, *, whole: bool) -> ControlRow:
    """Return the row of a live table after a batch; `whole`: whether its target is what the server had there."""
    return _moved(row, Happening.COMPLETED if whole else Happening.INCOMPLETE)


def doubted(row: ControlRow, batch: int, why: str) -> ControlRow:
    """Return the row of a table that is to be read again because of something in a batch."""
    return _moved(row, Happening.DOUBTED)._replace(waits_for=_request(row, batch), error=why)


def refused(row: ControlRow, why: str) -> ControlRow:
    """Return the row of a table that cannot go on."""
    return _moved(row, Happening.REFUSED)._replace(error=why)


def faulted(row: ControlRow, batch: int, why: str) -> ControlRow:
    """Return the row of a table that could not be written in a batch, and is read again by itself."""
    return _moved(row, Happening.FAULTED)._replace(waits_for=_request(row, batch), error=why)


def dropped(row: ControlRow) -> ControlRow:
    """Return the row of a table that the server has no more."""
    return _moved(row, Happening.DROPPED)._replace(error=None)


def _moved(row: ControlRow, happening: Happening) -> ControlRow:
    state, _ = WAYS[happening][state_of(row)].value
    return row._replace(state=state, waits_for=None)


def _request(row: ControlRow, batch: int) -> str:
    """Return the word of a request, which is another one in each batch."""
    return f"{table_text(row.name)} from batch {batch}"
