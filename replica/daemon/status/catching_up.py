"""The log lines of a daemon that catches up: how far behind, how fast, how long still, and when it is done.

In: status records, looked at every second. Out: a line every ten seconds while the replica is far behind, and one when
it has all that the primary has. A daemon that is never far behind has that one line, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import FilteringBoundLogger

    from replica.daemon.status.record import StatusRecord

EVERY_S: Final = 1.0
SAID_EVERY_S: Final = 10.0
"""A person who watches the first start sees that something moves, and a log of a day of it has some thousand lines."""
FAR_S: Final = 30.0
"""Less than this behind is every busy primary's moment, and no catching up."""
NEAR_S: Final = 2.0


class CatchingUp:
    """The watcher of one daemon; `turn` looks again."""

    def __init__(self, record: Callable[[], StatusRecord], log: FilteringBoundLogger) -> None:
        self._record = record
        self._log = log
        self._ever = False
        self._before: StatusRecord | None = None
        """The record of the last line, while it is far behind."""

    def turn(self) -> None:
        """Look, and say what there is to say."""
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
