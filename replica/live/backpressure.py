"""The room that the relay log may grow into: by its own limit, and by what its disk has left.

In: the writer of the log and the two limits. Out: the reason to stop receiving, or none. Stopping is no error: the
primary waits for us up to net_write_timeout, and a reader that goes on or an administrator makes room.
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
"""Stops a replica whose readers have stopped before it fills an ordinary disk."""
LOOK_EVERY_BYTES = 16 << 20
"""What may come in before it is looked at again: counting files and asking the disk is not for every chunk."""
DISK_RETRY_S = 1.0
"""How often a full disk is looked at again: opening the log again walks its last file."""
MAX_DISK_RETRY_S = 30.0
"""The same where the disk claims to have room and refuses to be written."""
_SHARE = 16  # of a limit may come in unseen


class Backpressure:
    """The room of one log. `lacking()` is the question; `look_every_bytes` is how much may be received between two of
    them.

    Args:
        relay: open.
        max_relay_bytes: pause beyond it, if readers can bring the log below by letting go of files; None where
            another part keeps the log small whatever its readers do.
        min_free_bytes: pause while the disk has less than this for our user.
    """

    def __init__(
        self, relay: RelayWriter, *, max_relay_bytes: int | None = MAX_RELAY_BYTES, min_free_bytes: int = 0
    ) -> None:
        self._relay = relay
        self._min_free_bytes = min_free_bytes
        self.set_limit(max_relay_bytes)

    def set_limit(self, max_relay_bytes: int | None) -> None:
        """Take another limit of the log."""
        self._max_relay_bytes = max_relay_bytes
        limits = [limit // _SHARE for limit in (max_relay_bytes, self._min_free_bytes) if limit]
        self.look_every_bytes = min([LOOK_EVERY_BYTES, *limits])

    def lacking(self, *, paused: bool) -> PauseReason:
        """Return why to stand still; empty if there is room. A stream that paused wants a little more, not to pause
        again at once.

        Raises:
            RelayError: the disk or the directory cannot be asked.
        """
        relay = self._relay
        wanted = self._min_free_bytes
        if wanted and relay.free_bytes() < wanted + (self.look_every_bytes if paused else 0):
            return "disk nearly full"
        # Only files before the one with the last group can be purged: with none of them, waiting would be forever.
        limit = self._max_relay_bytes
        if limit is not None and relay.has_older_files() and relay.total_bytes() > limit:
            return "relay log full"
        return ""


class FullDisk:
    """The wait, after the disk was full, until the log is usable again and its disk has what receiving wants free.

    A quota shows only when it is reached: then the log can be opened and not written. So the wait doubles, without
    another word in the log, while nothing new gets in between.
    """

    def __init__(
        self, relay: RelayWriter, *, min_free_bytes: int, progress: Progress, log: FilteringBoundLogger
    ) -> None:
        self._relay = relay
        self._min_free_bytes = min_free_bytes
        self._progress = progress
        self._log = log
        self._wait_s = 0.0

    async def wait(self, error: DiskFullError, *, again: bool) -> None:
        """Wait for room. `again`: no group came in since the last time.

        Raises:
            RelayError: the log cannot be opened again for another reason.
        """
        relay, progress = self._relay, self._progress
        again = again and self._wait_s > 0
        self._wait_s = min(2 * self._wait_s, MAX_DISK_RETRY_S) if again else DISK_RETRY_S
        progress.state = "disk full"
        progress.disk_full_events += 1
        if not again:
            self._log.error(
                "disk full",
                relay_dir=str(relay.directory),
                free_bytes=relay.free_bytes(),
                wanted_free_bytes=self._min_free_bytes,
                error=error.message,
                hint="Free space there. Nothing that was acknowledged is lost; receiving goes on by itself.",
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
        if not again:
            self._log.info("disk has room again", free_bytes=relay.free_bytes(), position=str(relay.position))
