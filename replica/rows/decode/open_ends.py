"""The open ends of a range of the log that was cut inside a transaction: what its decoder cannot see."""

from __future__ import annotations

from typing import NamedTuple


class OpenEnds(NamedTuple):
    """The first and the last group of such a range may be incomplete.

    `rows_before`: row changes of the first group before the range. `rows_follow`: whether delivered rows of the last
    group come in another range, so that none here is the transaction's last. `committed`: the range is a part of a
    prepared XA group behind the GTID event of its XA COMMIT: the rows are delivered where they stand.
    """

    rows_before: int = 0
    rows_follow: bool = False
    committed: bool = False


WHOLE = OpenEnds()
