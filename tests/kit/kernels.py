"""Kernels as a program has them before they are compiled: interpreted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.native.compile import KERNELS
from replica.native.compiling.interpreted import interpreted

if TYPE_CHECKING:
    import pytest


def interpret_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all kernels of the modules imported so far interpreted, until the test ends."""
    for kernel in KERNELS:
        monkeypatch.setattr(kernel, "_run", interpreted(kernel))
