"""Detection of targets that were dropped outside the mirror: by a DROP TABLE in the lake, or by removing a folder.

`MissingTargetCheck.missing` returns the control rows whose targets are missing. The first micro-batch of a start checks
AT_START targets. Each later check takes the next AT_ONCE targets, every CHECK_EVERY_S seconds, because checking a
target costs about as much as opening it. A target that a micro-batch writes needs no check: the write fails.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from replica.errors import ConfigError
from streaming_source.mirroring.writers.choose import open_target
from streaming_source.mirroring.writers.native.data_files import NativeWriteError
from streaming_source.mirroring.writers.native.delta_rows import refused
from streaming_source.mirroring.writers.native.writer import NATIVE
from streaming_source.sinks.delta import known_folder
from streaming_source.sinks.queries import SPARK_ERRORS, first_line, side_by_side
from streaming_source.sinks.storage import is_delta_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from streaming_source.mirroring.control.control_table import ControlRow

_log = logging.getLogger(__name__)
CHECK_EVERY_S: Final = 60.0
AT_START: Final = 100
AT_ONCE: Final = 20
"""Targets in one check. Checking a cached Delta table takes 25 ms, other tables take longer."""


class MissingTargetCheck:
    """Check for missing targets; one for each start of a mirror."""

    def __init__(self, parallel: int) -> None:
        self._parallel = parallel
        self._last: float | None = None
        self._next = 0

    def due(self) -> bool:
        """Return True if it is time for a check."""
        return self._last is None or time.monotonic() - self._last >= CHECK_EVERY_S

    def missing(self, spark: SparkSession, rows: Sequence[ControlRow]) -> list[ControlRow]:
        """Check the next targets, and return the rows whose targets are missing.

        Raises:
            ConfigError: several targets were checked, and all of them are missing.
        """
        chosen = self._chosen(rows)
        if not chosen:
            return []
        exists = partial(target_exists, spark)
        found = side_by_side(spark, exists, chosen, at_once=self._parallel, name="mirror-look")
        if len(chosen) > 1 and not any(found):
            raise ConfigError(
                f"none of {len(chosen)} targets exists, for example {chosen[0].target}: their storage is not "
                "available, or was removed.",
                hint="Make the storage available, and start the mirror again. If it is lost, drop the control table, "
                "and start a mirror with a new checkpoint.",
            )
        return [row for row, is_one in zip(chosen, found, strict=True) if not is_one]

    def _chosen(self, rows: Sequence[ControlRow]) -> list[ControlRow]:
        if not self.due():
            return []
        most = min(AT_START if self._last is None else AT_ONCE, len(rows))
        self._last = time.monotonic()
        begin = self._next % max(1, len(rows))
        self._next = begin + most
        return [*rows, *rows][begin : begin + most]


def target_exists(spark: SparkSession, row: ControlRow) -> bool:
    """Return True if a target exists. An unreadable target counts as existing: its next write reports the fault.

    Native targets are checked without Spark, because Spark first reads all commits since its own last read.
    """
    if row.writer == NATIVE and (is_one := _is_known_table(spark, row.target)) is not None:
        return is_one
    try:
        return open_target(spark, row.target).exists()
    except SPARK_ERRORS as error:
        _log.warning("%s cannot be read: %s", row.target, first_line(error))
        return True


def missing_target_error(row: ControlRow, hint: str) -> ConfigError:
    """Make the error for a table whose target was removed."""
    return ConfigError(f"its target {row.target} does not exist any more: something else removed it.", hint=hint)


def _is_known_table(spark: SparkSession, table: str) -> bool | None:
    """Return True if a table exists where Spark's catalog says; None if this cannot be decided."""
    folder = known_folder(spark, table)
    try:
        if folder is None:
            return None
        with refused(folder):  # deltalake is not installed if only Spark writes
            return is_delta_table(folder)
    except NativeWriteError as error:
        _log.debug("Spark checks %s instead of delta-rs: %s", folder, error)
        return None
