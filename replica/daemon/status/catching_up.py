"""Log lines of a daemon that catches up: its lag, its speed, the remaining time, and the end.

In: status records, checked every second. Out: a line every ten seconds while the replica lags far, and one line when it
has all transactions of the primary. A daemon that never lags far logs only the latter, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import FilteringBoundLogger

    from replica.daemon.status.record import StatusRecord

EVERY_S: Final = 1.0
SAID_EVERY_S: Final = 10.0
"""Seconds between two lines.

A person who watches the first start sees progress, and a day of it logs some thousand lines.
"""
FAR_S: Final = 30.0
"""Lag in seconds above which a daemon catches up. A smaller lag occurs on every busy primary."""
NEAR_S: Final = 2.0


class CatchingUp:
    """Watcher of one daemon. `turn` checks it once."""

    def __init__(self, record: Callable[[], StatusRecord], log: FilteringBoundLogger) -> None:
        self._record = record
        self._log = log
        self._ever = False
        self._before: StatusRecord | None = None
        """The record of the last line, while the daemon lags far."""

    def turn(self) -> None:
        """Check the record, and log a line if one is due."""
        now = self._record()
        behind = now.behind.seconds
        if behind is None or now.state != "streaming":
            return
        if behind > FAR_S:
            if self._before is not None and 0 <= now.written_at - self._before.written_at < SAID_EVERY_S:
                return
            speed = self._speed(now)
            left = now.behind.bytes
            self._log.info(
                "catching up",
                behind_s=round(behind),
                behind_bytes=left,
                bytes_per_s=speed,
                left_s=round(left / speed) if left is not None and speed else None,
                position=now.position.gtid,
            )
            self._before = now
        elif behind <= NEAR_S and (self._before is not None or not self._ever):
            self._log.info("caught up", position=now.position.gtid)
            self._before, self._ever = None, True

    def _speed(self, now: StatusRecord) -> int | None:
        before = self._before
        if before is None or now.written_at <= before.written_at:
            return None
        return round((now.stream.received_bytes - before.stream.received_bytes) / (now.written_at - before.written_at))
