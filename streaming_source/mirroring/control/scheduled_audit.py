"""Scheduled audits of a mirror (`auditEvery`), in a thread beside its query.

In: the running query, the settings of the mirror. Out: rows of the audit table, and one log line and the metrics of
each audit. An audit that fails or finds differences never stops the mirror. The thread ends with the query.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException

from replica.errors import ReplicaError
from replica.protocol.plain_text import one_line
from streaming_source.auditing.call import audit
from streaming_source.auditing.mirror.records import last_audits
from streaming_source.mirroring.control.control_table import CURRENT, mirrored_tables
from streaming_source.mirroring.control.metrics import metrics_of
from streaming_source.mirroring.settings import batch_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from streaming_source.auditing.result import AuditResult
    from streaming_source.mirroring.settings import MirrorSettings

_SHOWN = 10
_log = logging.getLogger(__name__)


def audit_beside(spark: SparkSession, query: StreamingQuery, settings: MirrorSettings, every_s: float) -> None:
    """Start the thread that audits the mirror until the query ends.

    Args:
        spark: the session of the mirror.
        query: the running query.
        settings: the settings of the mirror.
        every_s: the seconds between the end of an audit and the next one.
    """
    from pyspark import inheritable_thread_target

    def work() -> None:
        wait_s = _first_wait_s(spark, settings, every_s)
        while not _ended(query, wait_s):
            _audit(spark, query, settings)
            wait_s = every_s

    threading.Thread(target=inheritable_thread_target(spark)(work), name="mirror-audit", daemon=True).start()


def seconds_left(last: dt.datetime | None, now: dt.datetime, every_s: float) -> float:
    """Return the seconds until the next audit.

    Args:
        last: the end of the last audit; None if there is none.
        now: the current time.
        every_s: the seconds between the end of an audit and the next one.
    """
    if last is None:
        return every_s
    return min(every_s, max(0.0, every_s - (now - last).total_seconds()))


def outcome(result: AuditResult) -> tuple[int, str]:
    """Return the log level and the text of the log line for an audit."""
    wrong = [table for table in result.tables if not table.equal]
    lines = [
        f"{table.table}: {', '.join(f'{rows} {kind}' for kind, rows in table.counts.items() if rows)}"
        for table in wrong[:_SHOWN]
    ]
    more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    left = f"; left out: {', '.join(one.table for one in result.left_out[:_SHOWN])}" if result.left_out else ""
    equal = f"{len(result.tables) - len(wrong)} of {len(result.tables) + len(result.left_out)} tables are equal"
    found = f"; NOT EQUAL are {', '.join(lines)}{more}" if wrong else ""
    level = logging.ERROR if wrong else logging.WARNING if left else logging.INFO
    return level, one_line(f"audit at {result.position or 'the beginning'}: {equal}{found}{left}")


def _first_wait_s(spark: SparkSession, settings: MirrorSettings, every_s: float) -> float:
    try:
        found = last_audits(spark, settings.names.control)
        last = None if found is None else found.selectExpr("unix_micros(max(audited_at))").first()
        metrics_of(spark, settings.names.control).of_audits(spark, settings.names.control)
    except (PySparkException, Py4JError):
        return every_s
    moment = None if last is None or last[0] is None else dt.datetime.fromtimestamp(last[0] / 1_000_000, dt.UTC)
    return seconds_left(moment, dt.datetime.now(dt.UTC), every_s)


def _ended(query: StreamingQuery, wait_s: float) -> bool:
    """Wait up to `wait_s` seconds; return True if the query has ended."""
    try:
        return bool(query.awaitTermination(max(wait_s, 0.001)))
    except (StreamingQueryException, Py4JError):  # the query reports its error to the code that started it
        return True


def _audit(spark: SparkSession, query: StreamingQuery, settings: MirrorSettings) -> None:
    try:
        if all(row.state != CURRENT for row in mirrored_tables(spark, settings.names.control)):
            return  # no table has a complete snapshot
        source: dict[str, Any] = dict(batch_options(settings))
        result = audit(spark, mirror=settings.names.control, hashKeyFile=settings.hash_key_file, **source)
        _log.log(*outcome(result))
        metrics_of(spark, settings.names.control).of_audits(spark, settings.names.control)
    except (ReplicaError, PySparkException, Py4JError) as error:
        if query.isActive:
            metrics_of(spark, settings.names.control).audit_failed()
            _log.error(
                "the audit failed, and the mirror continues: %s", one_line(str(error).strip().partition("\n")[0])
            )
