"""The lag of a running query, for people: its position, and the distance to the end of the relay log.

`lag` takes a query (classic or Spark Connect) or one of its progress reports, and returns a `Lag`, whose text is one
line. It reads only `query.lastProgress`, so the result is as old as Spark's last report. Spark reports the start of the
last finished batch, and every ten seconds while the query is idle. If the report is older, as during a long batch, the
line begins with its age. The lag does not include changes that the primary has not sent yet.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from replica.daemon.status.page import size, span
from replica.errors import ConfigError, ReplicaError
from replica.protocol.gtid import GtidPosition
from replica.schema.patterns import table_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from replica.snapshot.snapshot import SnapshotProgress
# The time of a commit comes from its session's clock, and `SET timestamp` can set it decades before or after the
# commit. `NewestCommit.take` takes times in seconds since 1970, in the order of the stream, and returns the newest of
# them that is not in the future. A commit is not older than an earlier one, so a lag that is measured from this time
# is bounded.


class NewestCommit:
    """Newest commit time of one stream."""

    def __init__(self) -> None:
        self._newest: float | None = None

    def take(self, times: Iterable[float], now: float) -> float | None:
        """Add commit times, and return the newest one known; None if there is none.

        A time in the future counts as `now` and is not kept, because the clock of the server or of a session may be
        ahead.
        """
        given = list(times)
        past = [time for time in given if time <= now]
        if self._newest is not None:
            past.append(self._newest)
        self._newest = max(past, default=None)
        return now if any(time > now for time in given) else self._newest


NAMED: Final = 5
"""Most tables to name: as many as are read at once by default, and some more."""


def progress_json(progress: SnapshotProgress) -> dict[str, Any]:
    """Return the value for Spark's progress report."""
    value: dict[str, Any] = {
        "tables": progress.tables,
        "tablesDone": progress.tables_done,
        "reading": [table_text(name) for name in progress.current[:NAMED]],
        "rows": progress.rows,
        "bytes": progress.size,
        "rowsPerSecond": round(progress.rows_a_second),
        "estimatedRows": progress.estimated_rows,
    }
    if progress.seconds_left is not None:
        value["secondsLeft"] = round(progress.seconds_left)
    if progress.waits_for:
        value["waitsFor"] = progress.waits_for
    return value


def progress_line(value: dict[str, Any]) -> str:
    """Return the line for people from the JSON."""
    line = f"{value['tablesDone']} of {value['tables']} tables read, {value['rows']} rows ({size(value['bytes'])})"
    parts = [f"{line}, {value['rowsPerSecond']} rows/s"]
    if "secondsLeft" in value:
        parts.append(f"about {span(value['secondsLeft'])} left")
    if value.get("waitsFor"):
        parts.append(f"waiting: {value['waitsFor']}")
    elif value.get("reading"):
        parts.append(f"at {', '.join(value['reading'])}")
    return "; ".join(parts)


OLD_S: Final = 15
"""Seconds after which figures count as old. An idle query reports every ten seconds. Older figures are from before a
running batch, or before a trigger that waits.
"""


