"""The time while kernels are not compiled: one process compiles what is missing, others wait or go on slowly.

In: a kernel that is called and is not in the cache. The compiling process is a child that outlives us: it does what is
missing of the kernels that this process may need, on all processors, once for all processes. A program for people, and
a query that has little to read, may have kernels interpreted meanwhile, so that the first rows come at once; other
callers of a kernel wait for it, which compiling in this process would not shorten.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from replica.native.compile import Kernel

INTERPRETED_BYTES: Final = 32 << 10
"""How much is read in one piece while kernels are interpreted: a hundred rows or two, some hundredths of a second."""
LOOK_EVERY_S: Final = 0.05
"""How often a process that waits looks for its kernel: reading the cache's index takes a fifth of a millisecond."""
_log: Final = logging.getLogger("replica")


class Compiling:
    """The child that compiles, for this process."""

    def __init__(self) -> None:
        self.interpret = False
        """Whether kernels are interpreted while it works."""
        self.others: set[str] = set()
        """Modules with kernels that other processes will ask for: compiled with ours, where one of ours is missing."""
        self._child: subprocess.Popen[bytes] | None = None
        self._given: set[str] = set()

    @property
    def at_work(self) -> bool:
        """Whether it has not ended yet."""
        return self._child is not None and self._child.poll() is None

    @property
    def interprets(self) -> bool:
        """Whether kernels that are not compiled are interpreted now, and work should come in small pieces."""
        return self.interpret and self.at_work

    def most_bytes(self, limit: int) -> int:
        """Return how much to read in one piece now, where as much as `limit` is read with compiled kernels."""
        return min(limit, INTERPRETED_BYTES) if self.interprets else limit

    def begin(self, kernels: Iterable[Kernel], cache: str) -> None:
        """Start a child that compiles what the cache lacks, and say so. A module is given to a child once: what that
        could not compile, the process that calls it compiles.
        """
        if self.at_work:
            return
        missing = [one for one in kernels if one.py_func.__module__ not in self._given and not one.is_cached()]
        if not missing:
            return
        modules = sorted({one.py_func.__module__ for one in missing} | self.others)
        self._given.update(modules)
        meanwhile = "the first rows come slowly" if self.interpret else "which takes up to half a minute"
        many = f"{len(modules)} module{'s' if len(modules) > 1 else ''}"
        _log.warning("compiling the kernels of %s, once, %s; kept in %s", many, meanwhile, cache)
        path = os.pathsep.join(one or "." for one in sys.path)
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "replica.native.warm", "--only", *modules],
                env=os.environ | {"PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C ends us, and the next start finds what was compiled
            )
        except OSError as error:
            _log.warning("no process can be started that compiles kernels: %s", error)

    def wait_for(self, is_there: Callable[[], bool]) -> None:
        """Wait until a kernel is in the cache, or no one works on it any more."""
        while self.at_work and not is_there():
            time.sleep(LOOK_EVERY_S)


COMPILING: Final = Compiling()
