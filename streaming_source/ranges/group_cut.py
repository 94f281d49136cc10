"""The end of a batch inside a transaction that is over the limits by itself.

In: the places where the transaction can be cut, as `replica.rows.decode.row_index` finds them, and the ordinal that the
batch begins at. Out: the ordinal that it ends before. It holds one row change at least, not more selected ones than
allowed, and not more bytes, except between two neighbouring places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from replica.rows.decode.row_index import RowIndex

    Ints = npt.NDArray[np.int64]


class GroupCut:
    """The cuts of one transaction: what lies before each place where it can be cut, its begin and end among them."""

    def __init__(self, index: RowIndex) -> None:
        self._rows = _between(0, index.rows, index.total_rows)
        self._selected = _between(0, index.selected, index.total_selected)
        self._bytes = _between(0, index.offsets, index.size)

    def end(self, lower: int, *, max_bytes: int, max_rows: int | None) -> int | None:
        """Return where a batch ends that begins at the row change with ordinal `lower`; None where all that is left
        fits.
        """
        begin = self._place(lower)
        total = int(self._selected[-1])
        done = self.selected_before(lower)
        if total == done:
            return None
        fitting = int(np.searchsorted(self._bytes, self._bytes[begin] + max_bytes, side="right")) - 1
        upper = int(self._rows[max(fitting, begin + 1)])
        if max_rows is not None and total - done > max_rows:
            place = int(np.searchsorted(self._selected, done + max_rows, side="right")) - 1
            over = int(self._rows[place])
            if self._pure(place):
                over += done + max_rows - int(self._selected[place])
            upper = min(upper, max(over, lower + max_rows))  # so many rows hold no more selected ones
        return upper if self.selected_before(upper) < total else None

    def selected_before(self, ordinal: int) -> int:
        """Count selected row changes with a lower ordinal; where other tables' stand between, those before the last
        place.
        """
        if ordinal >= self._rows[-1]:
            return int(self._selected[-1])
        place = self._place(ordinal)
        return int(self._selected[place]) + (ordinal - int(self._rows[place]) if self._pure(place) else 0)

    def share_before(self, ordinal: int) -> float:
        """Return the part of the transaction's bytes before a row change, from 0 to 1, as if all rows were alike."""
        return float(np.interp(ordinal, self._rows, self._bytes) / self._bytes[-1])

    def _pure(self, place: int) -> bool:
        """Tell whether all rows between a place and the next one are selected."""
        return bool(self._rows[place + 1] - self._rows[place] == self._selected[place + 1] - self._selected[place])

    def _place(self, ordinal: int) -> int:
        """Return the last place before the row change, but not the end."""
        found = int(np.searchsorted(self._rows, ordinal, side="right")) - 1
        return min(found, len(self._rows) - 2)


def _between(first: int, values: Ints, last: int) -> Ints:
    return np.concatenate(([first], values, [last])).astype(np.int64)
