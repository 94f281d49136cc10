"""The monitor asks the primary how far it is, every few seconds, over a connection of its own in a thread of its own.

In: the configuration, and which server the replica uses. Out: `known`, the newest answer; `error`, why there is none
newer. The receiving path shares nothing with it: a primary that is slow to answer, or a login that costs a tenth of a
second, makes no acknowledgement late.

A question that is not answered is not asked again beside it: a server that hangs keeps the session of each that was
abandoned, until no one can log in. One session waits, and after one that was given up the next comes later and later.
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
"""Four short questions."""
CLOCK_WARNING_S = 1.0
"""An offset that people should know about: the logs of the two machines will not line up."""
STOP_TIMEOUT_S = 3.0
SOON_S = 1.0
"""Between two questions where the second is to tell whether all is here: no load, and no one waits longer to know."""
MAX_PAUSE_S = 600.0
"""Between two sessions that a hanging server keeps: half a dozen an hour do no harm."""


@dataclass(frozen=True, slots=True)
class Known:
    """An answer, and the sizes of the binlog files where they were needed and may be seen."""

    answer: PrimaryAnswer
    binlogs: tuple[ListedBinlog, ...] | None


class Monitor:
    """The thread that asks; `start` it; `known` and `error` may be read by any thread.

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
        self._asking: asyncio.Task[Known] | None = None
        self._asked: Endpoint | None = None
        self._lost_sessions = 0
        self._soon = asyncio.Event()
        self._thread = threading.Thread(target=self._main, name="replica-monitor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask_soon(self) -> None:
        """Ask a second after the last question, and not at the next regular time. Any thread; does not wait."""
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
        """Wait until the next question is due, or wanted soon; one that was not answered is not hurried."""
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
        if self._asked != self._endpoint():
            await self._give_up()
        if self._asking is None:
            self._asked = self._endpoint()
            self._asking = asyncio.create_task(self._ask(self._asked))
        await asyncio.wait({self._asking}, timeout=self._config.connect_timeout_s + ANSWER_TIMEOUT_S)
        if not self._asking.done():
            self._failed("the primary has not answered yet; its session is waited for")
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
        """Give up the question: another server is in use now, or we stop."""
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()
            await asyncio.wait({asking})
        self._lost_sessions = 0
        self._hang_up()

    async def _ask(self, endpoint: Endpoint) -> Known:
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
