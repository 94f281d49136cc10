"""The jobs of ended SQL executions, of which Spark 4.2 keeps some forever, with their plans.

`forget_ended` runs between two micro-batches of a query and makes Spark's scheduler drop them. DAGScheduler keeps the
jobs of each execution until that ends (activeQueryToJobs, cleanupQueryJobs). Commands of Delta start jobs for an
execution that has just ended, and these jobs are never dropped. Each holds its plan and the table's snapshot: some 20
MB for a batch of MERGEs into ten tables. A driver of 1 GB fails after thirty such batches (Spark 4.2.1, Delta 4.4.0).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


def forget_ended(spark: SparkSession) -> int:
    """Make the scheduler drop the jobs of all ended SQL executions; return the number of these executions.

    It changes nothing in a Spark whose scheduler has no such list or another one, or on the server of Spark Connect.
    """
    if getattr(spark, "_jvm", None) is None:
        return 0
    try:
        # Every thread of the JVM can look up a running execution by its id.
        executions = spark._jvm.org.apache.spark.sql.execution.SQLExecution  # noqa: SLF001
        scheduler = spark.sparkContext._jsc.sc().dagScheduler()  # noqa: SLF001  (there is no public API)
        kept = [int(number) for number in scheduler.activeQueryToJobs().keySet().toArray()]
        ended = [number for number in kept if executions.getQueryExecution(number) is None]
        for number in ended:
            scheduler.cleanupQueryJobs(number)
    except (Py4JError, TypeError) as error:  # a name that does not exist, or has another type
        _log.debug("Spark's scheduler could not be asked for the executions that it keeps: %s", type(error).__name__)
        return 0
    return len(ended)
