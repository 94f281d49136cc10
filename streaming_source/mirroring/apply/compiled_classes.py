"""Larger cache for the compiled classes of Spark's query plans.

In: the session in which a mirror is started. Out: a larger limit, which Spark reads when it compiles its first class.
Spark keeps 100 classes for a whole JVM, and the MERGEs of three targets have as many. Without a larger limit they are
compiled again in each micro-batch. A limit that the user has set stays. If Spark has already compiled a class, the
mirror only logs a warning.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTING: Final = "spark.sql.codegen.cache.maxEntries"
CLASSES: Final = 4_000
"""Classes of a hundred targets; each takes some ten kilobytes."""

_log = logging.getLogger(__name__)


def keep_compiled_classes(spark: SparkSession) -> None:
    """Let the JVM of a session keep the classes of many targets.

    Spark accepts the setting only at the start of a session, because it reads it once, at its first compilation
    (CodeGenerator.cache in Spark's sql/catalyst). Before that, it can be set in the session's internal configuration.
    """
    if spark.conf.get(SETTING, None) is not None:
        return
    java: Any = spark._jvm  # noqa: SLF001  (PySpark has no API for it)
    if java.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME().getCount():
        _log.warning(
            "this session keeps few compiled classes, so the plans of many targets are compiled again in each batch: "
            "start the session with %s=%d, or call mirror() before any other query",
            SETTING,
            CLASSES,
        )
        return
    spark._jsparkSession.sessionState().conf().setConfString(SETTING, str(CLASSES))  # noqa: SLF001
    # The first compilation has to happen here, because one in another thread or session would read another limit.
    spark.range(1).where("id >= 0").count()
