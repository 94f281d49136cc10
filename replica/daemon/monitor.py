"""Monitor that asks the primary for its position every few seconds, over its own connection and in its own thread.

In: the configuration, and the server that the replica uses. Out: `known`, the newest answer, and `error`, why there is
no newer one. The monitor shares nothing with the receiving path. A primary that answers slowly, or a login that takes a
tenth of a second, delays no acknowledgement.

While a query is unanswered, no other one is sent. A hanging server keeps the session of each abandoned query, until no
client can log in. So only one session waits, and the delay before the next session grows with each abandoned one.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from replica.errors import ReplicaError
from replica.handshake.login.login import Login, log_in
from replica.handshake.primary.progress import ListedBinlog, PrimaryAnswer, ask_primary, list_binlogs

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import FilteringBoundLogger

    from replica.daemon.config import DaemonConfig
    from replica.options.config import Endpoint

ANSWER_TIMEOUT_S = 10.0
"""Timeout of four short queries in seconds."""
CLOCK_WARNING_S = 1.0
"""Clock offset in seconds above which there is a warning, because the logs of the two machines will not match."""
STOP_TIMEOUT_S = 3.0
SOON_S = 1.0
"""Minimum seconds between two queries if the second may show that the replica has everything."""
MAX_PAUSE_S = 600.0
"""Maximum seconds between two sessions on a hanging server: half a dozen sessions an hour do no harm."""


@dataclass(frozen=True, slots=True)
class MonitorAnswer:
    """Answer of the primary, with the sizes of the binlog files if they were needed and are visible to the account."""

    answer: PrimaryAnswer
    binlogs: tuple[ListedBinlog, ...] | None


class Monitor:
    """Thread that asks the primary. Any thread may read `known` and `error`.

    Args:
        config: where to connect, and how often.
        endpoint: returns the server in use.
        needed_file: returns the primary's file that the relay log has reached; '' before the first group.
        log: receives events with key-value pairs.
    """

    def __init__(
        self,
        config: DaemonConfig,
        *,
        endpoint: Callable[[], Endpoint],
        needed_file: Callable[[], str],
        log: FilteringBoundLogger,
    ) -> None:
        self.known: MonitorAnswer | None = None
        self.error = ""
        self.errors = 0
        self._config = config
        self._endpoint = endpoint
        self._needed_file = needed_file
        self._log = log
        self._clock_warned = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._login: Login | None = None
        self._asking: asyncio.Task[MonitorAnswer] | None = None
        self._queried: Endpoint | None = None
        self._lost_sessions = 0
        self._soon = asyncio.Event()
        self._thread = threading.Thread(target=self._main, name="replica-monitor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask_soon(self) -> None:
        """Ask a second after the last query instead of at the next regular time.

        Any thread may call it; it does not wait.
        """
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop was just closed
                loop.call_soon_threadsafe(self._soon.set)

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
                self._soon.clear()
                await self._turn()
                await self._rest(began)
        finally:
            await self._give_up()

    async def _rest(self, began: float) -> None:
        """Wait until the next query is due or requested.

        After an unanswered query, requests do not shorten the wait.
        """
        due = began + max(self._pause_s, 0.1)
        if self._asking is None and not self._lost_sessions:
            await asyncio.sleep(max(0.1, min(due, began + SOON_S) - time.monotonic()))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._soon.wait(), max(0.0, due - time.monotonic()))
        else:
            await asyncio.sleep(max(0.1, due - time.monotonic()))

    @property
    def _pause_s(self) -> float:
        every_s = self._config.monitor_s
        return min(max(every_s, MAX_PAUSE_S), every_s * 2**self._lost_sessions)

    async def _turn(self) -> None:
        if self._queried != self._endpoint():
            await self._give_up()
        if self._asking is None:
            self._queried = self._endpoint()
            self._asking = asyncio.create_task(self._query(self._queried))
        await asyncio.wait({self._asking}, timeout=self._config.connect_timeout_s + ANSWER_TIMEOUT_S)
        if not self._asking.done():
            self._failed("the primary has not answered yet; still waiting for its session")
            return
        asking, self._asking = self._asking, None
        try:
            self.known = asking.result()
        except (ReplicaError, OSError) as error:
            self._lost_sessions += self._login is not None
            self._hang_up()
            self._failed(error.message if isinstance(error, ReplicaError) else str(error))
        except Exception as error:  # noqa: BLE001  (a bug here must not end the replica: logged, counted, asked again)
            self._hang_up()
            news = self.error != repr(error)
            self._failed(repr(error))
            if news:
                self._log.error("internal error", part="monitor", error=repr(error), exc_info=True)
        else:
            self.error, self._lost_sessions = "", 0
            self._judge_clock(self.known.answer)

    def _failed(self, why: str) -> None:
        self.errors += 1
        self.error = why

    async def _give_up(self) -> None:
        """Abandon the query, because another server is in use or the monitor stops."""
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()
            await asyncio.wait({asking})
        self._lost_sessions = 0
        self._hang_up()

    async def _query(self, endpoint: Endpoint) -> MonitorAnswer:
        if self._login is None:
            self._login = await log_in(self._config, endpoint)
        needed = self._needed_file()
        answer = await self._login.run(ask_primary(needed))
        elsewhere = answer.place is not None and needed not in ("", answer.place.file)
        sizes = await self._login.run(list_binlogs()) if elsewhere else None
        if elsewhere and sizes is None:
            self._hang_up()  # a newly granted privilege takes effect at the next login
        return MonitorAnswer(answer, sizes)

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
                hint="The lag in seconds is corrected for it. Keep both machines on NTP nevertheless.",
            )
        self._clock_warned = wrong