@dataclass(frozen=True, slots=True)
class Lag:
    """The progress of a query, as one line (`str()`) or as fields. Unknown and unreported values are None.

    Attributes:
        position: GTID position of the last transaction that the last batch included.
        head: GTID position of the last transaction in the relay log.
        bytes_behind: distance of the two in bytes of the binlog.
        seconds_behind: time between the commits of the two.
        transactions_behind: distance of their sequence numbers. The true number may be smaller, because numbers may be
            skipped.
        daemon_down_seconds: how long the daemon has been down.
        rows_per_second: rate of the last batch.
        rows_waiting: rows that wait for `minRowsPerTrigger` or `maxTriggerDelay`.
        data_loss: the transactions that the query has lost (failOnDataLoss=false), as text.
        snapshot: progress of the snapshot as text, while tables are read (startingPosition=initial).
        batch: number of the last batch.
        as_of: when the last batch began, in UTC (ISO 8601). All figures are as old.
        age_seconds: seconds since `as_of` by the local clock; None if a progress report was given.
        running: whether the query is running; None if a progress report was given.
        in_batch: whether a batch is running.
        caught_up: whether the last batch ended at the end of the relay log.
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
        """Return the prefix for figures that are old."""
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
        distance = " and ".join(filter(None, [", ".join(distances[:-1]), *distances[-1:]])) or "some transactions"
        return f"{distance} behind: at {self.position} of {self.head}, reading {self.rows_per_second:.0f} rows/s"

    def _warnings(self) -> list[str]:
        found = []
        if self.snapshot is not None:
            found.append(self.snapshot)
        if self.running is False:
            found.append("the query has ended, so its lag grows")
        if self.daemon_down_seconds:
            found.append(f"the daemon has been down for {span(self.daemon_down_seconds)}")
        if self.rows_waiting:
            found.append(f"{self.rows_waiting} rows wait for minRowsPerTrigger or maxTriggerDelay")
        if self.data_loss:
            found.append(f"transactions were lost: {self.data_loss}")
        return found


def lag(query: Any) -> Lag:
    """Return how far a query over a mariadb-binlog source lags. If it has several such sources, the one with the
    largest lag counts.

    Args:
        query: a StreamingQuery, or a StreamingQueryProgress such as `event.progress` of a StreamingQueryListener.

    Returns:
        The query's progress at the time of Spark's last progress report.

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
    """Return the progress of one source; None for other formats."""
    end, head = _offset(source["endOffset"]), _offset(source["latestOffset"])
    if end is None and head is None:
        return None
    report = head or {}
    position, last = (None if each is None else str(each["gtid"]) for each in (end, head))
    distance: int | None = report.get("bytesBehind")
    seconds: int | None = report.get("secondsBehind")
    if position is not None and position == last:
        distance, seconds = distance or 0, seconds or 0
    return Lag(
        position=position,
        head=last,
        bytes_behind=distance,
        seconds_behind=seconds,
        transactions_behind=None if position is None or last is None else _distance(position, last),
        daemon_down_seconds=int(report.get("daemonDownSeconds", 0)),
        rows_per_second=_rate(source["processedRowsPerSecond"]),
        rows_waiting=report.get("rowsWaiting"),
        data_loss=_losses_text(report.get("dataLoss")),
        snapshot=None if report.get("snapshotProgress") is None else progress_line(report["snapshotProgress"]),
        batch=int(progress["batchId"]),
        as_of=str(progress["timestamp"]),
        age_seconds=None if running is None else _age_s(str(progress["timestamp"])),
        running=running,
    )


def _offset(text: Any) -> dict[str, Any] | None:
    """Return an offset of this source from the JSON text of Spark's report.

    Returns:
        None if the text is absent, or is an offset of another source.
    """
    try:
        value = text if isinstance(text, dict) else json.loads(text)
    except (TypeError, ValueError):
        return None
    return value if isinstance(value, dict) and {"v", "gtid", "resume"} <= value.keys() else None


def _distance(position: str, head: str) -> int | None:
    """Return the most transactions between two positions.

    Returns:
        None if a domain has begun in between, because its first number is unknown.
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
    """Return the seconds since Spark's time of a report; 0 if its clock is ahead of the local one."""
    return max(0, int(time.time() - datetime.fromisoformat(timestamp).timestamp()))


def _rate(value: Any) -> float:
    number = float(value or 0)
    return number if math.isfinite(number) else 0.0  # Spark may divide by the time since a batch that does not exist


def _losses_text(losses: Any) -> str | None:
    """Return the ranges of GTIDs that failOnDataLoss=false has skipped, as text."""
    if not losses:
        return None
    return "; ".join(f"after {loss['after'] or 'the beginning'} up to {loss['upTo']}" for loss in losses)
