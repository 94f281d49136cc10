"""Verdict on a status record for a person on call: one word, one sentence, a hint, and an exit code.

In: the newest record (or None), the current time, and whether a process holds the relay log. Out: a `Verdict`. The
record alone is not sufficient, because a killed process leaves a record that looks healthy.

    0   healthy: connected, and not further behind than ready_lag_s
    3   not running: stopped, failed, or killed
    4   running, but it has stopped writing its status
    10  running, not connected to a primary
    11  running and connected, too far behind or the lag is not known yet
    12  running, receiving is paused for lack of space
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from replica.daemon.status.page import moment, span
from replica.daemon.status.record import STALE_S

if TYPE_CHECKING:
    from replica.daemon.status.record import StatusRecord


HEALTHY: Final = 0
NOT_RUNNING: Final = 3
SILENT: Final = 4
NOT_CONNECTED: Final = 10
BEHIND: Final = 11
NO_ROOM: Final = 12


class Verdict(NamedTuple):
    """Verdict on a daemon. `advice` is empty if there is nothing to do."""

    exit_code: int
    word: str
    reason: str
    advice: str

    @property
    def is_down(self) -> bool:
        """Whether the daemon does not run, or runs without reporting."""
        return self.exit_code in (NOT_RUNNING, SILENT)

    @property
    def colour(self) -> str:
        """Colour of the word on a terminal."""
        return "red" if self.is_down else "green" if self.exit_code == HEALTHY else "yellow"


def judge(record: StatusRecord | None, *, holder: str | None, now: float) -> Verdict:
    """Return the verdict on a record.

    Args:
        record: the newest record, if there is one.
        holder: id of the process that has the relay log's lock, or None.
        now: current time in seconds since 1970.
    """
    if holder is None:
        return _not_running(record, now)
    if record is None:
        reason = f"process {holder} writes the relay log but no status: it is just starting, or runs inside Spark"
        return Verdict(SILENT, "no status", reason, "")
    silent_s = abs(now - record.written_at)
    if silent_s > STALE_S or record.state in ("stopped", "failed"):
        reason = f"process {holder} holds the relay log, but wrote its last status {span(silent_s)} ago"
        advice = (
            "If it does not recover, check whether its disk hangs (dmesg). Then end the process and start it again."
        )
        return Verdict(SILENT, "silent", reason, advice)
    return running(record)


def running(record: StatusRecord) -> Verdict:
    """Return the verdict on a daemon that has just answered."""
    if record.ready:
        return Verdict(HEALTHY, "healthy", "", "")
    reason = record.not_ready.removeprefix(record.state).removeprefix(": ")
    match record.state:
        case "paused" | "disk full":
            advice = (
                "Free space on the relay log's disk, or let its readers continue; receiving then continues by itself."
            )
            return Verdict(NO_ROOM, record.state, reason, advice)
        case "streaming":
            known = record.behind.seconds is not None
            advice = "It catches up by itself unless the lag grows: check again later." if known else ""
            return Verdict(BEHIND, "behind", reason, advice)
        case "failed" | "stopped" | "stopping":
            return Verdict(NOT_RUNNING, record.state, reason, "")
        case _:
            advice = "It tries again by itself; mariadb-replica check shows what is wrong with the primary."
            return Verdict(NOT_CONNECTED, record.state, reason, advice)


def _not_running(record: StatusRecord | None, now: float) -> Verdict:
    if record is None:
        return Verdict(NOT_RUNNING, "not running", "no daemon has written a status here", "")
    when = f"{moment(record.written_at)}, {span(abs(now - record.written_at))} ago"
    if record.failure is not None:
        failure = record.failure
        reason = f"failed at {when}: {failure.message} (exit code {failure.exit_code})"
        return Verdict(NOT_RUNNING, "not running", reason, failure.hint)
    if record.state == "stopped":
        return Verdict(NOT_RUNNING, "not running", f"it was stopped on request, at {when}", "")
    advice = "Nothing that was acknowledged is lost: start it again. Its log and dmesg may say what killed it."
    return Verdict(NOT_RUNNING, "not running", f"it ended without a final status; last sign of life at {when}", advice)
