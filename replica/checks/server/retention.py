"""Check how long the primary keeps its binlog, and whether the end of our relay log is still within that time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.checks.result import Result
from replica.daemon.status.lag import bytes_between, groups_between
from replica.daemon.status.words import size, span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.checks.machine.relay_end import RelayEnd
    from replica.checks.server.facts import ServerFacts

SHORT_S = 86_400.0
"""Retention in seconds below which there is a warning: after a weekend alarm, a day is short to restore a replica."""
NEAR_S = 6 * 3600.0
NEAR_BYTES = 256 << 20


def retention(facts: ServerFacts) -> Iterator[Result]:
    """Check what the server removes from its binlog, and when."""
    expiry_s, total = facts.primary.expiry_s, facts.primary.max_total_bytes
    kept = size(sum(file.size for file in facts.binlogs)) if facts.binlogs is not None else "an unknown size"
    waits = int(facts.variables.get("slave_connections_needed_for_purge") or 0)
    unless = f", and only while at least {waits} replica is connected" if waits else ""
    if expiry_s is None and total is None:
        what = f"the server never removes binlogs by itself; they have {kept} now"
        yield Result("retention", "note", what, f"{_expire(10 * 86_400, facts)} (otherwise its disk fills up)")
        return
    limits = [f"after {span(expiry_s)}"] if expiry_s is not None else []
    limits += [f"beyond {size(total)} in total"] if total is not None else []
    what = f"the server removes binlogs {' and '.join(limits)}{unless}; they have {kept} now"
    if expiry_s is not None and expiry_s < SHORT_S:
        fix = _expire(10 * 86_400, facts)
        yield Result("retention", "warning", f"{what}: a replica that is away for longer has to start again", fix)
    else:
        yield Result("retention", "ok", what)


def behind(facts: ServerFacts, end: RelayEnd) -> Iterator[Result]:
    """Check how far our relay log lags, and how much time is left. The position is known to exist on the server."""
    answer, head = facts.primary, end.head
    missing = groups_between(head.position, answer.position)
    if not missing:
        yield Result("behind", "ok", "the relay log has everything the server has")
        return
    age_s = max(0.0, answer.clock - head.timestamp) if head.timestamp else None
    words = [f"up to {missing} transactions"]
    if end.stored.is_of(facts.info) is not False and head.primary is not None and answer.place is not None:
        distance = bytes_between(head.primary, answer.place, facts.binlogs)
        words += [size(distance)] if distance is not None else []
    words += [f"its last transaction is {span(age_s)} old"] if age_s is not None else []
    what = f"the relay log is behind: {', '.join(words)}"
    # The server removes a file by the time of its last write, which is not before our last group.
    left_s = None if answer.expiry_s is None or age_s is None else answer.expiry_s - age_s
    room = _room(facts, end)
    kept = [f"for at least {span(left_s)} more"] if left_s is not None and left_s > 0 else []
    kept += [f"until {size(room)} more are written"] if room is not None and room > 0 else []
    gone = (left_s is not None and left_s <= 0) or (room is not None and room <= 0)
    if gone:
        what += "; what follows it may be removed at any moment"
    elif kept:
        what += f"; what follows it is kept {' and '.join(kept)}"
    if not gone and (left_s is None or left_s >= NEAR_S) and (room is None or room >= NEAR_BYTES):
        yield Result("behind", "note", what)
        return
    longer = _expire(int(2 * (answer.expiry_s or 0)), facts) if left_s is not None and left_s < NEAR_S else ""
    if not longer:
        longer = f"SET GLOBAL max_binlog_total_size = {2 * (answer.max_total_bytes or 0)};"
    yield Result("behind", "warning", what, f"{longer} (until the replica, which is to be started now, has caught up)")


def _room(facts: ServerFacts, end: RelayEnd) -> int | None:
    """Return how many bytes the server may write before it removes the file that we read next.

    Only the limit of the total size counts. None means unknown.
    """
    total, files = facts.primary.max_total_bytes, facts.binlogs
    ours = [number for number, file in enumerate(files or ()) if file.name == end.head.primary.file]
    if total is None or not files or not ours or end.stored.is_of(facts.info) is False:
        return None
    return total - sum(file.size for file in files[ours[0] :])


def _expire(seconds: int, facts: ServerFacts) -> str:
    if facts.info.version_number >= (10, 6):
        return f"SET GLOBAL binlog_expire_logs_seconds = {seconds};"
    return f"SET GLOBAL expire_logs_days = {-(-seconds // 86_400)};"
