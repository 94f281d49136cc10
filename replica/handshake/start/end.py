"""End of the server's binlog: its position, and its place in the files, which names one point whatever the numbers do.

In: a configuration. Out: a `ServerEnd`. If sequence numbers go back, the last GTID may occur in the binlog more than
once (`ambiguous` in protocol/gtid.py). A read that ended at the first occurrence would miss transactions.

Source: measured on 10.5, 10.11 and 11.8. The snapshot's variables name the place after a file's last event, even if
that event is a binlog checkpoint. BINLOG_GTID_POS of a file's first offset is the position with which the file begins.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from replica.handshake.ask import ask, attempt
from replica.handshake.login.login import log_in
from replica.handshake.primary.server import ask_uid
from replica.handshake.start.binlog_files import state_at
from replica.handshake.start.peek import MAX_DUMP_POSITION, GroupHere, group_at
from replica.handshake.start.start import gtids, latest_position, snapshot_place
from replica.protocol.constants import FIRST_POSITION
from replica.protocol.gtid import BinlogPosition, GtidPosition

if TYPE_CHECKING:
    from replica.handshake.registration import Steps
    from replica.options.config import Endpoint, ReplicaConfig


class ServerEnd(NamedTuple):
    """End of a server's binlog.

    `place` is in the binlog of server `uid`: the end of its last group, or the beginning of a file without a group. It
    is None if only the position is known.
    """

    position: GtidPosition
    place: BinlogPosition | None = None
    uid: str | None = None


async def server_position(config: ReplicaConfig) -> GtidPosition:
    """Return the position at the end of the server's binlog. Raise the errors of `ask`."""
    return await ask(config, lambda _: latest_position())


async def server_end(config: ReplicaConfig) -> ServerEnd:
    """Return the end of the first server that answers. Raise the errors of `attempt`."""

    async def once(endpoint: Endpoint) -> ServerEnd:
        login = await log_in(config, endpoint)
        with contextlib.closing(login):
            found, maybe_empty = await login.run(_end())
            if not maybe_empty or found.place is None:
                return found
            # No group ends in this file, so the reported place is not the end of a group.
            begin = found.place._replace(position=FIRST_POSITION)
            empty = (await group_at(login, begin)).gtid is None
            return found._replace(place=begin) if empty else found

    return await attempt(config, once)


async def is_last(config: ReplicaConfig, place: BinlogPosition, uid: str | None) -> bool:
    """Return True if no group follows a place in the binlog of server `uid`, only binlog checkpoints and the like.

    A server reports the place after such events as its end. The result is False if another server answers, and True for
    a place that the dump command cannot name.
    """
    if place.position > MAX_DUMP_POSITION:
        return True

    async def once(endpoint: Endpoint) -> bool:
        login = await log_in(config, endpoint)
        with contextlib.closing(login):
            if (await login.run(ask_uid())) != uid:
                return False
            return await group_at(login, place) == GroupHere(inside=False, gtid=None)

    return await attempt(config, once)


def _end() -> Steps[tuple[ServerEnd, bool]]:
    """Return the end, and whether its file may hold no group because the file begins at the same position."""
    uid = yield from ask_uid()
    place = yield from snapshot_place()
    there = None if place is None else (yield from state_at(*place))
    if place is None or there is None:
        return ServerEnd((yield from latest_position()), uid=uid), False
    begin = yield from state_at(place.file, FIRST_POSITION)
    return ServerEnd(GtidPosition.last_of(gtids(there)), place, uid), begin == there
