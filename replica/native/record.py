"""Int64 records: rows of a C-contiguous int64 matrix, shared by kernels and numpy.

Kernels address a field as `record + FIELD` with FIELD in bytes, numpy as a column of the matrix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

WORD: Final = 8


def column_of(records: npt.NDArray[np.int64], field: int) -> npt.NDArray[np.int64]:
    """One field of all records, as a view."""
    return records[:, field // WORD]
