"""`Feed` (places.py) over a daemon's relay log, which is made of files that another process writes.

`AttachedFeed` answers with positions and waits, from the options and the daemon's folder. It reads the log and opens no
connection to a server, except to ask for the latest position if the options name a server. Before the first row, it
registers which part of the log the query still needs. It waits for a daemon that is down. It refuses a position that
the log does not hold any more, or holds with another history, and never fetches such a position from elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from replica.errors import DataLossError
from replica.handshake.login.login import ask
from replica.handshake.start.start import latest_and_prepared
from replica.options.values import CommitTime
from replica.protocol.gtid import covers
from replica.readers.log.in_relay_log import RelayLogReader
from replica.relay_log.directory.readers import READERS_NAME
from replica.relay_log.log import RelayLog
from replica.relay_log.walks.xa import prepared_at
from streaming_source.attached.folder import DaemonWatch
from streaming_source.attached.history import check_history, end_of_group
from streaming_source.attached.registration import QueryRegistration
from streaming_source.offsets.data_loss import PREPARED_HINT, Loss, Losses, go_on_after, prepared_message
from streaming_source.offsets.offset import SourceOffset
from streaming_source.ranges.cutting import Origin, file_head, origin_of
from streaming_source.ranges.end import end_of_log

if TYPE_CHECKING:
    from pathlib import Path

    from replica.errors import RelayFileRemovedError
    from replica.handshake.start.start import Latest, ServerEnd
    from replica.options.values import Position
    from replica.protocol.gtid import BinlogPosition, GtidPosition
    from replica.relay_log.location import RelayHead, RelayLocation
    from streaming_source.options.source_options import SourceOptions


POLL_S: Final = 0.002
"""Seconds between two reads of the head while groups arrive. A read takes some 20 microseconds."""
IDLE_POLL_S: Final = 0.05
"""Longest pause in seconds between two reads of the head of a silent log."""
SILENCE_A_POLL: Final = 400
"""Silence of a log divided by the pause between two reads. Longer pauses spare the processor, and the delay of the next
group is small in comparison with the silence.
"""
POSITION_POLL_S: Final = 0.1

SERVER_S: Final = 2.0
"""Seconds to wait for a server. A server that does not answer must not delay a query that can read on without it."""
REPEAT_S: Final = 60.0
"""Seconds between two log messages about the same wait."""
_log = logging.getLogger(__name__)


class AttachedFeed:
    """Feed of one query, in the process that plans the query. Only one thread calls it."""

    full = False
    """The daemon, not the query, limits the size of the log."""

    def __init__(self, options: SourceOptions, directory: Path) -> None:
        self.log: RelayLog = RelayLog(directory)
        self.losses = Losses()
        self._gaps = 0
        self._options = options
        self._daemon = DaemonWatch(directory, options.daemon_timeout_s)
        self._registration = QueryRegistration(directory, options)
        self._started_in: object = None
        self._news_s = time.monotonic()
        self._next_message_s = 0.0

    @property
    def epoch(self) -> object:
        return self._daemon.epoch, self._gaps

    @property
    def started(self) -> bool:
        """Whether the query has its place in the log that the daemon writes now."""
        return self._started_in is not None and self._started_in == self.epoch

    # -- where to begin ------------------------------------------------------------------------------------------

    def starting_offset(self) -> SourceOffset:
        self._anew()
        start = "latest" if self._options.stream_start is None else self._options.stream_start
        empty = self._head_or_none() is None
        head = self._known_head()
        self._registration.claim()
        if start == "earliest" or (start == "latest" and empty):
            # "latest" of an empty log is its beginning: groups that arrived after the query began belong to the query.
            position = self._first(head)
            return SourceOffset(position, position, anchor=True)
        if start == "latest":
            return self._at(head.location, head.position)
        if isinstance(start, CommitTime):
            before = self._before_time(start.seconds, head)
            return self._at(before.location, before.position)
        begin = self._available(SourceOffset(start, start))
        location = self.log.locate(begin.position)
        return replace(begin, anchor=True) if location is None else self._at(location, begin.position)

    def ending_position(self, end: Position) -> GtidPosition:
        """Resolve the option endingPosition to a position that the log holds already."""
        head = self._known_head()
        if isinstance(end, CommitTime):
            return self._before_time(end.seconds, head).position
        if isinstance(end, str):
            return head.position
        return end

    def _at(self, location: RelayLocation, position: GtidPosition) -> SourceOffset:
        """Return the offset of a place of the log.

        The offset has the server and event that identify the place, and the resume position before open XA
        transactions.
        """
        prepared = prepared_at(self.log, location)
        resume = self.log.at(prepared[0].location).position if prepared else position
        end = end_of_group(self.log, location)
        if end is None:
            return SourceOffset(position, resume, anchor=True)
        server_id, uid, last = self.origin(end)
        return SourceOffset(position, resume, self.log.at(end).primary, server_id, anchor=True, uid=uid, last=last)

    def _before_time(self, time_s: int, head: RelayHead) -> RelayHead:
        found = RelayLogReader(self.log).first_since(
            time_s,
            accept_gap=not self._options.fail_on_data_loss,
            hint="Start at a later time, or at earliest; failOnDataLoss=false starts there too.",
        )
        return head if found is None else found.before

    def start(self, offset: SourceOffset) -> SourceOffset:
        epoch = self.epoch
        self._anew()
        self._known_head()
        self._registration.claim()
        begin = self._available(offset)
        location = self._find(begin.resume, begin.resume_primary)
        check_history(self.log, begin)
        self._registration.keep_from(location, begin.resume)
        self._started_in = epoch
        return begin

    def _available(self, offset: SourceOffset) -> SourceOffset:
        """Return `offset` if the log leads through it, else the offset from which failOnDataLoss=false continues."""
        try:
            self._find(offset.resume, offset.resume_primary)
        except DataLossError as error:
            head = self._known_head()
            first = self._first(head)
            if not covers(head.position, offset.position) or covers(offset.resume, first):
                raise  # another history, or a log that ends earlier: nothing was removed
            has_end = self.log.locate(offset.position, offset.primary) is not None
            if self._options.fail_on_data_loss:
                raise self._prepared_lost(error, offset) if has_end else error from None
            if has_end:
                self.losses.add(Loss(offset.resume, offset.position, prepared_only=True))
                return replace(offset, resume=offset.position)
            position, loss = go_on_after(offset.position, first)
            if loss is None or self.log.locate(position) is None:
                raise
            self.losses.add(loss)
            return SourceOffset(position, position)
        return offset

    def _prepared_lost(self, error: DataLossError, offset: SourceOffset) -> DataLossError:
        return DataLossError(prepared_message(error.message, offset.resume, offset.position), hint=PREPARED_HINT)

    def _anew(self) -> None:
        """Forget the sizes and contents of files, because the folder may have been created again."""
        self.log = RelayLog(self.log.directory)
        file_head.cache_clear()

    def _find(self, position: GtidPosition, primary: BinlogPosition | None = None) -> RelayLocation:
        """Find the place of a position, or the place at `primary` if several places have the position.

        If the daemon's log ends before the position, the call waits, because the daemon may have lost the end of its
        log.

        Raises:
            DataLossError: the log begins after the position, leads past it, or does not get there in time.
        """
        deadline = time.monotonic() + self._options.daemon_timeout_s
        while True:
            head = self._known_head()
            location = self.log.locate(position, primary)
            if location is not None:
                return location
            if covers(head.position, position):
                raise self._missing_error(position, head)
            if time.monotonic() > deadline:
                raise DataLossError(
                    f"the relay log {self.log.directory} is at {head.position}, and did not reach {position} within "
                    f"{self._options.daemon_timeout_s:.0f} s. This query continues at that position.",
                    hint="If the daemon is catching up, raise daemonTimeout. If the primary was reset, or the log "
                    "belongs to another server, start with a new checkpoint.",
                )
            self._log_waiting("the relay log %s is at %s: waiting for %s", self.log.directory, head.position, position)
            self.wait_beyond(head.location, POSITION_POLL_S)

    def _log_waiting(self, message: str, *values: object) -> None:
        if time.monotonic() >= self._next_message_s:
            self._next_message_s = time.monotonic() + REPEAT_S
            _log.warning(message, *values)

    def _first(self, head: RelayHead) -> GtidPosition:
        """Return the position at which the log begins; `head` is the head of the log."""
        first = self.log.first_position()
        return head.position if first is None else first

    def _missing_error(self, position: GtidPosition, head: RelayHead) -> DataLossError:
        first, where = self._first(head), self.log.directory
        if not covers(position, first):
            return self._registration.lost or DataLossError(
                f"the relay log {where} begins at {first}: the transactions after {position} were removed from it.",
                hint="Let the daemon keep more files: raise retain_s and retain_bytes, or for registered queries "
                "relay_max_bytes and reader_expiry_s. Start this query with a new checkpoint, or with "
                "failOnDataLoss=false: then it continues at the beginning of the log.",
            )
        return DataLossError(
            f"the relay log {where} does not contain the position {position}.",
            hint="The position comes from another server, or from before a reset of this one. Start with a new "
            "checkpoint, and set startingPosition to the position up to which the sink has changes.",
        )

    # -- progress ------------------------------------------------------------------------------------------------

    def head(self) -> RelayHead:
        return self._known_head()

    def _head_or_none(self) -> RelayHead | None:
        """Return the head, or None while the daemon does not know its first position.

        A primary may have no transaction at all.
        """
        head = self.log.head()
        if head is None or head.location.offset or head.position or self._daemon.receives:
            return head
        return None

    def _known_head(self) -> RelayHead:
        while (head := self._head_or_none()) is None:
            self._daemon.check()
            self._log_waiting("the relay log %s is empty: waiting for its daemon to write to it", self.log.directory)
            time.sleep(POSITION_POLL_S)
        return head

    def wait_beyond(self, location: RelayLocation, timeout_s: float) -> bool:
        if not self._options.fail_on_data_loss and self._registration.was_dropped:
            self._gaps += 1  # files that the query needed were removed: look up its place again
            return False
        now = time.monotonic()
        deadline = now + timeout_s
        while now < deadline:
            head = self.log.head()
            if head is not None and head.location > location:
                self._news_s = now
                self._daemon.seen()
                return True
            pause = min(IDLE_POLL_S, max(POLL_S, (now - self._news_s) / SILENCE_A_POLL))
            time.sleep(min(pause, deadline - now))
            now = time.monotonic()
        self._daemon.check()
        self._registration.check()
        return False

    def release(self, keep_from: RelayLocation) -> None:
        if self._registration.is_news(keep_from):
            here = self.log.at(keep_from) if keep_from.offset else self._known_head()
            self._registration.keep_from(keep_from, here.position)

    def restart_after(self, error: RelayFileRemovedError) -> None:  # noqa: ARG002  (the lookup has the better error)
        self._gaps += 1

    @property
    def down_s(self) -> float:
        return self._daemon.down_s

    def server_end(self) -> ServerEnd:
        """Return the end of the log, because the query asks no server."""
        head = self._known_head()
        self._daemon.check()
        return end_of_log(self.log, head)

    def is_last(self, place: BinlogPosition, uid: str | None) -> bool:  # noqa: ARG002  (no server is asked)
        return False

    def latest_and_prepared(self) -> Latest | None:
        replica = self._options.replica
        if replica is None:
            return None
        shortly = {"connect_retry_s": SERVER_S, "connect_timeout_s": min(replica.connect_timeout_s, SERVER_S)}
        return asyncio.run(ask(replica.model_copy(update=shortly), lambda _: latest_and_prepared()))

    def origin(self, location: RelayLocation) -> Origin:
        return origin_of(self.log, location)

    @property
    def spool(self) -> Path:
        return self.log.directory / READERS_NAME / f"{self._registration.name}.tables"

    def leave(self) -> None:
        """End the registration of a read that is planned and will not resume.

        The daemon then keeps no files for the query.
        """
        self._registration.leave()

    def close(self) -> None:
        self._registration.close()
