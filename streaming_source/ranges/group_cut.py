"""The end of a batch inside a transaction that alone exceeds the limits.

`GroupCut.end` takes the ordinal at which the batch begins, and returns the ordinal before which it ends. It uses the
places where the transaction can be cut, as `replica.rows.decode.keys.row_index` finds them. The batch has at least one
row change and at most `max_rows` selected ones. It exceeds `max_bytes` only if two adjacent places are further apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from replica.rows.decode.keys.row_index import RowIndex

    Ints = npt.NDArray[np.int64]


class GroupCut:
    """The places where one transaction can be cut, with its begin and end, and the counts before each place."""

    def __init__(self, index: RowIndex) -> None:
        self._rows = _between(0, index.rows, index.total_rows)
        self._selected = _between(0, index.selected, index.total_selected)
        self._bytes = _between(0, index.offsets, index.size)

    def end(self, lower: int, *, max_bytes: int, max_rows: int | None) -> int | None:
        """Return the end of a batch that begins at the row change with ordinal `lower`; None if the rest fits."""
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
            upper = min(upper, max(over, lower + max_rows))  # so many rows have no more selected ones
        return upper if self.selected_before(upper) < total else None

    def selected_before(self, ordinal: int) -> int:
        """Count selected row changes with a lower ordinal. If rows of other tables lie between, count those before the
        last place.
        """
        if ordinal >= self._rows[-1]:
            return int(self._selected[-1])
        place = self._place(ordinal)
        return int(self._selected[place]) + (ordinal - int(self._rows[place]) if self._pure(place) else 0)

    def share_before(self, ordinal: int) -> float:
        """Return the fraction of the transaction's bytes before a row change, from 0 to 1, as if all rows had the same
        size.
        """
        return float(np.interp(ordinal, self._rows, self._bytes) / self._bytes[-1])

    def _pure(self, place: int) -> bool:
        """Return True if all rows between a place and the next one are selected."""
        return bool(self._rows[place + 1] - self._rows[place] == self._selected[place + 1] - self._selected[place])

    def _place(self, ordinal: int) -> int:
        """Return the last place before the row change, except for the end."""
        found = int(np.searchsorted(self._rows, ordinal, side="right")) - 1
        return min(found, len(self._rows) - 2)


def _between(first: int, values: Ints, last: int) -> Ints:
    return np.concatenate(([first], values, [last])).astype(np.int64)
