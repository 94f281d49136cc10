"""Room for the compiled classes of a mirror's plans: Spark keeps 100 for all that its JVM runs, and the MERGEs of three
targets have as many, which are then made and compiled again in each batch.

In: the session that a mirror is started in. Out: how many classes its JVM keeps, settled with the first one that is
compiled. What the user has set stays; where something was compiled before, all that can be done is to say so.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTING: Final = "spark.sql.codegen.cache.maxEntries"
CLASSES: Final = 4_000
"""Those of a hundred targets; a class takes some ten kilobytes."""

_log = logging.getLogger(__name__)


def keep_compiled_classes(spark: SparkSession) -> None:
    """Let the JVM of a session keep the classes of many targets.

    The setting is one that only the start of a session takes, because Spark looks at it once, as it compiles for the
    first time (CodeGenerator.cache in Spark's sql/catalyst). Before that it can be put into the session's own settings.
    """
    if spark.conf.get(SETTING, None) is not None:
        return
    java: Any = spark._jvm  # noqa: SLF001  (Spark's Python has no way to it)
    if java.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME().getCount():
        _log.warning(
            "this session keeps few compiled classes, so that the plans of many targets are compiled again in each "
            "batch: start it with %s=%d, or call mirror() before anything else is run in it",
            SETTING,
            CLASSES,
        )
        return
    spark._jsparkSession.sessionState().conf().setConfString(SETTING, str(CLASSES))  # noqa: SLF001
    # Compiles for the first time here, as no thread or session of someone else's may.
    spark.range(1).where("id >= 0").count()
