"""The addresses of arrays, for kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt


def address(array: npt.NDArray[Any]) -> int:
    """Return the address of the first byte; good as long as the array is held."""
    return int(array.ctypes.data)  # the array interface would describe the fields of records each time
