"""Status record for people: the verdict, a hint, and the figures.

In: the record, if there is one; the head of the relay log; the verdict. Out: lines of text with ANSI colours, which
click removes if there is no terminal. Unknown figures are shown as unknown.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click

from replica.protocol.plain_text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.daemon.status.record import StatusRecord
    from replica.daemon.status.verdict import Verdict
    from replica.relay_log.location import RelayHead

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def moment(at: float) -> str:
    """Return a time (Unix seconds) as text in UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def span(seconds: float) -> str:
    """Return a duration as text: 0.4 ms, 12 s, 5 min 3 s, 7 h 10 min, 3 d 4 h."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    total = round(seconds)
    for size, unit, smaller_size, smaller in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if total >= size:
            rest = total % size // smaller_size
            return f"{total // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{total} s"


def size(count: float) -> str:
    """Return a size as text, in powers of 1024: 512 B, 1.5 MiB."""
    for unit in _UNITS[:-1]:
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} {_UNITS[-1]}"


MAX_READERS_SHOWN = 20


def page(record: StatusRecord | None, head: RelayHead | None, verdict: Verdict, now: float) -> str:
    """Return the page of `mariadb-replica status`, with ANSI colours.

    Args:
        record: newest status record, if there is one.
        head: end of the relay log; used if the daemon is down.
        verdict: verdict on the record.
        now: current time in seconds since 1970.
    """
    title = click.style(verdict.word, fg=verdict.colour, bold=True)
    lines = [f"{title}: {one_line(verdict.reason)}" if verdict.reason else title]
    if verdict.advice:
        lines.append(f"  {one_line(verdict.advice)}")
    rows = list(_rows(record, now)) if record else []
    if verdict.is_down:
        if record is not None:
            rows.insert(0, ("then", f"its last report, at {moment(record.written_at)}:"))
        if head is not None:
            rows.insert(0, ("log ends", f"{head.position or 'at the beginning'} ({head.location})"))
    width = max((len(name) for name, _ in rows), default=0)
    lines += [f"  {name:<{width}}  {one_line(text)}" for name, text in rows]
    return "\n".join(lines)


def _rows(record: StatusRecord, now: float) -> Iterator[tuple[str, str]]:
    if record.cluster:
        yield "cluster", record.cluster
    yield "primary", _primary(record)
    position = record.position
    place = f"{position.relay}, {position.primary_file}:{position.primary_position}"
    when = f", written {span(max(0.0, now - position.time))} ago" if position.time else ""
    yield "position", f"{position.gtid or 'at the beginning'} ({place}{when})"
    yield "behind", _lag(record)
    yield "purged in", _purge(record)
    yield "acks", _acks(record)
    if record.stream.statement_dml:
        yield (
            "statements",
            f"{record.stream.statement_dml:,} changes were logged as statements: their rows are not in the binlog",
        )
    relay = record.relay
    paused = f", paused for {span(record.stream.paused_s)} in all" if record.stream.paused_s else ""
    files = "1 file" if relay.files == 1 else f"{relay.files} files"
    yield (
        "relay log",
        f"{files}, {size(relay.bytes)}; {size(relay.free_bytes)} free{paused}",
    )
    yield "directory", relay.directory
    for one in record.readers[:MAX_READERS_SHOWN]:
        left = "?" if one.bytes_behind is None else size(one.bytes_behind)
        yield "reader", f"{one.name} at {one.relay}, {left} behind, seen {span(max(0.0, now - one.seen))} ago"
    if len(record.readers) > MAX_READERS_SHOWN:
        yield "readers", f"and {len(record.readers) - MAX_READERS_SHOWN} more"
    for name in record.dropped_readers:
        yield "dropped", f"{name}: its files were removed"
    if record.connection.last_error:
        at = record.connection.last_error_at
        yield "last error", f"{record.connection.last_error} ({moment(at) if at else 'time unknown'})"
    yield "daemon", f"{record.version}, process {record.pid}, since {moment(record.started_at)}"


def _primary(record: StatusRecord) -> str:
    one = record.connection
    if not one.endpoint:
        return "none yet"
    tls = one.tls or "no TLS"
    connected = record.state in ("streaming", "paused") and one.connected_at
    since = f", connected since {moment(one.connected_at or 0)}" if connected else ""
    text = f"{one.endpoint} (MariaDB {one.primary_version or '?'}, server {one.primary_server_id}, {tls}){since}"
    if record.primary_error:
        text += f"; not answering the monitor: {record.primary_error}"
    elif record.primary is not None and abs(record.primary.clock_offset_s) >= 1:
        text += f"; its clock is {record.primary.clock_offset_s:+.1f} s from ours"
    return text + (f"; {one.disconnects} disconnects" if one.disconnects else "")


def _lag(record: StatusRecord) -> str:
    lag = record.behind
    seconds = "unknown" if lag.seconds is None else span(lag.seconds) if lag.seconds else "0 s"
    count = "transactions unknown" if lag.groups is None else f"{lag.groups:,} transactions at most"
    volume = "bytes unknown" if lag.bytes is None else size(lag.bytes)
    return f"{seconds}, {volume}, {count}"


def _purge(record: StatusRecord) -> str:
    lag = record.behind
    if lag.purge == "gone":
        return "already purged on the primary: a new snapshot is needed"
    if lag.purged_in_hours is not None:
        return f"{span(lag.purged_in_hours * 3600)} at the earliest"
    return {"never": "never (the primary keeps its binlogs)", "by size": "not by age; the primary purges by size"}.get(
        lag.purge, "unknown"
    )


def _acks(record: StatusRecord) -> str:
    acks, primary = record.acks, record.primary
    if not record.connection.semi_sync and not acks.count:
        return "none: not semi-synchronous"
    text = f"{acks.count:,}"
    if acks.p50_s is not None and acks.p99_s is not None and acks.max_s is not None:
        text += f" (p50 {span(acks.p50_s)}, p99 {span(acks.p99_s)}, max {span(acks.max_s)})"
    text += f", {'after' if record.connection.ack_policy == 'fsync' else 'before'} fsync"
    if primary is not None and primary.semi_sync is False:
        text += "; the primary does not wait for them now"
    return text
