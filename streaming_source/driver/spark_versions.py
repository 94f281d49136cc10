"""The supported versions of Spark, the error for an older one and the warning for a newer one.

`require_spark` refuses a Spark that lacks required features. `warn_of_newer_spark` logs one warning for a Spark that is
newer than all tested ones. docs/versions.md has the table. A test compares it with this table and with the pinned
versions.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from replica.errors import ConfigError

_log = logging.getLogger(__name__)


class SparkVersion(NamedTuple):
    """A minor version of Spark and its support. `delta`: the Delta release that works with it."""

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
    SparkVersion((4, 2), "4.2.1", "scripts/test", "4.4.0", "none for MERGE; PyIceberg appends"),
    SparkVersion((4, 3), "4.3.0", "scripts/test-spark 4.3", "none", "none"),
)
"""Supported versions, the oldest first. Spark 4.2 is the first with admission control and Trigger.AvailableNow for
Python sources.
"""


def require_spark(version: str) -> None:
    """Refuse a Spark that is too old.

    Raises:
        ConfigError: it is too old.
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
