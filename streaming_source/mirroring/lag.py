"""The lag of a batch: how old its newest transaction is when the batch is in all targets.

In: the moment, the commit times of the last changes of the batch's tables, where the batch ends. Out: seconds; None
where no transaction is known. A batch without changes of our tables goes by the last transaction of the binlog up to
its end, whose first statement has a time. The server's clock and ours are not one: what lies in our future is 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable

    from streaming_source.offsets.offset import SourceOffset


def lag_at(now: dt.datetime, committed: Iterable[dt.datetime | None], end: SourceOffset) -> float | None:
    """Return the seconds from the newest commit to now."""
    times = [moment.timestamp() for moment in committed if moment is not None]
    if not times and end.last is not None and end.last.time:
        times = [float(end.last.time)]
    return max(0.0, now.timestamp() - max(times)) if times else None
