"""Delta tables whose creation a crash interrupted.

Delta makes the folder of a table, and folders for its log, before the first commit. After a crash in between, Delta
refuses to create a table there, because the folder is not empty and not a Delta table. `create_table` removes such a
log and tries once more. It never removes a folder that has a commit, a data file or another file with an owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming_source.driver.hadoop_files import hadoop_path
from streaming_source.sinks.delta_folder import planned_location
from streaming_source.sinks.short_errors import SPARK_ERRORS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NOT_EMPTY: Final = "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"
_LOG: Final = "_delta_log"


def create_table(spark: SparkSession, name: str, statement: str) -> None:
    """Run the statement that creates a table, also after an interrupted creation of the same table."""
    try:
        spark.sql(statement)
    except SPARK_ERRORS as error:
        if _NOT_EMPTY not in str(error) or not remove_log(spark, name):
            raise
        spark.sql(statement)


def remove_log(spark: SparkSession, name: str) -> bool:
    """Remove the log of a table that has no commit; return False if the folder has anything else."""
    location = planned_location(spark, name)
    if location is None:
        return False
    place, files = hadoop_path(spark, location)
    if [str(entry.getPath().getName()) for entry in files.listStatus(place)] != [_LOG]:
        return False
    log, _ = hadoop_path(spark, f"{location.rstrip('/')}/{_LOG}")
    listed = files.listFiles(log, True)
    while listed.hasNext():
        if not str(listed.next().getPath().getName()).startswith("."):  # a commit that is written has such a name
            return False
    return bool(files.delete(log, True))
