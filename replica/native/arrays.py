"""Where arrays lie, for kernels, which take addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt


def address(array: npt.NDArray[Any]) -> int:
    """Of the first byte; good as long as someone holds the array."""
    return int(array.__array_interface__["data"][0])
