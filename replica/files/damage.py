"""The part of a damaged file that was left out, when that was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from replica.errors import ProtocolError


class Damage(NamedTuple):
    """A stretch of the file that no range holds: the group that the damage is in, up to the next readable group."""

    offset: int
    """The place of the event that is damaged."""
    begin: int
    """Where the stretch starts: the damaged group's first event."""
    end: int
    """Where reading went on, or the end of the file."""
    events: int
    """Whole events of the damaged group that stood before the damage and were dropped with it."""
    error: ProtocolError

    @property
    def size(self) -> int:
        """Bytes left out."""
        return self.end - self.begin
