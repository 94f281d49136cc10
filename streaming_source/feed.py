"""The replica behind a query: an `EmbeddedReplica` in the planner's process, with a relay folder that nobody else uses.

In: the options. Out: what places.py calls a `Feed`. Nothing connects before the first question, and the log is not
written before `start`, which waits for a folder that another process is about to let go, or takes the next one where
the user named none.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from replica.embedded import EmbeddedReplica
from replica.errors import PrerequisiteError, RelayError
from replica.protocol.gtid import GtidPosition
from replica.rows.xa import describe
from streaming_source.cutting import server_of
from streaming_source.offset import SourceOffset
from streaming_source.relay_directory import is_free, relay_directory

if TYPE_CHECKING:
    from replica.handshake.start import Latest
    from replica.relay.location import RelayHead, RelayLocation
    from replica.relay.log import RelayLog
    from streaming_source.options import SourceOptions

LOCK_PATIENCE_S = 10.0
"""A query that was just stopped has two seconds to let its folder go; a restart is often faster than that."""
LOCK_POLL_S = 0.1
XA_PATIENCE_S = 10.0
"""An XA transaction is prepared for as long as its coordinator asks all others; one that stays is forgotten."""
XA_POLL_S = 0.25
XA_NAMED = 3
"""Of how many the message tells the id."""


class ReplicaFeed:
    """One per query, in the process that plans it."""

    epoch = 0
    """The writer is ours: nobody else begins the log anew."""
    down_s = 0.0
    """It dies with us."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._replica = self._new_replica()
        self.started = False

    def _new_replica(self) -> EmbeddedReplica:
        return EmbeddedReplica(self._options.connection, relay_directory(self._options))

    @property
    def log(self) -> RelayLog:
        return self._replica.log

    def starting_offset(self) -> SourceOffset:
        start = self._options.starting_position
        if start == "latest":
            return self._latest()
        position = self._replica.earliest_position() if start == "earliest" else GtidPosition.parse(start)
        return SourceOffset(position, position, anchor=True)

    def _latest(self) -> SourceOffset:
        """The end of the primary's binlog, and the position to resume at: before every group prepared there."""
        first = latest = self._replica.latest_and_prepared()
        open_then = first.prepared
        deadline = time.monotonic() + XA_PATIENCE_S
        while open_then and time.monotonic() < deadline:
            time.sleep(XA_POLL_S)
            latest = self._replica.latest_and_prepared()
            open_then &= latest.prepared
        if open_then:
            named = "; ".join(sorted(map(describe, open_then))[:XA_NAMED])
            raise PrerequisiteError(
                f"startingPosition=latest would miss XA transactions: {len(open_then)} have been prepared for more "
                f"than {XA_PATIENCE_S:g} s and may be committed later ({named}).",
                hint="End them (XA RECOVER lists them), or start at a GTID position before they were prepared; a start "
                "at @@gtid_binlog_pos, given as a position, goes on until one of them is committed.",
            )
        return SourceOffset(latest.position, first.before, anchor=True)

    def start(self, offset: SourceOffset) -> None:
        deadline = time.monotonic() + LOCK_PATIENCE_S
        while not self.started:
            try:
                self._replica.start(
                    offset.resume, place=offset.primary, server_id=offset.server_id, reached=offset.position
                )
                self.started = True
            except RelayError:
                if is_free(self.log.directory) or time.monotonic() > deadline:
                    raise
                time.sleep(LOCK_POLL_S)
                self._replica.close()
                self._replica = self._new_replica()

    @property
    def full(self) -> bool:
        return self.log.total_bytes() > self._options.connection.relay_max_bytes

    def head(self) -> RelayHead:
        return self._replica.head()

    def wait_beyond(self, location: RelayLocation, timeout_s: float) -> bool:
        return self._replica.wait_beyond(location, timeout_s)

    def release(self, keep_from: RelayLocation) -> None:
        self.log.purge_before(keep_from)

    def server_position(self) -> GtidPosition:
        return self._replica.server_position()

    def latest_and_prepared(self) -> Latest:
        return self._replica.latest_and_prepared()

    def server_id(self, location: RelayLocation) -> int | None:
        return server_of(self.log, location)

    def close(self) -> None:
        self._replica.close()
