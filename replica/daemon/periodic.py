"""Work that is done again and again beside the stream, in a thread of its own.

In: a function, and how often. Out: nothing but what the function does. An error of ours, or of the disk, is logged when
its words change, not at every turn; any other is a bug, is logged with its traceback, and the turns go on: a replica
does not stop because a figure of its status cannot be made.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from replica.errors import ReplicaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import FilteringBoundLogger

JOIN_TIMEOUT_S = 5.0
"""One turn takes milliseconds; a disk that hangs must not keep the daemon from ending."""


class Periodic:
    """One such thread: `start` it, `stop` it. `errors` counts the turns that failed."""

    def __init__(self, name: str, every_s: float, work: Callable[[], None], log: FilteringBoundLogger) -> None:
        self.errors = 0
        self.name = name
        self._every_s = every_s
        self._work = work
        self._log = log
        self._said = ""
        self._wanted = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=f"replica-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop it: no turn begins after this."""
        self._ended = True
        self._wanted.set()
        if self._thread.is_alive():
            self._thread.join(JOIN_TIMEOUT_S)

    def _run(self) -> None:
        while not self._ended:
            try:
                self._work()
                self._said = ""
            except (ReplicaError, OSError) as error:
                self._failed(str(error), trace=False)
            except Exception as error:  # noqa: BLE001  (said above: logged, counted, tried again)
                self._failed(repr(error), trace=True)
            self._wanted.wait(self._every_s)
            self._wanted.clear()

    def _failed(self, words: str, *, trace: bool) -> None:
        self.errors += 1
        if words != self._said:
            self._said = words
            self._log.error("internal error" if trace else "failed turn", part=self.name, error=words, exc_info=trace)
