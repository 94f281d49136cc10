"""Backpressure: receiving pauses when the relay log reaches its limit or its disk is nearly full.

In: the writer of the log and the two limits. Out: the reason to pause, or ''. A pause is no error: the primary waits
for us up to net_write_timeout, and a reader that continues or an administrator frees space.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from replica.errors import DiskFullError

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from replica.live.progress import PauseReason, Progress
    from replica.relay_writer.writer import RelayWriter

MAX_RELAY_BYTES = 64 << 30
"""Default limit of the relay log in bytes. If the readers stop, receiving pauses at this limit, before an ordinary disk
is full.
"""
CHECK_EVERY_BYTES = 16 << 20
"""Number of bytes that may be received between two checks, because listing files and disk space is too slow for every
chunk.
"""
DISK_RETRY_S = 1.0
"""Seconds between two checks of a full disk. Reopening the log walks its last file."""
MAX_DISK_RETRY_S = 30.0
"""Maximum seconds between two checks, if the disk reports free space but refuses writes."""
_SHARE = 16  # a check is due after this part (1/16) of a limit was received


class Backpressure:
    """Backpressure of one relay log. Call `lacking()` at least once every `check_every_bytes` received bytes.

    Args:
        relay: the open writer.
        max_relay_bytes: pause beyond this size in bytes, until readers release files. None if another part of the
            program limits the log, even by removing files that readers need.
        min_free_bytes: pause while the disk has fewer free bytes for our user.
    """

    def __init__(
        self, relay: RelayWriter, *, max_relay_bytes: int | None = MAX_RELAY_BYTES, min_free_bytes: int = 0
    ) -> None:
        self._relay = relay
        self._min_free_bytes = min_free_bytes
        self.set_limit(max_relay_bytes)

    def set_limit(self, max_relay_bytes: int | None) -> None:
        """Change the maximum size of the log."""
        self._max_relay_bytes = max_relay_bytes
        limits = [limit // _SHARE for limit in (max_relay_bytes, self._min_free_bytes) if limit]
        self.check_every_bytes = min([CHECK_EVERY_BYTES, *limits])

    def lacking(self, *, paused: bool) -> PauseReason:
        """Return the reason to pause, or '' if there is space.

        Args:
            paused: whether the stream is paused. It then needs a little more space, so that it does not pause again at
                once.

        Raises:
            RelayError: the disk or the directory cannot be read.
        """
        relay = self._relay
        wanted = self._min_free_bytes
        if wanted and relay.free_bytes() < wanted + (self.check_every_bytes if paused else 0):
            return "disk nearly full"
        # Only files before the one with the last group can be purged. Without such files, the pause would never end.
        limit = self._max_relay_bytes
        if limit is not None and relay.has_older_files() and relay.total_bytes() > limit:
            return "relay log full"
        return ""


class FullDisk:
    """Recovery from a full disk: `wait` returns once the log is open again and the disk has enough free space.

    An exceeded disk quota allows the log to be reopened, and only the next write fails. So the wait doubles after each
    failure, without further log lines, until a new group is stored.
    """

    def __init__(
        self, relay: RelayWriter, *, min_free_bytes: int, progress: Progress, log: FilteringBoundLogger
    ) -> None:
        self._relay = relay
        self._min_free_bytes = min_free_bytes
        self._progress = progress
        self._log = log
        self._wait_s = 0.0

    async def wait(self, error: DiskFullError, *, repeated: bool) -> None:
        """Wait for free space.

        Args:
            error: the error of the last write.
            repeated: whether no group was stored since the last wait.

        Raises:
            RelayError: the log cannot be reopened for another reason.
        """
        relay, progress = self._relay, self._progress
        repeated = repeated and self._wait_s > 0
        self._wait_s = min(2 * self._wait_s, MAX_DISK_RETRY_S) if repeated else DISK_RETRY_S
        progress.state = "disk full"
        progress.disk_full_events += 1
        if not repeated:
            self._log.error(
                "disk full",
                relay_dir=str(relay.directory),
                free_bytes=relay.free_bytes(),
                wanted_free_bytes=self._min_free_bytes,
                error=error.message,
                hint="Free space there. Nothing that was acknowledged is lost; receiving continues by itself.",
            )
        since_s, broken = time.monotonic(), True
        while broken or relay.free_bytes() < self._min_free_bytes:
            await asyncio.sleep(self._wait_s)
            since_s, began_s = time.monotonic(), since_s
            progress.paused_s += since_s - began_s
            with contextlib.suppress(DiskFullError):
                if broken:
                    relay.reopen()
                    broken = False
        if not repeated:
            self._log.info("disk has room again", free_bytes=relay.free_bytes(), position=str(relay.position))
