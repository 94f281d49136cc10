"""Parts of the status record, made from the replica's progress and the monitor's answer.

In: numbers where 0 stands for never. Out: values where None does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.daemon.status.record import Acks, Connection, Primary, Stream

if TYPE_CHECKING:
    from replica.daemon.monitor import Known
    from replica.progress import Progress

CONNECTED: Final = ("streaming", "paused")


def connection(p: Progress, ack_policy: str) -> Connection:
    return Connection(
        endpoint=p.endpoint,
        primary_version=p.primary_version,
        primary_server_id=p.primary_server_id,
        server_id=p.server_id,
        thread_id=p.thread_id,
        semi_sync=p.semi_sync and p.state in CONNECTED,
        ack_policy=ack_policy,
        compressed=p.compressed,
        tls=p.tls,
        connected_at=p.connected_at or None,
        connections=p.connections,
        disconnects=p.disconnects,
        failed_attempts=p.failed_attempts,
        last_error=p.last_error,
        last_error_at=p.last_error_at or None,
    )


def primary(known: Known | None) -> Primary | None:
    if known is None:
        return None
    answer = known.answer
    return Primary(
        gtid=str(answer.position),
        file=answer.place.file if answer.place else "",
        position=answer.place.position if answer.place else None,
        clock_offset_s=round(answer.clock_offset_s, 4),
        asked_at=answer.asked_at,
        semi_sync=answer.semi_sync,
        semi_sync_clients=answer.semi_sync_clients,
        expiry_s=answer.expiry_s,
    )


def stream(p: Progress) -> Stream:
    return Stream(
        received_bytes=p.received_bytes,
        groups=p.groups,
        events=p.events,
        ignored_events=p.ignored_events,
        discarded_groups=p.discarded_groups,
        statement_dml=p.statement_dml,
        checksum_errors=p.checksum_errors,
        heartbeats=p.heartbeats,
        last_receipt_at=p.last_receipt_at or None,
        disk_full_events=p.disk_full_events,
        paused_s=round(p.paused_s, 3),
    )


def acks(p: Progress) -> Acks:
    latency = p.ack_latency
    return Acks(
        count=p.acks,
        syncs=p.syncs,
        acknowledged=str(p.acknowledged or ""),
        last_s=latency.last_s if latency.count else None,
        p50_s=latency.quantile(0.5),
        p99_s=latency.quantile(0.99),
        max_s=latency.max_s if latency.count else None,
    )
