"""Background compilation: one child process compiles the missing kernels, while others wait or interpret.

A call of a kernel that is not in the cache starts the child. The child outlives this process. It compiles the missing
kernels that this process may need, on all processors, once for all processes. An interactive program, and a query with
little to read, may interpret kernels meanwhile, so that the first rows come at once. Other callers wait for the child:
compiling in this process would not be faster.
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
"""Bytes to read at once while kernels are interpreted: one or two hundred rows, some hundredths of a second."""
LOOK_EVERY_S: Final = 0.05
"""Seconds between two checks for a kernel in the cache; one check takes a fifth of a millisecond."""
_log: Final = logging.getLogger("replica")


class Compiling:
    """The child process that compiles, for this process."""

    def __init__(self) -> None:
        self.interpret = False
        """Whether kernels are interpreted while the child runs."""
        self.others: set[str] = set()
        """Modules whose kernels other processes will need. The child compiles them too, once it runs for a kernel of
        this process.
        """
        self._child: subprocess.Popen[bytes] | None = None
        self._given: set[str] = set()

    @property
    def at_work(self) -> bool:
        """Whether the child is still running."""
        return self._child is not None and self._child.poll() is None

    @property
    def interprets(self) -> bool:
        """Whether kernels without machine code are interpreted now, so that work should come in small pieces."""
        return self.interpret and self.at_work

    def most_bytes(self, limit: int) -> int:
        """Return the bytes to read at once now; `limit` applies with compiled kernels."""
        return min(limit, INTERPRETED_BYTES) if self.interprets else limit

    def begin(self, kernels: Iterable[Kernel], cache: str) -> None:
        """Start a child that compiles the kernels missing in the cache, and log it.

        A module is given to a child once. If the child fails, the process that calls the kernel compiles it.
        """
        if self.at_work:
            return
        missing = [one for one in kernels if one.py_func.__module__ not in self._given and not one.is_cached()]
        if not missing:
            return
        modules = sorted({one.py_func.__module__ for one in missing} | self.others)
        self._given.update(modules)
        meanwhile = "the first rows are slow" if self.interpret else "this takes up to half a minute"
        many = f"{len(modules)} module{'s' if len(modules) > 1 else ''}"
        _log.warning("compiling the kernels of %s once (%s); they are cached in %s", many, meanwhile, cache)
        path = os.pathsep.join(one or "." for one in sys.path)
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "replica.native.warm", "--only", *modules],
                env=os.environ | {"PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C ends only this process, and the next start finds the compiled kernels
            )
        except OSError as error:
            _log.warning("cannot start the process that compiles kernels: %s", error)

    def wait_for(self, is_there: Callable[[], bool]) -> None:
        """Wait until a kernel is in the cache, or the child has ended."""
        while self.at_work and not is_there():
            time.sleep(LOOK_EVERY_S)


COMPILING: Final = Compiling()
