"""Border to Spark, at which this project's errors lose their traceback, so that class, text and remedy come first.

Spark's Python processes send an exception as its traceback, whose last line is the message, 14 to 60 lines down. A
variable in such a process removes the traceback. Spark's own setting, spark.sql.execution.pyspark.udf.hideTraceback,
sets the variable for some of the processes and for all exceptions. `spark_border` sets it right before an error of this
project leaves the process, which ends with this error. Other exceptions are bugs and keep their traceback. The
traceback of this project's errors is logged at level DEBUG.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import ConfigError, ReplicaError

if TYPE_CHECKING:
    from collections.abc import Iterator

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
RUNTIME = "SPARK_PYTHON_RUNTIME"
"""Variable by which a Python process that Spark started differs from a driver script. In a driver script, other
processes would inherit the variable that `spark_border` sets.
"""
logger = logging.getLogger("streaming_source")


@contextlib.contextmanager
def spark_border() -> Iterator[None]:
    """Shorten this project's errors, as a decorator of a method that Spark calls, or inside a generator."""
    try:
        yield
    except ReplicaError as error:
        raise _plain(error) from None
    except (ImportError, AttributeError) as error:
        from replica.installation import installation_error

        explained = installation_error(error)
        if explained is None:
            raise
        raise _plain(explained, error) from None


def _plain(error: ReplicaError, cause: BaseException | None = None) -> ReplicaError:
    logger.debug("reporting %s to Spark", type(error).__name__, exc_info=cause or error)
    if os.environ.get(RUNTIME) == "PYTHON_WORKER":
        os.environ[HIDE_TRACEBACK] = "1"
    return error


# `require_spark` refuses a Spark that lacks required features. `warn_of_newer_spark` logs one warning for a Spark that
# is newer than all tested ones. docs/versions.md has the table. A test compares it with this table and with the pinned
# versions.


_log = logging.getLogger(__name__)


class SparkVersion(NamedTuple):
    """Minor version of Spark and its support.

    Attributes:
        delta: the Delta release that works with this version.
    """

    minor: tuple[int, int]
    tested: str
    command: str
    delta: str
    iceberg: str

    @property
    def name(self) -> str:
        return f"{self.minor[0]}.{self.minor[1]}"

    def line(self) -> str:
        """Return the version as a row of the table in docs/versions.md."""
        return f"| {self.name} | {self.tested} | `{self.command}` | {self.delta} | {self.iceberg} |"


SPARK_VERSIONS: Final = (
    SparkVersion((4, 2), "4.2.1", "scripts/test", "4.4.0", "none for MERGE; `mirror` writes by PyIceberg"),
    SparkVersion((4, 3), "4.3.0", "scripts/test-spark 4.3", "none", "none"),
)
"""Supported versions, the oldest first. Spark 4.2 is the first with admission control and Trigger.AvailableNow for
Python sources.
"""


def require_spark(version: str) -> None:
    """Refuse a Spark that is too old.

    Raises:
        ConfigError: Spark is too old.
    """
    if _minor(version) < SPARK_VERSIONS[0].minor:
        raise ConfigError(
            f"mariadb-binlog needs Spark {SPARK_VERSIONS[0].name} or newer, this is {version}.",
            hint="Older versions cannot limit micro-batches of Python sources and lose rows with Trigger.AvailableNow.",
        )


def warn_of_newer_spark(version: str) -> None:
    """Log one warning if this Spark is newer than every tested one."""
    if _minor(version) > SPARK_VERSIONS[-1].minor:
        tested = " and ".join(one.name for one in SPARK_VERSIONS)
        _log.warning(
            "mariadb-binlog is tested with Spark %s, and this is %s: it may work. Before you rely on it, compare a "
            "copy with its table (streaming_source.audit).",
            tested,
            version,
        )


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])
