"""Spark's versions: which are tested and with what, what an older one is refused with, and what a newer one is told.

In: the version of the Spark at hand. Refused: a Spark that lacks what the source needs. One that is newer than all
tested ones is used, after one warning. docs/versions.md has the table; a test compares it with this and with what is
pinned.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from replica.errors import ConfigError

_log = logging.getLogger(__name__)


class SparkVersion(NamedTuple):
    """One minor version of Spark, and what is known of it here. `delta`: the release that works with it."""

    minor: tuple[int, int]
    tested: str
    command: str
    delta: str
    iceberg: str

    @property
    def name(self) -> str:
        return f"{self.minor[0]}.{self.minor[1]}"

    def line(self) -> str:
        """Return the version as a line of the page's table."""
        return f"| {self.name} | {self.tested} | `{self.command}` | {self.delta} | {self.iceberg} |"


SPARK_VERSIONS: Final = (
    SparkVersion((4, 2), "4.2.1", "scripts/test", "4.4.0", "none for MERGE; PyIceberg appends"),
    SparkVersion((4, 3), "4.3.0", "scripts/test-spark 4.3", "none", "none"),
)
"""Oldest first. The first is the oldest that works: it has admission control and Trigger.AvailableNow for Python
sources.
"""


def require_spark(version: str) -> None:
    """Refuse a Spark that is too old.

    Raises:
        ConfigError: it is.
    """
    if _minor(version) < SPARK_VERSIONS[0].minor:
        raise ConfigError(
            f"mariadb-binlog needs Spark {SPARK_VERSIONS[0].name} or newer, this is {version}.",
            hint="Older versions cannot limit micro-batches of Python sources and lose rows with Trigger.AvailableNow.",
        )


def warn_of_newer_spark(version: str) -> None:
    """Log one line where the Spark is newer than every tested one."""
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
