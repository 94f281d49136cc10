"""Check before every start from a stored position: the server's binlog is still the one that this replica was reading.

The server accepts positions that it should refuse: a GTID of an unknown domain, and a GTID whose sequence number a new
binlog has reached again. Both occur after RESET MASTER or on a foreign server, and changes are then lost without an
error. Two checks prevent this.

`verify` looks up the stored GTIDs in @@gtid_binlog_state. On the same server, BINLOG_GTID_POS() of the stored place
must also return the stored GTIDs. NULL means that the file was purged, which is legitimate, or that its number is above
the server's newest file, which is an error.

`verify_content` compares the last stored transaction itself, because a reset server that has written similar
transactions may pass `verify`. `ServerInfo.uid` identifies the server. The server id does not: all nodes of a Galera
cluster may share one id, and a clone has the id of its original. A position that was stored without a uid is looked up
at its place, and its content is compared if that fails.

Source: the server's sql/sql_repl.cc (check_slave_start_position) decides what the server accepts. The silent loss of
changes was measured on 10.11 and 11.8.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from replica.errors import DisconnectedError, PositionLostError, PrerequisiteError, ReplicaError, ServerError
from replica.handshake.login.login import PROBE_BYTES, attempt, log_in
from replica.handshake.primary.server import PROBING_ID, inspect_server
from replica.handshake.registration import Query, Steps
from replica.handshake.start.binlog import (
    ER_NO_SUCH_PLACE,
    MAX_DUMP_POSITION,
    event_at,
    fingerprint_of,
    probe,
    state_at,
)
from replica.handshake.start.start import gtids, place_of_start
from replica.protocol.constants import FIRST_POSITION
from replica.protocol.gtid import BinlogPosition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from replica.handshake.login.login import Login
    from replica.handshake.primary.server import ServerInfo
    from replica.options.config import Endpoint, ReplicaConfig
    from replica.protocol.groups.fingerprint import Fingerprint
    from replica.protocol.gtid import Gtid, GtidPosition

HINT = (
    "Nothing was skipped. This server cannot send the changes after the stored position. Connect to the right "
    "one, or copy the tables again and start from a position it has, with a new checkpoint and an empty relay "
    "log."
)


@dataclass(frozen=True, slots=True)
class Stored:
    """Point at which the replica stopped.

    `primary` is the place where the last group of `position` ended in the binlog of the server `uid`. If `reached` is
    set, the dump starts at `position`, but we had read up to `reached`, and `primary` belongs to `reached`. `reached`
    is set while XA transactions are prepared, because their groups are read again. `last` identifies the last group.
    """

    position: GtidPosition
    primary: BinlogPosition | None = None
    server_id: int | None = None
    reached: GtidPosition | None = None
    highest: Mapping[int, int] = field(default_factory=dict)
    """Domain -> highest sequence number of GTIDs that may name more than one place (see protocol/gtid.py)."""
    uid: str | None = None
    last: Fingerprint | None = None

    @property
    def place(self) -> BinlogPosition | None:
        """The place of `position` itself, or None if `primary` belongs to `reached`."""
        return self.primary if self.reached in (None, self.position) else None

    def is_of(self, server: ServerInfo) -> bool | None:
        """Return whether the place is in this server's binlog; None if that is unknown or there is no place."""
        if self.primary is None:
            return None
        if self.uid is not None:
            return self.uid == server.uid
        return None if self.server_id in (None, server.server_id) else False


class PlaceState(Enum):
    """State of a server's binlog at the stored place."""

    PLACE = "our place is in its binlog: the event there can be compared"
    GONE = "it is the server we stopped at, and has removed that file since"
    ELSEWHERE = "the place says nothing here: only the content can be compared"


def verify(stored: Stored, server: ServerInfo, *, may_lag: bool = False) -> Steps[PlaceState]:
    """Raise an error unless the server has everything up to the stored position, at the place where we stopped.

    Args:
        stored: the point at which the replica stopped.
        server: the server's answers.
        may_lag: whether the server may receive the missing transactions later, or another host may have them.

    Returns:
        What the server has at the stored place, for `verify_content`.

    Raises:
        PositionLostError: its binlog was reset or is another one, or (without `may_lag`) ends before the position.
        PrerequisiteError: it is a replica at that position which does not log what it replicates.
        DisconnectedError: it ends before the position but may only lag (`may_lag`), so a retry or the next host may
            help.
    """
    position = stored.position if stored.reached is None else stored.reached
    if not position:
        return PlaceState.GONE  # from the very beginning; the server itself refuses if it has purged transactions
    rows = yield Query("SELECT @@GLOBAL.gtid_binlog_state, @@GLOBAL.gtid_slave_pos, @@GLOBAL.log_slave_updates")
    state, replicated = frozenset(gtids(rows[0][0])), gtids(rows[0][1])
    unlogged = [gtid for gtid in position if not _contains(state, gtid)]
    missing = [gtid for gtid in unlogged if gtid not in replicated and not _node_local(gtid, state, server)]
    if missing and stored.primary is not None and stored.is_of(server) is not False:
        at_place = yield from state_at(*stored.primary)
        if at_place is not None and _matches_stored(position, frozenset(gtids(at_place))):
            return PlaceState.PLACE  # sequence numbers went back, and the state has only the last one
    if missing:
        raise _missing(missing, state, replicated, may_lag=may_lag)
    if unlogged and rows[0][2] != "1":
        yield from _refuse_a_silent_replica(unlogged)
    same = stored.is_of(server)
    if stored.primary is None or same is False:
        return PlaceState.ELSEWHERE
    try:
        return PlaceState.PLACE if (yield from _verify_place(position, stored.primary)) else PlaceState.GONE
    except PositionLostError:
        if same or stored.last is None:
            raise
        return (
            PlaceState.ELSEWHERE
        )  # another server with this server id, or the same one after a reset: the content decides


