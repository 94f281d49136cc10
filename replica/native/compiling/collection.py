"""Python's garbage collector, held back while much is made that stays."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def without_collection() -> Iterator[None]:
    """Hold the collector back: importing numba and loading kernels makes a million objects that all stay, and each walk
    over them finds nothing. It was a tenth of the CPU time of a process's start.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
