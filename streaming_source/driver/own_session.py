"""Session of a mirror or an audit: the user's session, without settings that change the meaning of SQL and values.

`own_session` clones the user's session, and `pin` changes a session that no one else uses, such as the one that Spark
clones for a streaming query. Both apply `PINNED` and unset every setting of `RESET`, except those in `KEPT`. Catalogs,
credentials, functions and settings of performance stay the user's.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Pinned(NamedTuple):
    """Setting that this project fixes.

    Attributes:
        reason: the effect of another value.
    """

    name: str
    value: str
    reason: str


class Reset(NamedTuple):
    """Family of settings that get Spark's defaults.

    Attributes:
        prefix: how the names of the settings begin.
        reason: the effect of other values.
    """

    prefix: str
    reason: str


PINNED: Final = (
    Pinned("spark.sql.variable.substitute", "false", "`${env:HOME}` in a name or a text would be replaced"),
    Pinned("spark.sql.ansi.enabled", "true", "a value that does not fit its type would become NULL, or wrap around"),
    Pinned("spark.sql.storeAssignmentPolicy", "ANSI", "a value that does not fit its column would become NULL"),
    Pinned(
        "spark.sql.session.timeZone", "UTC", "times without a zone in filters and masks would depend on the machine"
    ),
    Pinned(
        "spark.sql.timestampType", "TIMESTAMP_LTZ", "TIMESTAMP columns would lose their zone, and an hour each autumn"
    ),
    Pinned("spark.sql.caseSensitive", "false", "columns would not be found that differ in case from the table's"),
    Pinned("spark.sql.mapKeyDedupPolicy", "EXCEPTION", "a repeated key would be dropped"),
    Pinned("spark.sql.decimalOperations.allowPrecisionLoss", "true", "filters that compute with decimals would differ"),
    Pinned("spark.sql.sources.partitionOverwriteMode", "STATIC", "a target that is created again would keep old rows"),
    Pinned(
        "spark.sql.sources.partitionColumnTypeInference.enabled",
        "true",
        "the folders of Parquet batches would get other names",
    ),
    Pinned("spark.sql.files.ignoreMissingFiles", "false", "rows of removed files would be missing without an error"),
    Pinned("spark.sql.files.ignoreCorruptFiles", "false", "rows of damaged files would be missing without an error"),
    Pinned("spark.sql.runSQLOnFiles", "true", "targets in folders could not be named"),
    Pinned("spark.sql.crossJoin.enabled", "true", "a value could not be given to all rows"),
    Pinned("spark.sql.retainGroupColumns", "true", "grouped rows would lack their keys"),
    Pinned("spark.sql.groupByOrdinal", "true", "expressions would be grouped otherwise"),
    Pinned("spark.sql.orderByOrdinal", "true", "expressions would be sorted otherwise"),
    Pinned("spark.sql.optimizer.excludedRules", "", "plans would lack a rule that they need"),
    Pinned("spark.sql.datetime.java8API.enabled", "false", "times would reach the driver as other objects"),
    Pinned("spark.databricks.delta.schema.autoMerge.enabled", "false", "a write could add columns to a target"),
)
"""Settings with a fixed value: those that change the meaning of a name, a text or a value."""

RESET: Final = (
    Reset("spark.sql.legacy.", "rules of older versions: for dates, decimals, identifiers, comparison, files"),
    Reset("spark.sql.parser.", "a name in backquotes would be a pattern, a literal would keep its escapes"),
    Reset("spark.sql.ansi.", "a text in double quotes would be a name, and some names reserved words"),
    Reset("spark.sql.analyzer.", "columns would be resolved by other rules"),
    Reset("spark.sql.collation.", "texts would be compared by other rules"),
    Reset("spark.sql.parquet.", "times would be cut, rebased or written as another type; columns found by number"),
    Reset("spark.sql.functionResolution.", "functions of the user could take the place of Spark's"),
    Reset("spark.databricks.delta.properties.defaults.", "targets would be made with other properties"),
    Reset("spark.databricks.delta.write.txn", "Delta would skip a write that it takes for an earlier one"),
)
"""Families of settings that get the defaults of Spark and Delta."""
KEPT: Final = frozenset(
    {
        *("spark.sql.parquet.compression.codec", "spark.sql.parquet.columnarReaderBatchSize"),
        *("spark.sql.parquet.enableVectorizedReader", "spark.sql.parquet.enableNestedColumnVectorizedReader"),
        *("spark.sql.parquet.filterPushdown", "spark.sql.parquet.aggregatePushdown"),
    }
)
"""Settings of the families in RESET that keep the user's values, because they affect only speed and size."""


def own_session(spark: SparkSession) -> SparkSession:
    """Return a clone of the user's session with the pinned settings."""
    from pyspark.sql import SparkSession, is_remote

    if is_remote():
        return pin(spark.cloneSession())  # only Spark Connect has it as a public method
    return pin(SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession()))  # noqa: SLF001  (as queries do)


def pin(spark: SparkSession) -> SparkSession:
    """Apply the pinned settings to a session that no one else uses, and return it."""
    from pyspark.errors import AnalysisException

    wanted = {setting.name for setting in PINNED}
    families = tuple(family.prefix for family in RESET)
    for name in _names_of_settings(spark):
        if name.startswith(families) and name not in wanted | KEPT:
            with suppress(AnalysisException):  # Spark refuses to unset its static settings
                spark.conf.unset(name)
                _forget_in_tasks(spark, name)
    for setting in PINNED:
        spark.conf.set(setting.name, setting.value)
    return spark


def _names_of_settings(spark: SparkSession) -> list[str]:
    """Return the names of a session's settings, without their values: Py4J's debug log would have credentials."""
    from pyspark.sql import is_remote

    if is_remote():
        return list(spark.conf.getAll)
    names = spark._jsparkSession.sessionState().conf().getAllConfs().keys().mkString("\n")  # noqa: SLF001
    return str(names).split("\n")


def _forget_in_tasks(spark: SparkSession, name: str) -> None:
    """Remove a setting from the tasks of a running micro-batch, which got it from Spark when the batch began."""
    from pyspark.sql import is_remote

    if not is_remote():
        spark.sparkContext.setLocalProperty(name, None)  # Java's null removes it


def in_session(spark: SparkSession, rows: DataFrame) -> DataFrame:
    """Return rows that were defined in another session as rows of this one."""
    from pyspark.sql import DataFrame, is_remote

    if is_remote():
        return type(rows)(rows._plan, spark)  # noqa: SLF001
    dataset = spark._jvm.org.apache.spark.sql.classic.Dataset  # noqa: SLF001
    plan = rows._jdf.queryExecution().analyzed()  # noqa: SLF001  (the plan was analyzed in that session)
    return DataFrame(dataset.ofRows(spark._jsparkSession, plan), spark)  # noqa: SLF001
