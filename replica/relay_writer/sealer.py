"""Seal complete relay files in one background thread, in their order, and keeps what went wrong until it is asked.

A sealed file says that those before it are on disk as well: after one that failed, none is sealed any more.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_WAITING = 2  # files that may wait for the disk at a time: more, and the writer waits too


class Sealer:
    """The background thread. Methods are called by the writer's thread. `submit` and `finish` raise the OSError that a
    seal ended with.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1, "relay-sealer")
        self._waiting: deque[Future[None]] = deque()
        self._failed = False

    def submit(self, seal: Callable[[bool], None]) -> None:
        self._waiting.append(self._threads.submit(self._run, seal))
        self._wait(MAX_WAITING)

    def finish(self) -> None:
        """Wait until every file is sealed."""
        self._wait(0)

    def abandon(self) -> None:
        """Wait too, but for the sake of the descriptors: recovery looks at what the seals left."""
        while self._waiting:
            self._waiting.popleft().exception()
        self._failed = False

    def close(self) -> None:
        self.abandon()
        self._threads.shutdown()

    def _run(self, seal: Callable[[bool], None]) -> None:
        wanted, self._failed = not self._failed, True
        seal(wanted)
        self._failed = not wanted

    def _wait(self, allowed: int) -> None:
        while len(self._waiting) > allowed or (self._waiting and self._waiting[0].done()):
            self._waiting.popleft().result()
