"""The progress of a running query, read for people: how far it is, and how far behind.

In: a query (classic or Spark Connect), or one of its progress reports. Out: a `Lag`, whose text is one line. Only
`query.lastProgress` is asked, so the answer is as old as Spark's last report: of the start of the last batch that has
ended, and of every ten seconds while nothing comes. Where that is long ago, as during a long batch, the line says so
first. "Behind" is meant to the end of the relay log; what the primary has not sent yet is not in it.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from replica.daemon.status.words import size, span
from replica.errors import ConfigError, ReplicaError
from replica.protocol.gtid import GtidPosition
from streaming_source.queries.reading_progress import progress_line

if TYPE_CHECKING:
    from collections.abc import Mapping


OLD_S: Final = 15
"""An idle query reports every ten seconds: older figures are of before a batch that runs, or a trigger that waits."""


@dataclass(frozen=True, slots=True)
class Lag:
    """Tell a query's place, as one line (`str()`) or as fields; what is not known yet, or not reported, is None.

    `position` and `head` are GTID positions: the last transaction that the last batch included, and the last in the
    relay log. `bytes_behind` is in binlog bytes, `seconds_behind` between the commits of those two.
    `transactions_behind` is the distance of their sequence numbers: the most it can be, since numbers may be left out.
    `snapshot` tells in words how far the tables are read, until they are (startingPosition=initial).
    `rows_per_second` is what the last batch read, `as_of` when it began (UTC, ISO 8601), and `age_seconds` how long ago
    that was by this machine's clock: all figures are as old. `running` is False for a query that has ended; it and
    `age_seconds` are None where a progress report was given instead of a query. `in_batch`: a batch is running now.
    """

    position: str | None = None
    head: str | None = None
    bytes_behind: int | None = None
    seconds_behind: int | None = None
    transactions_behind: int | None = None
    daemon_down_seconds: int = 0
    rows_per_second: float = 0.0
    rows_waiting: int | None = None
    data_loss: str | None = None
    snapshot: str | None = None
    batch: int | None = None
    as_of: str | None = None
    age_seconds: int | None = None
    running: bool | None = None
    in_batch: bool = False

    @property
    def caught_up(self) -> bool:
        """Whether the last batch ended at the end of the relay log."""
        return self.position is not None and self.position == self.head

    def __str__(self) -> str:
        parts = [f"{self._age()}{self._state()}", *self._warnings()]
        if self.as_of is not None:
            parts.append(f"batch {self.batch} as of {self.as_of}")
        return "; ".join(parts)

    def _age(self) -> str:
        """Return what stands before figures that are not of now."""
        if self.age_seconds is None or self.age_seconds < OLD_S:
            return ""
        why = ", before the batch that is running" if self.in_batch else ""
        return f"as of {span(self.age_seconds)} ago{why}: "

    def _state(self) -> str:
        if self.position is None and self.head is None:
            return "nothing known yet: the query has not reported any progress"
        if self.position is None or self.head is None:
            return f"at {self.position or 'an unknown position'}; the end of the relay log is not known yet"
        if self.caught_up:
            return f"caught up at {self.position}"
        distances = []
        if self.bytes_behind is not None:
            distances.append(size(self.bytes_behind))
        if self.seconds_behind is not None:
            distances.append(span(self.seconds_behind) if self.seconds_behind else "less than 1 s")
        if self.transactions_behind is not None:
            distances.append(f"at most {self.transactions_behind} transactions")
        behind = " and ".join(filter(None, [", ".join(distances[:-1]), *distances[-1:]])) or "some transactions"
        return f"{behind} behind: at {self.position} of {self.head}, reading {self.rows_per_second:.0f} rows/s"

    def _warnings(self) -> list[str]:
        found = []
        if self.snapshot is not None:
            found.append(self.snapshot)
        if self.running is False:
            found.append("the query has ended, so it falls behind from there")
        if self.daemon_down_seconds:
            found.append(f"the daemon has been down for {span(self.daemon_down_seconds)}")
        if self.rows_waiting:
            found.append(f"{self.rows_waiting} rows wait for minRowsPerTrigger or maxTriggerDelay")
        if self.data_loss:
            found.append(f"transactions were lost: {self.data_loss}")
        return found


def lag(query: Any) -> Lag:
    """Tell how far a query over a mariadb-binlog source is behind; of several such sources, of the one furthest behind.

    Args:
        query: a StreamingQuery, or a StreamingQueryProgress such as `event.progress` of a StreamingQueryListener.

    Returns:
        The query's place, as old as Spark's last progress report. Nothing but the report is asked for.

    Raises:
        ConfigError: the query has reported progress, and none of its sources is mariadb-binlog.
    """
    is_progress = hasattr(query, "numInputRows") or "sources" in getattr(query, "keys", tuple)()
    progress = query if is_progress else query.lastProgress
    running = None if is_progress else bool(query.isActive)
    if not progress:
        return Lag(running=running)
    found = [_of(source, progress, running) for source in progress["sources"]]
    in_batch = bool(running) and bool(query.status.get("isTriggerActive"))
    lags = [replace(each, in_batch=in_batch) for each in found if each is not None]
    if not lags:
        raise ConfigError(
            "the query has no mariadb-binlog source.", hint="lag() reads the progress of queries over that format."
        )
    return max(lags, key=lambda each: (each.bytes_behind or 0, each.seconds_behind or 0))


def _of(source: Mapping[str, Any], progress: Mapping[str, Any], running: bool | None) -> Lag | None:  # noqa: FBT001
    """Return the place of one source; None for other formats."""
    end, head = _offset(source["endOffset"]), _offset(source["latestOffset"])
    if end is None and head is None:
        return None
    report = head or {}
    position, last = (None if each is None else str(each["gtid"]) for each in (end, head))
    behind: int | None = report.get("bytesBehind")
    seconds: int | None = report.get("secondsBehind")
    if position is not None and position == last:
        behind, seconds = behind or 0, seconds or 0
    return Lag(
        position=position,
        head=last,
        bytes_behind=behind,
        seconds_behind=seconds,
        transactions_behind=None if position is None or last is None else _distance(position, last),
        daemon_down_seconds=int(report.get("daemonDownSeconds", 0)),
        rows_per_second=_rate(source["processedRowsPerSecond"]),
        rows_waiting=report.get("rowsWaiting"),
        data_loss=_words(report.get("dataLoss")),
        snapshot=None if report.get("snapshotProgress") is None else progress_line(report["snapshotProgress"]),
        batch=int(progress["batchId"]),
        as_of=str(progress["timestamp"]),
        age_seconds=None if running is None else _age_s(str(progress["timestamp"])),
        running=running,
    )


def _offset(text: Any) -> dict[str, Any] | None:
    """Return an offset of this source as Spark reports it, JSON text; None if it is not there, or another source's."""
    try:
        value = text if isinstance(text, dict) else json.loads(text)
    except (TypeError, ValueError):
        return None
    return value if isinstance(value, dict) and {"v", "gtid", "resume"} <= value.keys() else None


def _distance(position: str, head: str) -> int | None:
    """Return the transactions between, at most; None where a domain has begun since, whose first number is not
    known.
    """
    try:
        reached = {gtid.domain_id: gtid.seq_no for gtid in GtidPosition.parse(position)}
        last = {gtid.domain_id: gtid.seq_no for gtid in GtidPosition.parse(head)}
    except ReplicaError:
        return None
    if not last.keys() <= reached.keys():
        return None
    return sum(max(0, number - reached[domain]) for domain, number in last.items())


def _age_s(timestamp: str) -> int:
    """Return seconds since Spark's time of a report; 0 where its clock is ahead of ours."""
    return max(0, int(time.time() - datetime.fromisoformat(timestamp).timestamp()))


def _rate(value: Any) -> float:
    number = float(value or 0)
    return number if math.isfinite(number) else 0.0  # Spark divides by the time since a batch that there may not be


def _words(losses: Any) -> str | None:
    """Name the ranges of GTIDs that failOnDataLoss=false has passed over."""
    if not losses:
        return None
    return "; ".join(f"after {loss['after'] or 'the beginning'} up to {loss['upTo']}" for loss in losses)
