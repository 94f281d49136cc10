"""Start and end of a dump: positions, and places of the binlog.

The server has no keyword for its latest or its earliest position. No value means "from now on". An empty position means
the very first transaction ever, which the server refuses after a binlog file was purged. Both positions are therefore
queried, for which REPLICATION SLAVE is sufficient.

Source: the server's sql/sql_repl.cc (check_slave_start_position, gtid_find_binlog_file), 10.11.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import AmbiguousPositionError
from replica.handshake.login.login import ask, attempt, log_in
from replica.handshake.primary.server import ask_uid
from replica.handshake.registration import Query, Steps
from replica.handshake.start.binlog import MAX_DUMP_POSITION, GroupHere, binlog_files, group_at, state_at
from replica.protocol.constants import FIRST_POSITION
from replica.protocol.events.transaction_events import XaId
from replica.protocol.gtid import BinlogPosition, Gtid, GtidPosition, ambiguous

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replica.handshake.start.resume import Stored
    from replica.options.config import Endpoint, ReplicaConfig

PREPARE_S = 0.1
"""Seconds that a storage engine may need to prepare a transaction that is in the binlog already: one write to disk."""


def starting_position(start: str) -> Steps[GtidPosition]:
    """Return the position after which 'latest', 'earliest' or a GTID position starts.

    Raises:
        ConfigError: the text is none of these.
    """
    if start == "latest":
        return (yield from latest_position())
    if start == "earliest":
        return (yield from earliest_position())
    return GtidPosition.parse(start)


def latest_position() -> Steps[GtidPosition]:
    """Return the position after the last transaction in the server's binlog.

    @@gtid_current_pos would be wrong: on a former replica, this variable may name GTIDs that are not in the binlog.
    """
    rows = yield Query("SELECT @@GLOBAL.gtid_binlog_pos")
    return GtidPosition.parse(rows[0][0] or "")


def place_of(position: GtidPosition) -> Steps[BinlogPosition | None]:
    """Return the end of the server's binlog if `position` ends there.

    The position alone may name an earlier place too. The result is None if transactions were committed since, or if the
    server does not report its end; then only the position is known.
    """
    place = yield from snapshot_place()
    if place is None:
        return None
    state = yield from state_at(*place)
    return place if GtidPosition.last_of(gtids(state)) == position else None


def snapshot_place() -> Steps[BinlogPosition | None]:
    """Return the place after the last finished commit in the server's binlog; None if the server does not report it."""
    rows = yield Query("SHOW STATUS LIKE 'Binlog_snapshot_%'")
    status = {(name or "").lower(): value or "" for name, value in rows}
    file, offset = status.get("binlog_snapshot_file", ""), status.get("binlog_snapshot_position", "")
    return BinlogPosition(file, int(offset)) if file and offset.isdecimal() else None


class Latest(NamedTuple):
    """End of the binlog at two times, and the XA transactions that were prepared in between.

    A transaction that is in the binlog before `before` and has not ended before `position` is among `prepared`.
    """

    before: GtidPosition
    prepared: frozenset[XaId]
    position: GtidPosition


def latest_and_prepared() -> Steps[Latest]:
    """Return the data with which a start at the end misses no XA transaction that is prepared now."""
    before = yield from latest_position()
    # A transaction is in the binlog a moment before XA RECOVER lists it, because the storage engine prepares it later.
    yield Query(f"DO SLEEP({PREPARE_S})")
    prepared = yield from prepared_transactions()
    return Latest(before, prepared, (yield from latest_position()))


def prepared_transactions() -> Steps[frozenset[XaId]]:
    """Return the prepared XA transactions, including those whose XA COMMIT is not finished yet."""
    rows = yield Query("XA RECOVER FORMAT='SQL'")
    return frozenset(_xa_id(int(row[0] or 0), row[3] or "") for row in rows)


def _xa_id(format_id: int, text: str) -> XaId:
    """Parse an id of XA RECOVER: one or two quoted parts, in hexadecimal unless they are plain ASCII."""
    parts = [bytes.fromhex(part) if marked else part.encode() for marked, part in re.findall(r"(X?)'([^']*)'", text)]
    gtrid, bqual = (*parts, b"", b"")[:2]
    return XaId(format_id & 0xFFFFFFFF, gtrid, bqual)


def earliest_position() -> Steps[GtidPosition]:
    """Return the position before the first transaction of the oldest binlog file that still exists."""
    return (yield from earliest())[0]


def earliest() -> Steps[tuple[GtidPosition, BinlogPosition]]:
    """Return the position before the oldest transaction, and its place, which is the beginning of the oldest file."""
    files = yield from binlog_files()
    place = BinlogPosition(files.name(files.oldest), FIRST_POSITION)
    return GtidPosition.last_of(gtids((yield from state_at(*place)))), place


def gtids(text: str | None) -> tuple[Gtid, ...]:
    """Parse a GTID list in any order. @@gtid_binlog_state has several servers of one domain."""
    return tuple(Gtid.parse(part) for part in (text or "").split(",") if part.strip())


# A place names one point of one server's binlog, even if sequence numbers go back. If sequence numbers went back, a
# position may name another point, and rows would be lost or delivered twice. So the place is used whenever the server
# still has it. A position that names more than one place is refused (`ambiguous` in protocol/gtid.py).
#
# Source: the server's sql/sql_repl.cc (gtid_find_binlog_file), 10.11.


HINT: Final = (
    "Only the server it was read from can continue from there, by the place in its binlog: connect to that "
    "server. Once the numbers have passed the highest earlier one, any server will do. Otherwise copy the "
    "tables again, and start from a position after the copy, with a new checkpoint and an empty relay log."
)


def place_of_start(stored: Stored, *, unchanged: bool) -> BinlogPosition | None:
    """Return the place to begin at, or None to begin after the stored position.

    Args:
        stored: where we stopped.
        unchanged: whether the server has the stored place, unchanged.

    Raises:
        AmbiguousPositionError: only the position can be used, and it names more than one place.
    """
    place = stored.primary
    of_start = stored.reached in (None, stored.position)
    if unchanged and of_start and place is not None and place.position <= MAX_DUMP_POSITION:
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
    meaning = "" if place is None else f" It means the place {place} of the server it was read from."
    return AmbiguousPositionError(
        f"the position {position} matches more than one place: sequence numbers went back after {named}, or up to it."
        f"{meaning}",
        hint=HINT,
    )


# If sequence numbers go back, the last GTID may occur in the binlog more than once. A read that ends at the first
# occurrence would miss transactions, so `ServerEnd` also has the place.
#
# Source: measured on 10.5, 10.11 and 11.8. The snapshot's variables name the place after a file's last event, even if
# that event is a binlog checkpoint. BINLOG_GTID_POS of a file's first offset is the position with which the file
# begins.


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
    state = None if place is None else (yield from state_at(*place))
    if place is None or state is None:
        return ServerEnd((yield from latest_position()), uid=uid), False
    begin = yield from state_at(place.file, FIRST_POSITION)
    return ServerEnd(GtidPosition.last_of(gtids(state)), place, uid), begin == state