def _node_local(gtid: Gtid, state: frozenset[Gtid], server: ServerInfo) -> bool:
    """Return True if a GTID belongs to a domain that only one node of a Galera cluster has.

    Other nodes never receive such GTIDs, and lack nothing.
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
        logged = frozenset(gtids(reached))
        if not _matches_stored(position, logged):
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


def _matches_stored(position: GtidPosition, logged: frozenset[Gtid]) -> bool:
    """Return True if at least one GTID of `position` is logged, and its other GTIDs are ahead of the log."""
    seen = {gtid.domain_id: gtid for gtid in logged}
    others = [gtid for gtid in position if gtid not in logged]
    ahead = all(gtid.domain_id not in seen or seen[gtid.domain_id].seq_no < gtid.seq_no for gtid in others)
    return len(others) < len(position) and ahead


def _number(file: str) -> int | None:
    match = re.fullmatch(r".*\.(\d+)", file)
    return int(match[1]) if match else None


# On the server where we stopped, the last event of the group is compared byte for byte with the event at its place.
# XID, time and thread never repeat together. On any other server, the group is looked up by its GTID, and the
# properties that all copies of a transaction share are compared (protocol/groups/fingerprint.py). Both need a separate
# connection.
#
# Source: measured on 10.11 and 11.8. After RESET MASTER a server accepts an old position. Once its new binlog has
# reached the same numbers, it continues after the new group of that number, without an error.


class Compared(NamedTuple):
    """Outcome of `verify_content`. `why`: why the content was not compared."""

    unchanged: bool
    elsewhere: bool = False
    why: str = ""


async def verify_content(
    config: ReplicaConfig, endpoint: Endpoint, stored: Stored, here: PlaceState, event: bytes | None
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
    if here is PlaceState.PLACE and place is not None and event is not None and place.position <= MAX_DUMP_POSITION:
        reached = stored.position if stored.reached is None else stored.reached
        login = await log_in(config, endpoint)
        with contextlib.closing(login):
            try:
                await verify_event(login, reached, place, event)
            except PositionLostError:
                if stored.uid is not None or stored.last is None:
                    raise
                here = PlaceState.ELSEWHERE  # only the server id, which is not unique, says that it is the same server
    if here is not PlaceState.ELSEWHERE or place is None:  # without a place, a user gave the position
        return Compared(unchanged=here is PlaceState.PLACE)
    login = await log_in(config, endpoint)
    with contextlib.closing(login):
        return Compared(unchanged=False, elsewhere=True, why=await verify_group(login, stored))


async def verify_event(login: Login, position: GtidPosition, place: BinlogPosition, event: bytes) -> None:
    """Raise an error unless `event` is the server's event that ends at `place`, where `position` ended.

    The login cannot be used afterwards.

    Raises:
        PositionLostError: there is another event there, or none.
        DisconnectedError: the connection ended.
    """
    start = BinlogPosition(place.file, place.position - len(event))
    try:
        # Read one byte more than our event, because any longer event is a different one.
        found = await event_at(login, start, longest=max(len(event) + 1, PROBE_BYTES))
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


# Only the server's own search shows which binlogs were purged. So `check_start` starts a dump and ends it at its first
# event, after the position was looked up and compared.


async def check_start(config: ReplicaConfig, stored: Stored) -> None:
    """Raise an error unless one of the configured servers can send the transactions after `stored`.

    Raises:
        PositionPurgedError: the server has removed them.
        PositionLostError: the server was reset, is another one, or has diverged.
        DisconnectedError: no server can be reached, or none has reached the position; the message names those that
            refused.
        ReplicaError: any other error of login or server. With several servers, it is the error of the first.
    """
    refused: dict[Endpoint, ReplicaError] = {}

    async def one(endpoint: Endpoint) -> None:
        try:
            await _ask(config, endpoint, stored)
        except DisconnectedError:
            raise
        except ReplicaError as error:
            refused[endpoint] = error
            if len(refused) == len(set(config.endpoints)):
                raise refused[config.endpoints[0]] from None
            raise DisconnectedError(error.message, hint=error.hint) from error  # tries the next server

    try:
        await attempt(config, one)
    except DisconnectedError as error:
        others = {host: why for host, why in refused.items() if why.message not in error.message}
        if not others:
            raise
        refusals = " ".join(f"{host} refuses: {why.message}" for host, why in others.items())
        raise DisconnectedError(f"{error.message} {refusals}", hint=next(iter(others.values())).hint) from error


async def _ask(config: ReplicaConfig, endpoint: Endpoint, stored: Stored) -> None:
    may_lag = len(config.endpoints) > 1 or config.gtid_ignore_duplicates
    login = await log_in(config, endpoint)
    with contextlib.closing(login):
        here = await login.run(verify(stored, await login.run(inspect_server(PROBING_ID)), may_lag=may_lag))
        if here is not PlaceState.PLACE:
            place_of_start(
                stored, unchanged=False
            )  # before the content check, which uses a number that may occur twice
        compared = await verify_content(config, endpoint, stored, here, None)
        if place_of_start(stored, unchanged=compared.unchanged) is not None:
            return  # a place that exists proves that the transactions after it were not removed
        await probe(
            login,
            stored.position,
            strict_mode=config.gtid_strict_mode,
            ignore_duplicates=config.gtid_ignore_duplicates,
        )
