"""Start on a server from which nothing was read yet: after its last transaction, or before its oldest.

The server has no value for either. An empty position means the very first transaction ever, which is refused once a
binlog file was purged, and no value means "from now on". Both positions are looked up with REPLICATION SLAVE alone.

Source: the server's sql/sql_repl.cc (check_slave_start_position, gtid_find_binlog_file), 10.11.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from replica.handshake.registration import Query, Steps
from replica.handshake.start.binlog_files import binlog_files, state_at
from replica.protocol.constants import FIRST_POSITION
from replica.protocol.events.transaction_events import XaId
from replica.protocol.gtid import BinlogPosition, Gtid, GtidPosition

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

    @@gtid_current_pos would be wrong: on a server that was a replica it may name GTIDs that are not in the binlog.
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
    there = yield from state_at(*place)
    return place if GtidPosition.last_of(gtids(there)) == position else None


def snapshot_place() -> Steps[BinlogPosition | None]:
    """Return the place after the last finished commit in the server's binlog; None if the server does not report it."""
    rows = yield Query("SHOW STATUS LIKE 'Binlog_snapshot_%'")
    told = {(name or "").lower(): value or "" for name, value in rows}
    file, offset = told.get("binlog_snapshot_file", ""), told.get("binlog_snapshot_position", "")
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
