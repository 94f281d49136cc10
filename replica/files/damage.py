"""Part of a damaged file that was skipped on request."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from replica.errors import ProtocolError


class Damage(NamedTuple):
    """Bytes of the file that no range has: the damaged group, up to the next readable group."""

    offset: int
    """File offset of the damaged event."""
    begin: int
    """File offset of the damaged group's first event."""
    end: int
    """File offset at which reading continued, or the end of the file."""
    events: int
    """Whole events of the damaged group before the damage, which were dropped with it."""
    error: ProtocolError

    @property
    def size(self) -> int:
        """Bytes skipped."""
        return self.end - self.begin
