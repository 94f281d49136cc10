"""Choose where a dump is told to begin: at a place of the server's binlog, or behind a GTID position.

In: what is stored of the place where we stopped, and whether this very server has it still, byte for byte (resume.py).
Out: that place, or None for the position. A place names one point of one server's binlog, whatever the sequence numbers
do; a position is looked for by the server, in the newest of its files that begins before it, and where numbers went
back that may be another point than ours: rows would be lost or come twice. So the place is taken wherever there is one.

The position is left for another server, and for places that the dump command cannot name. There a position that names
more than one place is refused (protocol/ambiguity.py tells when it does).

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
    "Only the server it was read from can go on from there, by the place in its binlog: connect to that one. Once the "
    "numbers have passed the highest there was, every server will do. Else copy the tables again, and start from a "
    "position behind the copy, with a new checkpoint and an empty relay log."
)


def place_of_start(stored: Stored, *, there: bool) -> BinlogPosition | None:
    """Return the place to begin at; None means behind the stored position. `there`: the server has the place,
    unchanged.

    Raises:
        AmbiguousPositionError: only the position is left, and it names more than one place.
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
    meant = "" if place is None else f" Meant is the one at {place} of the server it was read from."
    return AmbiguousPositionError(
        f"the position {position} names more than one place: sequence numbers went back behind {named}, or up to it."
        f"{meant}",
        hint=HINT,
    )
