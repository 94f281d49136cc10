"""Choice of the start of a dump: a place of the server's binlog, or a GTID position.

In: the stored place where we stopped, and whether the connected server still has it, byte for byte (content.py). Out:
the place, or None for the position. A place names one point of one server's binlog, whatever the sequence numbers do.
The server searches a position in the newest of its files that begins before it. If sequence numbers went back, that may
be another point than ours, and rows would be lost or delivered twice. So the place is used whenever there is one.

The position is used for another server, and for places that the dump command cannot name. Then a position that names
more than one place is refused (`ambiguous` in protocol/gtid.py).

Source: the server's sql/sql_repl.cc (gtid_find_binlog_file), 10.11.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.errors import AmbiguousPositionError
from replica.handshake.start.peek import MAX_DUMP_POSITION
from replica.protocol.gtid import GtidPosition, ambiguous

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replica.handshake.start.resume import Stored
    from replica.protocol.gtid import BinlogPosition, Gtid

HINT: Final = (
    "Only the server it was read from can continue from there, by the place in its binlog: connect to that "
    "server. Once the numbers have passed the highest earlier one, any server will do. Otherwise copy the "
    "tables again, and start from a position after the copy, with a new checkpoint and an empty relay log."
)


def place_of_start(stored: Stored, *, there: bool) -> BinlogPosition | None:
    """Return the place to begin at, or None to begin after the stored position.

    Args:
        stored: where we stopped.
        there: whether the server has the stored place, unchanged.

    Raises:
        AmbiguousPositionError: only the position can be used, and it names more than one place.
    """
    place = stored.primary
    of_start = stored.reached in (None, stored.position)
    if there and of_start and place is not None and place.position <= MAX_DUMP_POSITION:
        return place
    several = ambiguous(stored.position, stored.highest)
    if several:
        raise ambiguous_error(stored.position, several, place)
    return None


def ambiguous_error(
    position: GtidPosition, several: Iterable[Gtid], place: BinlogPosition | None
) -> AmbiguousPositionError:
    """Return the error for a position whose GTIDs `several` may each name more than one place."""
    named = GtidPosition(tuple(several))
    meant = "" if place is None else f" It means the place {place} of the server it was read from."
    return AmbiguousPositionError(
        f"the position {position} matches more than one place: sequence numbers went back after {named}, or up to it."
        f"{meant}",
        hint=HINT,
    )
