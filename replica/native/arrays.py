"""Addresses of arrays, for kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt


def address(array: npt.NDArray[Any]) -> int:
    """Return the address of the first byte; it is valid while the array is referenced."""
    return int(array.ctypes.data)  # __array_interface__ would describe the fields of records at each call
