"""Low watermark of a server: poll its status over a separate session, and evaluate the answers.

`LowWatermark.poll` asks the server. `PrimaryWatermark` or `ReplicaWatermark` computes the watermark, depending on which
server the relay log is copied from. The watermark stays valid while the server is unreachable. A server that is neither
the relay log's source nor a declared replica is refused. So is a replica that does not log replicated changes to its
binlog.

`LogView` is the relay log as the snapshot sees it: a query's feed or a test's replica implements it. `location_after`
maps a server's GTID position to a location of that log.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from replica.errors import AmbiguousPositionError, DisconnectedError, PrerequisiteError
from replica.handshake.primary.server import ask_uid
from replica.handshake.registration import Query, string_list
from replica.handshake.start.start import prepared_transactions
from replica.protocol.gtid import BinlogPosition, covers
from replica.relay_log.directory.identity import source_of
from replica.relay_log.groups.groups import GtidSearch, RelayGroups
from replica.snapshot.connection.connection import TableConnection, position_of
from replica.snapshot.watermark.primary import (
    MAX_PAIRS,
    ROWLESS,
    TEN_SECONDS,
    PrimaryWatermark,
    ServerStatus,
    XaCommits,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.handshake.registration import Rows, Steps
    from replica.options.config import Endpoint, ReplicaConfig
    from replica.protocol.gtid import GtidPosition
    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.relay_log.log import RelayLog
    from replica.snapshot.connection.connection import SnapshotConnection


class LogView(Protocol):
    """Relay log that is being written. Every call raises the fatal error of the writer."""

    @property
    def log(self) -> RelayLog: ...

    def head(self) -> RelayHead: ...

    def wait_for(self, position: GtidPosition, timeout_s: float) -> bool:
        """Wait until the log contains all groups up to a position; return False after `timeout_s` seconds."""
        ...


def location_after(view: LogView, position: GtidPosition) -> RelayLocation | None:
    """Return a location of the log after all groups of `position`; None if the log has not reached the position.

    The location is exact if the log knows it. Otherwise it is the log's end, which may only lengthen a window.
    """
    head = view.head()
    if not covers(head.position, position):
        return None
    try:
        return view.log.locate(position) or head.location
    except AmbiguousPositionError:
        return head.location


# `ReplicaWatermark` takes the replica's @@global.gtid_binlog_pos about once a second, and the relay log of its
# primary. The watermark is the location of the position that the replica's binlog had `age_s` ago. A commit takes less
# time from the binlog to the engine. File names and offsets of the replica mean nothing in the relay log. The
# watermark is never after an XA COMMIT that the replica's engine has not finished.
#
# A position before the start of the relay log gives no watermark. The same holds for a relay log whose sequence
# numbers go back. `reason` then says why.


class ReplicaWatermark:
    """Low watermark of one replica, from its positions and the relay log of its primary. Not thread-safe.

    `reason` says why there is no watermark yet. All times are of one monotonic clock, in seconds.
    """

    def __init__(self, log: RelayLog, age_s: float = TEN_SECONDS) -> None:
        self._log = log
        self._age_s = age_s
        self.reason = "the replica has not been polled yet"
        self._forget()

    def _forget(self) -> None:
        self._groups = RelayGroups(self._log.directory)
        self._positions: deque[tuple[float, GtidPosition]] = deque()
        self._xa, self._log_xa = XaCommits(self._log), XaCommits(self._log)
        self._old: tuple[float, GtidPosition] | None = None
        self._proven: RelayHead | None = None
        self._log_end: RelayLocation | None = None

    def update(self, status: ServerStatus, before: RelayHead | None, now_s: float) -> None:
        """Handle the answers of a poll at `now_s`; `before` is the relay log's end before the poll.

        Raises:
            RelayError: The relay log cannot be read.
            ProtocolError: The relay log is damaged.
        """
        if before is None:
            self.reason = "the relay log has not begun"
            return
        if self._log_end is not None and before.location < self._log_end:
            self._forget()  # the relay log was created again
        self._log_end = before.location
        self._log_xa.update(before.location, ())
        last = self._positions[-1] if self._positions else self._old
        if len(self._positions) < MAX_PAIRS and (last is None or last[1] != status.position):
            self._positions.append((now_s, status.position))
        while self._positions and self._positions[0][0] <= now_s - self._age_s:
            self._old = self._positions.popleft()
        if self._old is None:
            self.reason = f"the replica's position {self._positions[0][1]} is not {self._age_s:g} s old yet"
            return
        found = self._reached(self._old[1], before)
        if found is not None and (self._proven is None or found.location > self._proven.location):
            self._proven = found
        if self._proven is not None:
            # XA RECOVER shows which of the XA COMMITs in the replica's own binlog hang, and nothing about later ones.
            self._xa.update(self._proven.location, status.prepared)

    def watermark(self, _now_s: float) -> RelayHead | None:
        """Return the low watermark; None if there is none yet."""
        if self._proven is None:
            return None
        found, readable = self._xa.watermark(self._proven), self._log_xa.readable
        if found is None or (readable is not None and found.location < readable):
            self.reason = ROWLESS
            return None
        return found

    def keep_from(self) -> RelayLocation | None:
        """Return the first location that `watermark` may return; before the first watermark, the start of the log."""
        if self._proven is None:
            return self._log.oldest() if self._log_end is not None else None
        first = self._xa.first
        return self._proven.location if first is None else min(first, self._proven.location)

    def _reached(self, position: GtidPosition, head: RelayHead) -> RelayHead | None:
        """Return the last location up to which the replica has all groups of the relay log."""
        if self._log.order().highest:
            self.reason = "sequence numbers of the relay log go back: a replica's position is ambiguous in it"
            return None
        first = self._log.first_position()
        location = head.location
        for last in head.position:
            begun = None if first is None else first.get(last.domain_id)
            reached = position.get(last.domain_id)
            if begun == last or (reached is not None and reached.seq_no >= last.seq_no):
                continue  # the replica has all groups of this domain in the log
            search = None if reached is None else GtidSearch(reached)
            group = None if search is None else self._log.steadily(lambda search=search: self._groups.find(search))  # type: ignore[misc]
            if group is not None:
                location = min(location, group.after.location)
            elif reached == begun:
                location = min(location, self._log.oldest())
            else:
                self.reason = (
                    f"the replica is at {reached or 'no position'}, which is before the start of the relay log"
                )
                return None
        return self._log.at(location)


_FILE, _OFFSET = "binlog_snapshot_file", "binlog_snapshot_position"

_WAITING = "rpl_semi_sync_master_wait_sessions"

_UPDATES = "log_slave_updates"

_SEMI_SYNC, _TIMEOUT = "rpl_semi_sync_master_enabled", "rpl_semi_sync_master_timeout"  # the timeout is in milliseconds


def ask_status(*, closely: bool = False) -> Steps[ServerStatus]:
    """Ask for the status pair first, then for the values that must not be older than it, and for the prepared XA
    transactions last.

    `closely` also asks whether any commit may be in flight, which inspects every thread of the server.
    """
    rows = yield Query(f"SHOW STATUS WHERE Variable_name IN ('{_FILE}', '{_OFFSET}', '{_WAITING}')")
    found = {(name or "").lower(): value or "" for name, value in rows}
    ((position, time_s),) = yield Query("SELECT @@global.gtid_binlog_pos, UNIX_TIMESTAMP(SYSDATE(6))")
    file = found.get(_FILE, "")
    place = BinlogPosition(file, int(found.get(_OFFSET) or 0)) if file else None
    prepared = yield from prepared_transactions()
    settled = (yield from ask_no_commit()) if closely else False
    waiting, clock_s = int(found.get(_WAITING) or 0), float(time_s or 0)
    return ServerStatus(place, waiting, position_of(position), clock_s, prepared, settled)


def ask_hold() -> Steps[float]:
    """Return how long commits of a replica may wait for its own semi-synchronous replicas, in seconds.

    Raises:
        PrerequisiteError: The replica does not log replicated changes to its binlog.
    """
    names = string_list((_UPDATES, _SEMI_SYNC, _TIMEOUT))
    rows = yield Query(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    found = {(name or "").lower(): value or "" for name, value in rows}
    if found.get(_UPDATES, "").upper() != "ON":
        raise PrerequisiteError(
            "the replica that tables are read from does not write replicated changes into its binlog: its position "
            "does not show the state of its tables.",
            hint="Set log_slave_updates=ON on it, or read tables from the primary.",
        )
    return float(found.get(_TIMEOUT) or 0) / 1000 if found.get(_SEMI_SYNC, "").upper() == "ON" else 0.0


class LowWatermark:
    """Low watermark of one server, updated by `poll`. Any thread may call `watermark` and `close`.

    Args:
        config: Account, TLS and time limits.
        endpoint: Server that tables are read from.
        log: Relay log, copied from that server or from its primary.
        age_s: Minimum age of a binlog position, in seconds.
        clock: Monotonic clock, in seconds.
        replica: Whether the server may be a replica of the relay log's source.
    """

    def __init__(
        self,
        config: ReplicaConfig,
        endpoint: Endpoint,
        log: RelayLog,
        *,
        age_s: float = TEN_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        replica: bool = False,
    ) -> None:
        self._config = config
        self._endpoint = endpoint
        self._log = log
        self._clock = clock
        self._age_s = age_s
        self._replica = replica
        self._pairs: PrimaryWatermark | ReplicaWatermark = PrimaryWatermark(log, age_s)
        self._lock = threading.Lock()
        self._connection: TableConnection | None = None
        self._uid = ""
        self._hold_s: float | None = None
        self._closed = False
        self._lost = ""

    @property
    def reason(self) -> str:
        """Why there is no watermark, or why it does not advance; empty if there is no problem."""
        with self._lock:
            if self._lost:
                return self._lost
            return "" if self._pairs.watermark(self._clock()) else self._pairs.reason

    def watermark(self) -> RelayHead | None:
        """Return the low watermark, up to which every new snapshot sees all groups; None if there is none."""
        with self._lock:
            return self._pairs.watermark(self._clock())

    def keep_from(self) -> RelayLocation | None:
        """Return the first location that `watermark` may return."""
        with self._lock:
            return self._pairs.keep_from()

    def poll(self) -> None:
        """Ask the server, about once a second and from one thread; the next call reopens a lost connection.

        Raises:
            PrerequisiteError: The relay log is copied from another server, or the server writes no binlog.
            AuthenticationError: The server refuses the account.
            ReplicaError: Any other error of the login or the relay log.
        """
        try:
            connection = self._connection or self._connect()
            before = self._log.head()
            source = None if before is None else source_of(self._log.directory, before.location.file)
            status = connection.run(ask_status(closely=source == self._uid and self.watermark() is None))
            if source == self._uid or (source is None and not self._replica):
                self._judge_by(PrimaryWatermark, self._age_s)
            elif self._replica:
                self._hold_s = connection.run(ask_hold()) if self._hold_s is None else self._hold_s
                self._judge_by(ReplicaWatermark, self._age_s + self._hold_s)
            else:
                raise PrerequisiteError(
                    f"the relay log is copied from another server than {self._endpoint}, which tables are read from.",
                    hint="Read tables from the server that the stream comes from, or from a replica of it.",
                )
        except DisconnectedError as error:
            self._disconnect()
            self._lost = error.message
            return
        with self._lock:
            self._lost = ""
            self._pairs.update(status, before, self._clock())

    def _judge_by(self, kind: type[PrimaryWatermark | ReplicaWatermark], age_s: float) -> None:
        """Use another kind of watermark after a failover of the stream, and discard the earlier results."""
        if not isinstance(self._pairs, kind):
            with self._lock:
                self._pairs = kind(self._log, age_s)

    def close(self) -> None:
        """Close the session; a `poll` that waits in another thread returns."""
        self._closed = True
        self._disconnect()

    def _connect(self) -> TableConnection:
        connection = TableConnection.open(self._config, self._endpoint)
        self._connection = connection
        if self._closed:
            self._disconnect()  # `close` ran while the connection was opened
        self._uid, self._hold_s = connection.run(ask_uid()), None
        return connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


# A committing thread never has the state Sleep between the start of its binlog write and the engine's commit. If only
# this thread and dumps are active, the engine has every group that the binlog had before the query. This covers
# rotations, XA COMMITs and engines without two-phase commit. False proves nothing: without PROCESS, an account does not
# see the dumps of other accounts.
#
# Threads_running counts all threads that do not sleep, even those that the account may not see (add_to_status and
# calc_sum_callback in sql/sql_show.cc). Verified on 10.5, 10.11 and 11.8 with commits that hang in a rotation and in an
# XA COMMIT.

_OTHERS: Final = (
    "SELECT ID, COMMAND FROM information_schema.PROCESSLIST WHERE COMMAND <> 'Sleep' AND ID <> CONNECTION_ID()"
)

_RUNNING, _GALERA = "threads_running", "wsrep_connected"

_COUNT: Final = f"SHOW GLOBAL STATUS WHERE Variable_name IN ('{_RUNNING}', '{_GALERA}')"

_DUMP: Final = "Binlog Dump"


def ask_no_commit() -> Steps[bool]:
    """Return True if no thread of the server can be in a commit."""
    others = yield Query(_OTHERS)
    counted = yield Query(_COUNT)
    # Thread ids are never reused, so a dump that is listed before and after the count is in the count.
    if set((yield Query(_OTHERS))) != set(others):
        return False
    return _none_commits(others, counted)


def _none_commits(others: Rows, counted: Rows) -> bool:
    found = {(name or "").lower(): value or "" for name, value in counted}
    if found.get(_GALERA, "").upper() == "ON":
        return False  # threads that apply commits of other nodes are shown as sleeping
    if any(command != _DUMP for _, command in others):
        return False
    return found.get(_RUNNING) == str(1 + len(others))


# `await_position` raises an error with the server's name after one minute. An error of the stream ends the wait.


LAG_S: Final = 60.0
"""Maximum wait for a replica in seconds; the planning of a batch waits meanwhile."""

LAG_POLL_S: Final = 0.1
"""Poll interval in seconds."""


def await_position(connection: SnapshotConnection, wanted: GtidPosition, host: Endpoint, view: LogView) -> None:
    """Wait until a server has reached a position.

    Args:
        connection: Connection to the server.
        wanted: Position to reach.
        host: Address of the server, for the error.
        view: Relay log, whose error ends the wait.

    Raises:
        PrerequisiteError: The server has not reached it within LAG_S.
        ReplicaError: The error that ended the stream.
    """
    deadline = time.monotonic() + LAG_S
    while not covers(at := connection.position(), wanted):
        view.head()
        if time.monotonic() >= deadline:
            raise PrerequisiteError(
                f"{host}, which tables are read from, is at {at or 'no position'} and has not reached {wanted} within "
                f"{LAG_S:.0f} s: its tables are older than the position that was asked for.",
                hint="Wait until it has (SHOW SLAVE STATUS on it shows why it lags), or read tables from the primary.",
            )
        time.sleep(LAG_POLL_S)
