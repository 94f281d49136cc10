"""Periodic retention beside the stream, with its totals and log lines.

In: the relay directory and the policy of the configuration. Out: fewer relay files, counters for the status, and one
log line whenever files were removed. A reader whose files were removed is logged as a warning with the reader's name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.relay_writer.retention import Retention, RetentionPolicy

if TYPE_CHECKING:
    from pathlib import Path

    from structlog.typing import FilteringBoundLogger

    from replica.daemon.config import DaemonConfig

EVERY_S: Final = 2.0
"""Seconds between two runs. With slow_readers=drop only retention keeps the log at its limit. At 500 MB/s the log
exceeds its limit by up to 1 GB between two runs.
"""
MAX_DROPPED_NAMES: Final = 100
"""Maximum number of dropped readers that the status names. The log has all of them."""


class Retaining:
    """Retention of one relay log. One thread calls `turn()`; any thread may read the rest."""

    def __init__(self, config: DaemonConfig, directory: Path, log: FilteringBoundLogger) -> None:
        self.removed_files = 0
        self.removed_bytes = 0
        self.dropped_readers: tuple[str, ...] = ()
        self.dropped = 0
        self._log = log
        self._blocked_by = ""
        self._retention = Retention(directory, _policy(config))

    def reload(self, config: DaemonConfig) -> None:
        """Change the policy from the next run on. Any thread may call it."""
        self._retention.policy = _policy(config)

    def turn(self) -> None:
        removed = self._retention.apply()
        if removed.files:
            self.removed_files += removed.files
            self.removed_bytes += removed.bytes
            self._log.info("removed relay files", files=removed.files, bytes=removed.bytes, oldest=str(removed.oldest))
        if removed.blocked_by != self._blocked_by:
            self._blocked_by = removed.blocked_by
            self._log.info(
                "removal by age " + ("waits" if removed.blocked_by else "goes on"), reason=removed.blocked_by
            )
        for name in removed.expired_readers:
            self._log.info("reader forgotten", reader=name, hint="Not seen for reader_expiry.")
        for name in removed.dropped_readers:
            self.dropped += 1
            self.dropped_readers = (*self.dropped_readers, name)[-MAX_DROPPED_NAMES:]
            self._log.warning(
                "reader dropped",
                reader=name,
                hint="The files it needed were removed, and its next read fails: see relay_max_bytes, min_free_bytes, "
                "and slow_readers=pause.",
            )


def _policy(config: DaemonConfig) -> RetentionPolicy:
    return RetentionPolicy(
        retain_s=config.retain_s,
        retain_bytes=config.retain_bytes,
        max_bytes=config.relay_max_bytes,
        slow_readers=config.slow_readers,
        reader_expiry_s=config.reader_expiry_s,
        min_free_bytes=config.min_free_bytes,
    )
