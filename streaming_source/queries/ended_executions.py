"""The jobs of SQL executions that are over: Spark 4.2 keeps some for ever, and with them their plans.

In: the session of a query, between two of its micro-batches. Out: nothing; Spark's scheduler forgets what it kept.
DAGScheduler remembers the jobs of each execution until that ends (activeQueryToJobs, cleanupQueryJobs). Commands of
Delta start jobs in the name of an execution that has ended just before, which are then never forgotten: each holds its
plan and the table's snapshot, some 20 MB for a batch of MERGEs into ten tables, so that a driver of 1 GB ended after
thirty batches. Seen with Spark 4.2.1 and Delta 4.4.0.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


def forget_ended(spark: SparkSession) -> int:
    """Let the scheduler forget the jobs of all SQL executions that have ended; return of how many it kept some.

    A Spark whose scheduler keeps no such list, or another one, is left alone, and so is the server of Spark Connect.
    """
    if getattr(spark, "_jvm", None) is None:
        return 0
    try:
        # An execution that goes on is known by its id, to every thread of the JVM.
        executions = spark._jvm.org.apache.spark.sql.execution.SQLExecution  # noqa: SLF001
        scheduler = spark.sparkContext._jsc.sc().dagScheduler()  # noqa: SLF001  (there is no public way)
        kept = [int(number) for number in scheduler.activeQueryToJobs().keySet().toArray()]
        ended = [number for number in kept if executions.getQueryExecution(number) is None]
        for number in ended:
            scheduler.cleanupQueryJobs(number)
    except (Py4JError, TypeError) as error:  # a name that is not there, or is something else
        _log.debug("Spark's scheduler could not be asked for the executions that it keeps: %s", type(error).__name__)
        return 0
    return len(ended)
