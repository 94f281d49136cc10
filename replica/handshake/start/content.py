"""Comparison of the last stored transaction with the server's, because sequence numbers may be assigned again.

On the server where we stopped, the last event of the group is compared byte for byte with the event at its place. XID,
time and thread never repeat together. On any other server, the group is looked up by its GTID, and the properties that
all copies of a transaction share are compared (protocol/groups/fingerprint.py). Both need a separate connection.

Source: measured on 10.11 and 11.8. After RESET MASTER a server accepts an old position. Once its new binlog has reached
the same numbers, it continues after the new group of that number, without an error.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from replica.errors import PositionLostError, ServerError
from replica.handshake.login.login import LOOK_BYTES, log_in
from replica.handshake.start.peek import ER_NO_SUCH_PLACE, MAX_DUMP_POSITION, event_at, fingerprint_of
from replica.handshake.start.resume import HINT, Here
from replica.protocol.gtid import BinlogPosition

if TYPE_CHECKING:
    from replica.handshake.login.login import Login
    from replica.handshake.start.resume import Stored
    from replica.options.config import Endpoint, ReplicaConfig
    from replica.protocol.gtid import GtidPosition


class Compared(NamedTuple):
    """Outcome of a comparison."""

    there: bool
    elsewhere: bool = False
    why: str = ""


async def verify_content(
    config: ReplicaConfig, endpoint: Endpoint, stored: Stored, here: Here, event: bytes | None
) -> Compared:
    """Raise an error unless the last stored group is the one that the server has.

    Args:
        config: the account.
        endpoint: the server.
        stored: where we stopped.
        here: the result of `verify`.
        event: the last event of the group, if it is available.

    Raises:
        PositionLostError: the server has another transaction there.
        DisconnectedError: the connection ended.
    """
    place = stored.primary
    if here is Here.PLACE and place is not None and event is not None and place.position <= MAX_DUMP_POSITION:
        reached = stored.position if stored.reached is None else stored.reached
        login = await log_in(config, endpoint)
        with contextlib.closing(login):
            try:
                await verify_event(login, reached, place, event)
            except PositionLostError:
                if stored.uid is not None or stored.last is None:
                    raise
                here = Here.ELSEWHERE  # only the server id, which is not unique, says that it is the same server
    if here is not Here.ELSEWHERE or place is None:  # without a place, someone gave the position
        return Compared(there=here is Here.PLACE)
    login = await log_in(config, endpoint)
    with contextlib.closing(login):
        return Compared(there=False, elsewhere=True, why=await verify_group(login, stored))


async def verify_event(login: Login, position: GtidPosition, place: BinlogPosition, event: bytes) -> None:
    """Raise an error unless `event` is the server's event that ends at `place`, where `position` ended.

    The login cannot be used afterwards.

    Raises:
        PositionLostError: there is another event there, or none.
        DisconnectedError: the connection ended.
    """
    start = BinlogPosition(place.file, place.position - len(event))
    try:
        # One byte more than our event, because a longer event is a different one, whatever its length.
        found = await event_at(login, start, longest=max(len(event) + 1, LOOK_BYTES))
    except ServerError as error:
        if error.code != ER_NO_SUCH_PLACE:
            raise
        found = None
    if found != event:
        raise PositionLostError(
            f"the server's binlog was reset: the event at {start}, the last of {position}, is a different one now.",
            hint=HINT,
        )


async def verify_group(login: Login, stored: Stored) -> str:
    """Raise an error if the server has another transaction under the GTID of our last one.

    The login cannot be used afterwards.

    Returns:
        Why the two could not be compared, or '' if they are the same.

    Raises:
        PositionLostError: it is another transaction.
        DisconnectedError: the connection ended.
    """
    ours = stored.last
    if ours is None:
        return "its content was not stored with the position"
    reached = stored.position if stored.reached is None else stored.reached
    try:
        theirs = await fingerprint_of(login, ours.gtid, reached)
    except ServerError as error:
        if error.code != ER_NO_SUCH_PLACE:
            raise
        return f"the server says: {error.message}"
    if theirs is None:
        return "it is not in the server's binlog, which continues after it"
    difference = ours.difference(theirs)
    if difference:
        raise PositionLostError(
            f"the server has another transaction under the number {ours.gtid}, the last of {reached}: {difference}. It "
            "was reset, has diverged, or is another server.",
            hint=HINT,
        )
    return ""
