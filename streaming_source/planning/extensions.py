"""Count how often a run that ends by itself (Trigger.AvailableNow) goes on behind its end, and for which tables.

In: the tables whose rows can only be had as of a later position than the run's end, because a statement up to there or
behind it changed them or gave their names to others. Out: whether the run goes on to a later one. There it may meet
more such statements: on a server that swaps tables all day it would never end. What is left is read by the next run.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

    from replica.schema.known_tables import TableName

MOST: Final = 3
"""The number of times that a run goes on for one table. Once is enough where nothing more happens to it."""


class Extensions:
    """One a run."""

    def __init__(self) -> None:
        self._times: Counter[TableName] = Counter()

    def allow(self, held_back: Collection[TableName], left: Collection[TableName]) -> bool:
        """Tell whether the run goes on, and count it.

        Args:
            held_back: the tables that wait for a later position.
            left: all tables that are not delivered as a whole. While others than those that wait are among them, it
                goes on: what they wait for may lie behind the end.
        """
        if set(left) <= set(held_back) and all(self._times[name] >= MOST for name in held_back):
            return False
        self._times.update(held_back)
        return True
