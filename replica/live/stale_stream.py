"""Detection of a primary that sends only heartbeats although its position differs from the received one.

After RESET MASTER a server keeps its dump connections, sends heartbeats, and never a transaction again. A heartbeat
means that the server has nothing left to send. So if two heartbeats arrive after the server reported another position
than ours, the connection is useless. It is ended, and the next connection checks the server's history. Each reported
position ends at most one connection, because a server may have reasons that are not known here.

Source: measured on 10.5, 10.11 and 11.8 (tests/integration/test_reset_master.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from replica.errors import ReplicaError
from replica.handshake.login.login import log_in
from replica.handshake.start.start import latest_position

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import FilteringBoundLogger

    from replica.live.progress import Progress
    from replica.options.config import Endpoint, ReplicaConfig
    from replica.protocol.gtid import GtidPosition

QUIET_S: Final = 30.0
"""Seconds without a transaction after which the primary is asked, which takes a login of some milliseconds."""
ANSWER_TIMEOUT_S: Final = 10.0
PROOF_HEARTBEATS: Final = 2
"""Number of heartbeats after the answer. The first one may have been sent before the answer."""
_TICK_S: Final = 0.25


class StaleStreamCheck:
    """Check for one replica. Call `run` beside each of its sessions.

    Args:
        position: returns the position up to which groups were received.
        progress: counts the heartbeats.
        log: receives events with key-value pairs.
        quiet_s: seconds without a transaction before the primary is asked.
    """

    def __init__(
        self,
        position: Callable[[], GtidPosition],
        progress: Progress,
        *,
        log: FilteringBoundLogger,
        quiet_s: float = QUIET_S,
    ) -> None:
        self._position = position
        self._progress = progress
        self._log = log
        self._quiet_s = quiet_s
        self._known: tuple[str, str] | None = None

    async def run(self, config: ReplicaConfig, endpoint: Endpoint, leave: Callable[[str], None]) -> None:
        """Watch a session until it ends, or call `leave` with a reason. The caller cancels this with the session."""
        while config.heartbeat_s:
            ours = self._position()
            if not await self._silent(ours, self._quiet_s, heartbeats=1):
                continue
            theirs = await self._asked(config, endpoint)
            if theirs is None or theirs == ours or (str(ours), str(theirs)) == self._known:
                continue
            if await self._silent(ours, 0.0, heartbeats=PROOF_HEARTBEATS):
                self._known = str(ours), str(theirs)
                leave(
                    f"the primary reports that it has nothing to send and is at {theirs or 'no position'}, but "
                    f"{ours} was received: it may have been reset."
                )
                return

    async def _silent(self, ours: GtidPosition, seconds: float, *, heartbeats: int) -> bool:
        """Wait for so many seconds and heartbeats; return False as soon as a transaction arrives."""
        loop = asyncio.get_running_loop()
        until, seen = loop.time() + seconds, self._progress.heartbeats + heartbeats
        while loop.time() < until or self._progress.heartbeats < seen:
            await asyncio.sleep(_TICK_S)
            if self._position() != ours:
                return False
        return True

    async def _asked(self, config: ReplicaConfig, endpoint: Endpoint) -> GtidPosition | None:
        """Return the primary's position, or None if it cannot be asked now."""
        try:
            async with asyncio.timeout(config.connect_timeout_s + ANSWER_TIMEOUT_S):
                login = await log_in(config, endpoint)
                with contextlib.closing(login):
                    return await login.run(latest_position())
        except (ReplicaError, OSError, TimeoutError) as error:
            self._log.debug("quiet primary not asked", reason=str(error))
            return None
