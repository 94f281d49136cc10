"""Is the server's binlog still the one we were reading? Asked before every start from a stored position.

The server itself accepts positions it should refuse: after RESET MASTER, or on a foreign server, a stored GTID of a
domain it does not know, or whose sequence number the new log has reached again, is taken silently and changes are lost.
So the stored GTIDs are looked up in @@gtid_binlog_state, and where the server is the same one as before, the place in
its binlog where the last stored group ended is mapped back to GTIDs with BINLOG_GTID_POS(): it must give the stored
ones. A file that was purged since gives NULL, which is legitimate; a file that lies in the server's future is not.

A reset server that has written alike transactions again may pass all that. Where the last stored event itself is at
hand, `verify_event` compares it with the one the server has there: XID, time and thread are never all the same again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from replica.errors import DisconnectedError, PositionLostError, PrerequisiteError, ServerError
from replica.handshake.binlog_files import state_at
from replica.handshake.login import LOOK_BYTES
from replica.handshake.peek import ER_NO_SUCH_PLACE, event_at
from replica.handshake.registration import Query, Steps
from replica.handshake.start import gtids
from replica.protocol.constants import FIRST_POSITION
from replica.protocol.gtid import BinlogPosition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from replica.handshake.login import Login
    from replica.protocol.gtid import Gtid, GtidPosition

HINT = (
    "Nothing was skipped. Changes after the stored position cannot be had from this server: connect to the right one, "
    "or copy the tables anew and start from a position it has, with a new checkpoint and an empty relay log."
)


@dataclass(frozen=True, slots=True)
class Stored:
    """Where we stopped. `primary` is where the last group of `position` ended in the binlog of server `server_id`.

    `reached`: the dump starts at `position`, but we have been here before, and `primary` is of this position. So it is
    while XA transactions are prepared: their groups are read again.
    """

    position: GtidPosition
    primary: BinlogPosition | None = None
    server_id: int | None = None
    reached: GtidPosition | None = None
    highest: Mapping[int, int] = field(default_factory=dict)
    """Domain -> up to which number a GTID may name more than one place (relay/order.py)."""


def verify(stored: Stored, server_id: int, *, may_lag: bool = False) -> Steps[bool]:
    """Raise unless the connected server (its id is `server_id`) has everything up to the stored position, unchanged.

    Returns whether the stored place is still in its binlog, so that `verify_event` can look at it.

    Raises:
        PositionLostError: its binlog was reset or is another one, or (without `may_lag`) ends before the position.
        PrerequisiteError: it is a replica at that position which does not log what it replicates.
        DisconnectedError: it ends before the position, but may only be behind (`may_lag`): try again, or the next host.

    """
    position = stored.position if stored.reached is None else stored.reached
    if not position:
        return False  # from the very beginning: the server refuses by itself if that is purged
    rows = yield Query("SELECT @@GLOBAL.gtid_binlog_state, @@GLOBAL.gtid_slave_pos, @@GLOBAL.log_slave_updates")
    state, replicated = frozenset(gtids(rows[0][0])), gtids(rows[0][1])
    unlogged = [gtid for gtid in position if not _contains(state, gtid)]
    missing = [gtid for gtid in unlogged if gtid not in replicated]
    if missing and stored.primary is not None and stored.server_id in (None, server_id):
        at_place = yield from state_at(*stored.primary)
        if at_place is not None and _agree(position, frozenset(gtids(at_place))):
            return True  # numbers went back since: the state has the last of them only
    if missing:
        raise _missing(missing, state, replicated, may_lag=may_lag)
    if unlogged and rows[0][2] != "1":
        yield from _refuse_a_silent_replica(unlogged)
    if stored.primary is None or stored.server_id not in (None, server_id):
        return False
    return (yield from _verify_place(position, stored.primary))


async def verify_event(login: Login, position: GtidPosition, place: BinlogPosition, event: bytes) -> None:
    """Raise unless the event that ends at `place`, where `position` ended, is `event`. Uses the connection up.

    Raises:
        PositionLostError: there is another event there, or none.
        DisconnectedError: the connection ended.

    """
    start = BinlogPosition(place.file, place.position - len(event))
    try:
        # One byte more than ours: a longer event is another one, however long it is.
        found = await event_at(login, start, longest=max(len(event) + 1, LOOK_BYTES))
    except ServerError as error:
        if error.code != ER_NO_SUCH_PLACE:
            raise
        found = None
    if found != event:
        raise PositionLostError(
            f"the server's binlog was reset: the event at {start}, the last of {position}, is another one now.",
            hint=HINT,
        )


def _contains(state: frozenset[Gtid], gtid: Gtid) -> bool:
    writer = (gtid.domain_id, gtid.server_id)
    return any((have.domain_id, have.server_id) == writer and have.seq_no >= gtid.seq_no for have in state)


def _refuse_a_silent_replica(unlogged: list[Gtid]) -> Steps[None]:
    """The server takes its own gtid_slave_pos for a start, but what it goes on to replicate would never reach us."""
    running = yield Query("SHOW GLOBAL STATUS LIKE 'Slaves_running'")
    if running and running[0][1] != "0":
        raise PrerequisiteError(
            f"the server has {_named(unlogged)} by replication and does not log what it replicates.",
            hint="Set log_slave_updates=ON on it, or let it take over (STOP SLAVE) before it is read from.",
        )


def _missing(
    missing: list[Gtid], state: frozenset[Gtid], replicated: tuple[Gtid, ...], *, may_lag: bool
) -> PositionLostError | DisconnectedError:
    has = f"its binlog has {_named(sorted(state)) or 'no GTID at all'}"
    ahead = [g for g in missing if any(s.domain_id == g.domain_id and s.seq_no >= g.seq_no for s in state)]
    beyond = [g for g in missing if any(r.domain_id == g.domain_id and r.seq_no > g.seq_no for r in replicated)]
    if may_lag and not ahead and not beyond:
        message = f"the server does not have {_named(missing)} yet: {has}."
        return DisconnectedError(message, hint="It may be a replica that lags.")
    cause = "it was reset, is another server, or lags"
    if ahead:
        cause = "it was reset, is another server, or has diverged"
    elif beyond:
        cause = f"it has replicated up to {_named(replicated)} without logging it"
    return PositionLostError(f"the server does not have {_named(missing)} in its binlog: {cause}; {has}.", hint=HINT)


def _named(those: Iterable[Gtid]) -> str:
    return ",".join(map(str, those))


def _verify_place(position: GtidPosition, primary: BinlogPosition) -> Steps[bool]:
    reached = yield from state_at(*primary)
    if reached is not None:
        there = frozenset(gtids(reached))
        if not _agree(position, there):
            now = reached or "no GTID"
            raise PositionLostError(
                f"the server's binlog was reset: {position} ended at {primary}, where it now has {now}.", hint=HINT
            )
        return True
    if (yield from state_at(primary.file, FIRST_POSITION)) is not None:
        raise PositionLostError(
            f"the server's binlog was reset: no event group ends at {primary}, where {position} ended.", hint=HINT
        )
    current = yield Query("SHOW STATUS LIKE 'Binlog_snapshot_file'")
    file = (current[0][1] if current else "") or ""
    if _number(file) is not None and _number(file) < _number(primary.file):  # type: ignore[operator]
        raise PositionLostError(
            f"the server's binlog was reset: it writes {file}, but {position} ended in {primary.file}.", hint=HINT
        )
    return False


def _agree(position: GtidPosition, there: frozenset[Gtid]) -> bool:
    """The group that ended there is in both; other domains may be ahead, if the start position already was."""
    seen = {gtid.domain_id: gtid for gtid in there}
    others = [gtid for gtid in position if gtid not in there]
    ahead = all(gtid.domain_id not in seen or seen[gtid.domain_id].seq_no < gtid.seq_no for gtid in others)
    return len(others) < len(position) and ahead


def _number(file: str) -> int | None:
    match = re.fullmatch(r".*\.(\d+)", file)
    return int(match[1]) if match else None
