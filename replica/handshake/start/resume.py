"""Check that the server's binlog is still the one we were reading, before every start from a stored position.

The server itself accepts positions it should refuse: after RESET MASTER, or on a foreign server, a stored GTID of a
domain it does not know, or whose sequence number the new log has reached again, is taken silently and changes are lost.
So the stored GTIDs are looked up in @@gtid_binlog_state, and where the server is the same one as before, the place in
its binlog where the last stored group ended is mapped back to GTIDs with BINLOG_GTID_POS(): it must give the stored
ones. A file that was purged since gives NULL, which is legitimate; a file that lies in the server's future is not.

A reset server that has written alike transactions again may pass all that, and another server has other places: the
content is compared by content.py. Which server it is its server id does not tell: all nodes of a Galera cluster may
have one, and so has a clone. `ServerInfo.uid` tells; a position from before it was noted is looked up at its place, and
where that does not fit, compared by content.

Source: what the server accepts is decided by its sql/sql_repl.cc (check_slave_start_position); that it loses changes in
silence was measured on 10.11 and 11.8.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from replica.errors import DisconnectedError, PositionLostError, PrerequisiteError
from replica.handshake.registration import Query, Steps
from replica.handshake.start.binlog_files import state_at
from replica.handshake.start.start import gtids
from replica.protocol.constants import FIRST_POSITION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from replica.handshake.primary.server import ServerInfo
    from replica.protocol.groups.fingerprint import Fingerprint
    from replica.protocol.gtid import BinlogPosition, Gtid, GtidPosition

HINT = (
    "Nothing was skipped. Changes after the stored position cannot be had from this server: connect to the right one, "
    "or copy the tables again and start from a position it has, with a new checkpoint and an empty relay log."
)


@dataclass(frozen=True, slots=True)
class Stored:
    """The point where we stopped. `primary` is where the last group of `position` ended in the binlog of the server
    `uid`.

    `reached`: the dump starts at `position`, but we have been here before, and `primary` is of this position. So it is
    while XA transactions are prepared: their groups are read again. `last`: what the last group is known by.
    """

    position: GtidPosition
    primary: BinlogPosition | None = None
    server_id: int | None = None
    reached: GtidPosition | None = None
    highest: Mapping[int, int] = field(default_factory=dict)
    """Domain -> up to which number a GTID may name more than one place (protocol/ambiguity.py)."""
    uid: str | None = None
    last: Fingerprint | None = None

    @property
    def place(self) -> BinlogPosition | None:
        """The place of `position` itself; None where `primary` is of another."""
        return self.primary if self.reached in (None, self.position) else None

    def is_of(self, server: ServerInfo) -> bool | None:
        """Tell whether the place is one of this server's; None where it may be, or where there is none."""
        if self.primary is None:
            return None
        if self.uid is not None:
            return self.uid == server.uid
        return None if self.server_id in (None, server.server_id) else False


class Here(Enum):
    """All that a server has where we stopped."""

    PLACE = "our place is in its binlog: the event there can be compared"
    GONE = "it is the server we stopped at, and has removed that file since"
    ELSEWHERE = "the place says nothing here: only the content can be compared"


def verify(stored: Stored, server: ServerInfo, *, may_lag: bool = False) -> Steps[Here]:
    """Raise unless the connected server has everything up to the stored position, at the place where we stopped.

    Raises:
        PositionLostError: its binlog was reset or is another one, or (without `may_lag`) ends before the position.
        PrerequisiteError: it is a replica at that position which does not log what it replicates.
        DisconnectedError: it ends before the position, but may only be behind (`may_lag`): try again, or the next host.
    """
    position = stored.position if stored.reached is None else stored.reached
    if not position:
        return Here.GONE  # from the very beginning: the server refuses by itself if that is purged
    rows = yield Query("SELECT @@GLOBAL.gtid_binlog_state, @@GLOBAL.gtid_slave_pos, @@GLOBAL.log_slave_updates")
    state, replicated = frozenset(gtids(rows[0][0])), gtids(rows[0][1])
    unlogged = [gtid for gtid in position if not _contains(state, gtid)]
    missing = [gtid for gtid in unlogged if gtid not in replicated and not _node_local(gtid, state, server)]
    if missing and stored.primary is not None and stored.is_of(server) is not False:
        at_place = yield from state_at(*stored.primary)
        if at_place is not None and _agree(position, frozenset(gtids(at_place))):
            return Here.PLACE  # numbers went back since: the state has the last of them only
    if missing:
        raise _missing(missing, state, replicated, may_lag=may_lag)
    if unlogged and rows[0][2] != "1":
        yield from _refuse_a_silent_replica(unlogged)
    same = stored.is_of(server)
    if stored.primary is None or same is False:
        return Here.ELSEWHERE
    try:
        return Here.PLACE if (yield from _verify_place(position, stored.primary)) else Here.GONE
    except PositionLostError:
        if same or stored.last is None:
            raise
        return Here.ELSEWHERE  # another server that has the same server id, or the same one reset: the content tells


def _node_local(gtid: Gtid, state: frozenset[Gtid], server: ServerInfo) -> bool:
    """Tell whether a GTID belongs to what only one node of a Galera cluster has: other nodes never get it, and lack
    nothing.
    """
    shared = server.wsrep_gtid_domain_id if server.wsrep_on and server.wsrep_gtid_mode else None
    known = any(have.domain_id == gtid.domain_id for have in state)
    return shared is not None and gtid.domain_id != shared and not known


def _contains(state: frozenset[Gtid], gtid: Gtid) -> bool:
    writer = (gtid.domain_id, gtid.server_id)
    return any((have.domain_id, have.server_id) == writer and have.seq_no >= gtid.seq_no for have in state)


def _refuse_a_silent_replica(unlogged: list[Gtid]) -> Steps[None]:
    """Refuse a replica that does not log what it replicates."""
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
    """Tell whether the group that ended there is in both; other domains may be ahead, if the start position already
    was.
    """
    seen = {gtid.domain_id: gtid for gtid in there}
    others = [gtid for gtid in position if gtid not in there]
    ahead = all(gtid.domain_id not in seen or seen[gtid.domain_id].seq_no < gtid.seq_no for gtid in others)
    return len(others) < len(position) and ahead


def _number(file: str) -> int | None:
    match = re.fullmatch(r".*\.(\d+)", file)
    return int(match[1]) if match else None
