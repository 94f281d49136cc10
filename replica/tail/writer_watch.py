"""Check at intervals whether a relay log has a writer, so that a reader knows why no changes arrive."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final

from replica.relay_log.directory.lock import lock_holder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOOK_EVERY_S: Final = 2.0


class WriterWatch:
    """Watch of a relay log's writer. Call `look` at any rate; `say` gets a sentence when the writer stops or
    returns.
    """

    def __init__(
        self, directory: Path, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._directory = directory
        self._say = say
        self._clock = clock
        self._next_s = clock()
        self._alone = False

    def look(self) -> None:
        if self._clock() < self._next_s:
            return
        self._next_s = self._clock() + LOOK_EVERY_S
        with contextlib.suppress(OSError):  # this user may not read the lock file
            alone = lock_holder(self._directory) is None
            if alone != self._alone:
                self._alone = alone
                self._say(
                    f"no process writes {self._directory} now: no changes arrive until its replica runs again"
                    if alone
                    else f"{self._directory} is written again"
                )
