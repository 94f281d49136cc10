"""Asks the primary how far it is, every few seconds, over a connection of its own in a thread of its own.

In: the configuration, and which server the replica uses. Out: `known`, the newest answer; `error`, why there is none
newer. The receiving path shares nothing with it: a primary that is slow to answer, or a login that costs a tenth of a
second, makes no acknowledgement late.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from replica.errors import ReplicaError
from replica.handshake.login import Login, log_in
from replica.handshake.primary import BinlogFile, PrimaryAnswer, ask_primary, list_binlogs

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import FilteringBoundLogger

    from replica.config import Endpoint
    from replica.daemon.config import DaemonConfig

ANSWER_TIMEOUT_S = 10.0
"""Four short questions."""
CLOCK_WARNING_S = 1.0
"""An offset that people should know about: the logs of the two machines will not line up."""
STOP_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class Known:
    """An answer, and the sizes of the binlog files where they were needed and may be seen."""

    answer: PrimaryAnswer
    binlogs: tuple[BinlogFile, ...] | None


class Monitor:
    """`start` it; `known` and `error` may be read by any thread.

    Args:
        config: where to connect, and how often.
        endpoint: the server in use now.
        held_file: the file of the primary that the relay log has reached; '' before the first group.

    """

    def __init__(
        self,
        config: DaemonConfig,
        *,
        endpoint: Callable[[], Endpoint],
        held_file: Callable[[], str],
        log: FilteringBoundLogger,
    ) -> None:
        self.known: Known | None = None
        self.error = ""
        self.errors = 0
        self._config = config
        self._endpoint = endpoint
        self._held_file = held_file
        self._log = log
        self._clock_warned = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._login: Login | None = None
        self._thread = threading.Thread(target=self._main, name="replica-monitor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        loop, task = self._loop, self._task
        if loop is not None and task is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop was just closed
                loop.call_soon_threadsafe(task.cancel)
            self._thread.join(STOP_TIMEOUT_S)

    def _main(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(self._run())

    async def _run(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        try:
            while True:
                began = time.monotonic()
                await self._turn()
                await asyncio.sleep(max(0.1, self._config.monitor_s - (time.monotonic() - began)))
        finally:
            self._hang_up()

    async def _turn(self) -> None:
        try:
            async with asyncio.timeout(self._config.connect_timeout_s + ANSWER_TIMEOUT_S):
                self.known = await self._ask()
            self.error = ""
            self._judge_clock(self.known.answer)
        except (ReplicaError, TimeoutError, OSError) as error:
            self._hang_up()
            self.errors += 1
            self.error = error.message if isinstance(error, ReplicaError) else f"no answer: {error or 'timeout'}"
        except Exception as error:  # noqa: BLE001  (a bug here must not end the replica: logged, counted, asked again)
            self._hang_up()
            self.errors += 1
            if self.error != repr(error):
                self.error = repr(error)
                self._log.error("internal error", part="monitor", error=repr(error), exc_info=True)

    async def _ask(self) -> Known:
        endpoint = self._endpoint()
        if self._login is not None and self._login.endpoint != endpoint:
            self._hang_up()
        if self._login is None:
            self._login = await log_in(self._config, endpoint)
        held = self._held_file()
        answer = await self._login.run(ask_primary(held))
        elsewhere = answer.place is not None and held not in ("", answer.place.file)
        sizes = await self._login.run(list_binlogs()) if elsewhere else None
        if elsewhere and sizes is None:
            self._hang_up()  # a privilege that is granted now counts from the next login on
        return Known(answer, sizes)

    def _hang_up(self) -> None:
        if self._login is not None:
            self._login.close()
            self._login = None

    def _judge_clock(self, answer: PrimaryAnswer) -> None:
        wrong = abs(answer.clock_offset_s) > CLOCK_WARNING_S + (answer.answered_at - answer.asked_at)
        if wrong and not self._clock_warned:
            self._log.warning(
                "clocks differ",
                primary_minus_ours_s=round(answer.clock_offset_s, 3),
                hint="Seconds behind are corrected for it; keep both machines on NTP all the same.",
            )
        self._clock_warned = wrong
