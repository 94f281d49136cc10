"""Replica of a query: an `EmbeddedReplica` in the planner's process, with a private relay folder.

`ReplicaFeed` is a `Feed` (places.py). It connects at the first call, and writes the log from `start` on. If another
process is about to release the folder, `start` waits, or takes the next folder if the user named none. A position that
the server never had, or has purged, is an error before the first row. With failOnDataLoss=false, the query continues
from the oldest position instead of a purged one (data_loss.py).
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import structlog

from replica.errors import (
    DisconnectedError,
    OutOfOrderGtidError,
    PositionLostError,
    PositionPurgedError,
    PrerequisiteError,
    RelayError,
)
from replica.handshake.start.resume import Stored, check_start
from replica.handshake.start.start import ServerEnd, is_last, server_end, server_position
from replica.live.embedded import EmbeddedReplica, library_logger
from replica.options.values import CommitTime
from replica.protocol.gtid import covers
from replica.readers.primary import PrimaryReader
from replica.relay_log.directory.readers import READERS_NAME
from replica.rows.scan.xa import describe
from streaming_source.attached.history import check_history
from streaming_source.driver.deployment import is_free, relay_directory
from streaming_source.offsets.data_loss import Loss, Losses, explained, go_on_after, prepared_lost
from streaming_source.offsets.offset import SourceOffset
from streaming_source.ranges.cutting import Origin, origin_of

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableMapping
    from pathlib import Path

    from structlog.typing import FilteringBoundLogger

    from replica.errors import RelayFileRemovedError
    from replica.handshake.start.start import Latest
    from replica.options.config import Endpoint
    from replica.options.values import Position
    from replica.protocol.events.transaction_events import XaId
    from replica.protocol.gtid import BinlogPosition, GtidPosition
    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.relay_log.log import RelayLog
    from replica.relay_log.walks.xa import Prepared, PreparedGroup
    from streaming_source.options.source_options import SourceOptions
    from streaming_source.ranges.places import Feed

_log = logging.getLogger(__name__)

LOCK_PATIENCE_S = 10.0
"""Seconds to wait for a folder. A stopped query may take two seconds to release it, and a restart is often faster."""
LOCK_POLL_S = 0.1
XA_PATIENCE_S = 10.0
"""Seconds to wait for XA transactions to end. A transaction is prepared while its coordinator asks all others; if it
stays prepared longer, it was abandoned.
"""
XA_POLL_S = 0.25
XA_NAMED = 3
"""Most transactions whose ids a message names."""


class ReplicaFeed:
    """Feed of one query, in the process that plans the query. Only one thread calls it."""

    down_s = 0.0
    """The replica runs in this process, so it is never down while the query runs."""

    def __init__(self, options: SourceOptions, directory: Path | None = None) -> None:
        """Use a relay folder.

        Args:
            options: the options of the query.
            directory: a folder that the caller has taken. None: the folder of the option relayDir, or a private folder.
        """
        self._options = options
        self._directory = directory
        self._replica = self._new_replica()
        self.losses = Losses()
        self.started = False
        self.epoch = 0
        """Number that changes when the log begins again after a gap."""
        self._draining = False
        """Whether the server has purged the groups after the log.

        The query then reads the rest of the log, and skips the gap.
        """

    def _new_replica(self) -> EmbeddedReplica:
        config = self._options.connection
        directory = self._directory or relay_directory(self._options)
        return EmbeddedReplica(config, directory, log=replica_log(config.endpoints))

    @property
    def log(self) -> RelayLog:
        return self._replica.log

    # -- where to begin ------------------------------------------------------------------------------------------

    def starting_offset(self) -> SourceOffset:
        start = "latest" if self._options.stream_start is None else self._options.stream_start
        if start == "latest":
            return self._latest()
        if start == "earliest":
            return self._earliest()
        if isinstance(start, CommitTime):
            return self._at_time(start.seconds)
        position = self._available(SourceOffset(start, start), given=True).position
        return SourceOffset(position, position, anchor=True)

    def _at_time(self, time_s: int) -> SourceOffset:
        accept = not self._options.fail_on_data_loss
        try:
            found = PrimaryReader(self._options.connection, library_logger()).at_time(time_s, accept_gap=accept)
        except PositionLostError as error:
            raise explained(error) from None
        _log.info("startingPosition %s is %s", self._options.stream_start, found.position or "the beginning")
        return SourceOffset(found.position, found.resume or found.position, anchor=True)

    def ending_position(self, end: Position) -> GtidPosition:
        """Resolve the option endingPosition to a position."""
        if isinstance(end, CommitTime):
            return PrimaryReader(self._options.connection, library_logger()).at_time(end.seconds).position
        return self.server_position() if isinstance(end, str) else end

    def _earliest(self) -> SourceOffset:
        """Return the offset before the oldest transaction.

        The offset has a place if its position covers the position of the binlog's end. In that case either no group
        lies between them, or sequence numbers went back, and only the places show which.
        """
        position, place = self._replica.earliest()
        end = self.server_end()
        if end.place is None or not covers(position, end.position):
            return SourceOffset(position, position, anchor=True)
        return SourceOffset(position, position, place, anchor=True, uid=end.uid)

    def _latest(self) -> SourceOffset:
        """Return the end of the primary's binlog, and the position to resume at, before every group prepared there.

        Raises:
            PrerequisiteError: XA transactions stay prepared, and the binlog within reach does not have their rows.
        """
        first = latest = self._replica.latest_and_prepared()
        open_then = first.prepared
        deadline = time.monotonic() + XA_PATIENCE_S
        while open_then and time.monotonic() < deadline:
            time.sleep(XA_POLL_S)
            latest = self._replica.latest_and_prepared()
            open_then &= latest.prepared
        begin = self._before_prepared(open_then, latest.before)
        begin = first.before if begin is None else begin
        end = self.server_end()  # asked last, so that later prepared groups are after `before`
        if end.place is None:
            return SourceOffset(latest.position, begin, anchor=True)
        return SourceOffset(end.position, begin, end.place, anchor=True, uid=end.uid)

    def _before_prepared(self, transactions: frozenset[XaId], end: GtidPosition) -> GtidPosition | None:
        """Return the position before the long-open XA transactions of `end` were prepared; None if all have ended.

        Raises:
            PrerequisiteError: this position is further back in the binlog than a relay log may hold.
        """
        reader = PrimaryReader(self._options.connection, library_logger())
        while transactions:
            named = "; ".join(sorted(map(describe, transactions))[:XA_NAMED])
            long = f"{len(transactions)} have been prepared for more than {XA_PATIENCE_S:g} s"
            _log.warning("XA transactions: %s; looking for their rows in the binlog (%s)", long, named)
            begin = reader.before_prepared(transactions, end)
            if begin is not None:
                _log.info("the relay log begins at %s, before they were prepared", begin or "the beginning")
                return begin
            latest = self._replica.latest_and_prepared()
            if transactions <= latest.prepared:
                raise PrerequisiteError(
                    f"a start at the end of the binlog would miss XA transactions: {long} and may be committed later "
                    f"({named}). Their XA PREPARE is no longer in the binlog, or further back than relayMaxBytes.",
                    hint="End them (XA RECOVER lists them), raise relayMaxBytes, or start at a position. A start at "
                    "@@gtid_binlog_pos, given as a position, continues until one of them is committed.",
                )
            transactions, end = transactions & latest.prepared, latest.before  # without those that ended meanwhile
        return None

    def start(self, offset: SourceOffset) -> SourceOffset:
        place = self.log.locate(offset.resume, offset.resume_primary)
        if place is not None:
            check_history(self.log, offset)
        begin = self._available(offset, place)
        self._start_replica(begin)
        return begin

    def _start_replica(self, begin: SourceOffset) -> None:
        deadline = time.monotonic() + LOCK_PATIENCE_S
        while not self.started:
            try:
                if not self._draining:
                    self._replica.start(_stored(begin, reached=begin.position))
                self.started = True
            except RelayError:
                if is_free(self.log.directory) or time.monotonic() > deadline:
                    raise
                time.sleep(LOCK_POLL_S)
                self._replica.close()
                self._replica = self._new_replica()

    def _available(
        self, offset: SourceOffset, place: RelayLocation | None = None, *, given: bool = False
    ) -> SourceOffset:
        """Return `offset` if the server has the next groups, else the offset at which failOnDataLoss=false continues.

        If the query's relay log has the offset, `place` is its place there. Then the server has to continue from the
        log's end.
        """
        stored = _stored(offset, reached=offset.position)
        head = self.log.head() if place is not None else None
        if head is not None and head.location.offset:
            server_id, uid, last = self.origin(head.location)
            stored = Stored(
                head.position, head.primary, server_id, uid=uid, last=last, highest=self.log.order().highest
            )
        try:
            asyncio.run(check_start(self._options.connection, stored))
        except PositionPurgedError as error:
            return self._after_a_loss(
                error, offset, beyond=place is not None and head is not None and place < head.location
            )
        except PositionLostError as error:
            raise explained(error, given=given) from None
        return offset

    def _after_a_loss(self, error: PositionPurgedError, offset: SourceOffset, *, beyond: bool) -> SourceOffset:
        if beyond:
            # The log has more than the query has read, so the query reads the log first.
            if self._options.fail_on_data_loss:
                raise explained(error) from None
            self._draining = True
            return offset
        if offset.resume != offset.position and self._has(offset):
            if self._options.fail_on_data_loss:
                raise prepared_lost(error, offset.resume, offset.position) from None
            self.losses.add(Loss(offset.resume, offset.position, prepared_only=True))
            return replace(offset, resume=offset.position)
        if self._options.fail_on_data_loss:
            raise explained(error, where=self._lacks(offset)) from None
        position, loss = go_on_after(offset.position, self._replica.earliest_position())
        if loss is None:
            raise explained(error) from None  # the server purged the binlog early, for another reason than its age
        self.losses.add(loss)
        return SourceOffset(position, position)

    def _lacks(self, offset: SourceOffset) -> str:
        """Return the text that the relay log lacks the next groups, too. The folder may be another one than before."""
        return (
            f"the transactions after {offset.resume or 'the beginning'} are not in the relay log {self.log.directory} "
            "(it may have been removed or replaced), and the server has removed them. "
        )

    def _has(self, offset: SourceOffset) -> bool:
        """Return True if the server has the groups after the position."""
        try:
            asyncio.run(check_start(self._options.connection, _stored(offset)))
        except PositionPurgedError:
            return False
        return True

    # -- progress ------------------------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        return self.log.total_bytes() > self._options.connection.relay_max_bytes

    def head(self) -> RelayHead:
        if not self._draining:
            try:
                return self._replica.head()
            except PositionLostError as error:
                self._drain_after(error)
            except OutOfOrderGtidError:
                pass  # the query reads the groups before the one out of order, then gets the error
        head = self.log.head()
        if head is None:
            raise RelayError(f"the relay log {self.log.directory} was removed.", hint="Start the query again.")
        return head

    def wait_beyond(self, location: RelayLocation, timeout_s: float) -> bool:
        if not self._draining:
            try:
                return self._replica.wait_beyond(location, timeout_s)
            except PositionLostError as error:
                self._drain_after(error)
            except OutOfOrderGtidError:
                if self.head().location > location:
                    return True
                raise
        if self.head().location > location:
            return True
        self._reopen()  # the old log is read to its end: begin again after the gap
        return False

    def restart_after(self, error: RelayFileRemovedError) -> None:  # noqa: ARG002  (this query's replica can fetch it)
        self._reopen()

    def _reopen(self) -> None:
        """End the replica. The next call for a place starts a new one.

        The new replica continues the log if it can, and begins it again otherwise.
        """
        self._draining, self.started = False, False
        self._replica.close()
        self._replica = self._new_replica()
        self.epoch += 1

    def _drain_after(self, error: PositionLostError) -> None:
        """Read the rest of a log whose replica has ended because the server has purged the groups after it."""
        if self._options.fail_on_data_loss or not isinstance(error, PositionPurgedError):
            raise explained(error) from None
        _log.error("%s The rest of the relay log is read first.", error.message)
        self._draining = True

    def release(self, keep_from: RelayLocation) -> None:
        self.log.purge_before(keep_from)

    def server_position(self) -> GtidPosition:
        return asyncio.run(server_position(self._options.connection))

    def server_end(self) -> ServerEnd:
        return asyncio.run(server_end(self._options.connection))

    def is_last(self, place: BinlogPosition, uid: str | None) -> bool:
        return asyncio.run(is_last(self._options.connection, place, uid))

    def latest_and_prepared(self) -> Latest:
        return self._replica.latest_and_prepared()

    def origin(self, location: RelayLocation) -> Origin:
        return origin_of(self.log, location)

    @property
    def spool(self) -> Path:
        return self.log.directory / READERS_NAME / "query.tables"

    def close(self) -> None:
        self._replica.close()


def _stored(offset: SourceOffset, *, reached: GtidPosition | None = None) -> Stored:
    """Return the state to check with a server, after the offset.

    With `reached`, the state is after the offset's `resume` position.
    """
    start = offset.position if reached is None else offset.resume
    highest = dict(offset.highest)
    return Stored(start, offset.primary, offset.server_id, reached, highest, uid=offset.uid, last=offset.last)


# Logger of a query's replica. It logs each note on a server's settings once in a process. Otherwise an audit, which
# reads every table with a separate replica in the same processes, would repeat the notes for every table.

_LOGGED: Final[set[tuple[str, str]]] = set()
"""Notes that were logged, with their servers."""


def replica_log(servers: Iterable[Endpoint]) -> FilteringBoundLogger:
    """Return the logger of a replica of one of these servers."""
    where = ",".join(map(str, servers))

    def once(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if event["event"] == "server setting":
            if (where, event["what"]) in _LOGGED:
                raise structlog.DropEvent
            _LOGGED.add((where, event["what"]))
        return event

    return library_logger(once)


# A crash can lose a transaction between its entry in the binlog and the storage engine's (relaxed durability). A
# session with sql_log_bin=0 ends a prepared transaction without an entry in the binlog. The relay log would be kept
# forever from the group of such a transaction on. So once such a transaction holds back whole files,
# `ForgottenTransactions` asks the primary from time to time. It gives up a transaction if XA RECOVER does not list the
# transaction in two checks and the binlog up to the first check does not end it.
#
# If such a transaction is committed after all, its XA COMMIT raises an error that its rows are not available.


CHECK_EVERY_S = 60.0
"""Seconds between two checks. Each is a login, and keeping some more files for a minute does no harm."""


class ForgottenTransactions:
    """Abandoned transactions of a query. The object remembers which transactions were missing at the first check."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._next_check_s = 0.0
        self._missing: dict[PreparedGroup, GtidPosition] = {}

    def among(self, prepared: Prepared, position: GtidPosition) -> frozenset[PreparedGroup]:
        """Return the transactions of `prepared`, open at `position`, that the primary does not know.

        The primary is asked at most every CHECK_EVERY_S.
        """
        now = time.monotonic()
        if now < self._next_check_s:
            return frozenset()
        self._next_check_s = now + CHECK_EVERY_S
        try:
            latest = self._feed.latest_and_prepared()
        except DisconnectedError:
            return frozenset()  # the replica reports a lasting fault itself
        if latest is None:
            return frozenset()
        # A server that has not reached the group, such as a replica that took over, cannot know the transaction.
        missing = [g for g in prepared if g.xid not in latest.prepared and _reached(latest.position, g)]
        forgotten = frozenset(g for g in missing if g in self._missing and covers(position, self._missing[g]))
        self._missing = {g: self._missing.get(g, latest.position) for g in missing if g not in forgotten}
        for group in forgotten:
            _log.warning(
                "the primary no longer knows the XA transaction %s, prepared in %s, and its binlog does not end it: "
                "its rows are dropped",
                describe(group.xid),
                group.gtid,
            )
        return forgotten


def _reached(position: GtidPosition, group: PreparedGroup) -> bool:
    last = position.get(group.gtid.domain_id)
    return last is not None and last.seq_no >= group.gtid.seq_no
