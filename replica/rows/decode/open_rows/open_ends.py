"""Open ends of a range that begins or ends inside a transaction: facts that the range itself does not show."""

from __future__ import annotations

from typing import NamedTuple


class OpenEnds(NamedTuple):
    """Open ends of a range, whose first and last group may be incomplete.

    Attributes:
        rows_before: Row changes of the first group before the range.
        rows_follow: True if another range has delivered rows of the last group, so that no row here is the
            transaction's last.
        committed: True if the range is a part of a prepared XA group, after the GTID event of its XA COMMIT. Its rows
            are delivered at their place in the range.
    """

    rows_before: int = 0
    rows_follow: bool = False
    committed: bool = False


WHOLE = OpenEnds()
