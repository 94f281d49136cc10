"""The lag of a batch: how old its newest transaction is when the batch is in all targets.

In: the moment, the commit times of the last changes of the batch's tables, where the batch ends. Out: seconds; None
where no transaction is known. A batch without changes of our tables goes by the last transaction of the binlog up to
its end, whose first statement has a time. The server's clock and ours are not one: what lies in our future is 0. A
session may set its own (`SET timestamp`): no change of a table is older than the target, or than a change before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming_source.queries.commit_times import NewestCommit

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable

    from streaming_source.offsets.offset import SourceOffset


class MirrorLag:
    """One per start of a mirror."""

    def __init__(self) -> None:
        self._commits = NewestCommit()

    def at(
        self,
        now: dt.datetime,
        committed: Iterable[tuple[dt.datetime | None, dt.datetime | None]],
        end: SourceOffset,
    ) -> float | None:
        """Return the seconds from the newest commit to now.

        Args:
            now: the moment.
            committed: of each table with changes, the commit time of the last one, and when its target was made.
            end: where the batch ends.
        """
        times = [max(filter(None, (moment, made))).timestamp() for moment, made in committed if moment is not None]
        if not times and end.last is not None and end.last.time:
            times = [float(end.last.time)]
        newest = self._commits.take(times, now.timestamp())
        return None if newest is None else max(0.0, now.timestamp() - newest)
