"""Metrics of a mirror in Spark's metrics system, and its lag.

In: the rows of the control table after each micro-batch, and the last audit of each table. Out: gauges of the driver,
which Spark's sinks report (`/metrics/prometheus` and `/metrics/json` of its UI, JMX, Graphite). The gauges exist as
long as the Spark application; a mirror that starts again in it reuses them.
`MirrorLag` measures the lag.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from streaming_source.auditing.mirror.records import DIFFERENT, EQUAL, LEFT_OUT, NOT_REPAIRED, REPAIRED, last_audits
from streaming_source.mirroring.control.control_table import CURRENT, DROPPED, FAILED, READING
from streaming_source.sinks.query_lag import NewestCommit

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Mapping

    from pyspark.sql import SparkSession

    from streaming_source.mirroring.control.control_table import ControlRow
    from streaming_source.offsets.offset import SourceOffset

METRICS: Final = (
    ("tables_current", "tables whose targets equal the server's tables at the position"),
    ("tables_reading", "tables whose snapshot is running"),
    ("tables_failed", "tables that are suspended"),
    ("tables_dropped", "tables that were dropped on the server"),
    ("lag_seconds", "lag of the newest change in the targets, in seconds, at the last write; -1 if it is not known"),
    ("audit_tables_equal", "tables that their last audit found equal"),
    ("audit_tables_not_equal", "tables that their last audit found not equal, and that were not repaired since"),
    ("audit_tables_repaired", "tables that differed and were repaired since"),
    ("audit_tables_left_out", "tables that the last audit left out"),
    ("audit_last_seconds", "when the last audit of all tables ended, in seconds since 1970; 0 if there was none"),
    ("audit_failures", "scheduled audits that failed since the last completed one"),
)
"""Name and meaning of each metric."""
_STATES: Final = {CURRENT: "current", READING: "reading", FAILED: "failed", DROPPED: "dropped"}
_VERDICTS: Final = {
    EQUAL: "equal",
    DIFFERENT: "not_equal",
    NOT_REPAIRED: "not_equal",
    REPAIRED: "repaired",
    LEFT_OUT: "left_out",
}


_made: dict[tuple[str, str], MirrorMetrics] = {}


class MirrorMetrics:
    """Gauges of one mirror. Spark reads them at any time, so each one is set in one step."""

    def __init__(self, spark: SparkSession, control: str) -> None:
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001  (PySpark has no API for metrics)
        context = spark.sparkContext._jsc.sc()  # noqa: SLF001
        prefix = metric_prefix(control)
        self._gauges = {name: context.doubleAccumulator() for name, _ in METRICS}
        values = jvm.java.util.HashMap()
        for name, gauge in self._gauges.items():
            values.put(f"{prefix}.{name}", gauge)
        source = getattr(jvm.org.apache.spark.metrics.source, "DoubleAccumulatorSource$")
        getattr(source, "MODULE$").register(context, jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(values))

    def of_tables(self, rows: Iterable[ControlRow]) -> None:
        """Set the gauges of the tables from the control table."""
        rows = list(rows)
        states = Counter(_STATES[row.state] for row in rows)
        lags = [row.lag for row in rows if row.lag is not None]
        values = {f"tables_{state}": float(states[state]) for state in _STATES.values()}
        self._set(values | {"lag_seconds": max(lags, default=-1.0)})

    def of_audits(self, spark: SparkSession, control: str) -> None:
        """Set the gauges of the audits from the audit table."""
        found = last_audits(spark, control)
        if found is None:
            return
        rows = found.selectExpr("audit", "unix_micros(audited_at) AS at").collect()
        verdicts = Counter(_VERDICTS[row["audit"]] for row in rows)
        ended = max((row["at"] for row in rows), default=0) / 1_000_000
        values = {f"audit_tables_{verdict}": float(verdicts[verdict]) for verdict in set(_VERDICTS.values())}
        self._set(values | {"audit_last_seconds": ended, "audit_failures": 0.0})

    def audit_failed(self) -> None:
        """Count an audit that ended with an error."""
        self._gauges["audit_failures"].add(1.0)

    def _set(self, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._gauges[name].setValue(float(value))


def metrics_of(spark: SparkSession, control: str) -> MirrorMetrics:
    """Return the metrics of the mirror with this control table; there is one object for each Spark application."""
    key = (str(spark.sparkContext.applicationId), control)
    if key not in _made:
        _made[key] = MirrorMetrics(spark, control)
    return _made[key]


def metric_prefix(control: str) -> str:
    """Return the prefix of a mirror's metric names: its control table, with only characters that all sinks accept."""
    return "mirror." + re.sub(r"\W+", "_", control).strip("_")


class MirrorLag:
    """Lag of a mirror; one for each start.

    The lag of a micro-batch is the age of its newest transaction when all targets have the micro-batch. If the
    micro-batch has no changes of mirrored tables, the newest transaction is the last one of the binlog before the end
    of the micro-batch.

    The clocks of server and driver may differ: a commit time in the driver's future counts as the current time. A
    session may set its own time (`SET timestamp`). So a change that seems older than the target, or than an earlier
    change, counts as equally old.
    """

    def __init__(self) -> None:
        self._commits = NewestCommit()

    def at(
        self,
        now: dt.datetime,
        committed: Iterable[tuple[dt.datetime | None, dt.datetime | None]],
        end: SourceOffset,
    ) -> float | None:
        """Return the seconds from the newest commit to now; None if no commit is known.

        Args:
            now: the current time.
            committed: for each table with changes, the commit time of its last change, and the creation time of its
                target.
            end: the end of the micro-batch.
        """
        times = [max(filter(None, (moment, made))).timestamp() for moment, made in committed if moment is not None]
        if not times and end.last is not None and end.last.time:
            times = [float(end.last.time)]
        newest = self._commits.take(times, now.timestamp())
        return None if newest is None else max(0.0, now.timestamp() - newest)
