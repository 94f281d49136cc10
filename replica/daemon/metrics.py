"""Metrics: the status record in Prometheus' text format, under names mariadb_replica_*.

In: a `StatusRecord` and the histogram of acknowledgements. Out: the bytes of one scrape. The metrics have their own
registry, so that nothing that a library registers elsewhere appears. Unknown figures are left out, because a zero would
mislead alerts. Labels have few values: states, reasons, domains and readers, the last two up to a limit. If the daemon
has a cluster name, it is a label of all metrics.
"""

from __future__ import annotations

import itertools
import math
import platform
from typing import TYPE_CHECKING, Final, get_args

from prometheus_client import CollectorRegistry, ProcessCollector, exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from replica.live.progress import ACK_BUCKETS_S, State
from replica.protocol.gtid import GtidPosition
from replica.protocol.plain_text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client import Metric

    from replica.daemon.status.record import StatusRecord
    from replica.live.progress import AckLatency

CONTENT_TYPE: Final = exposition.CONTENT_TYPE_PLAIN_1_0_0
MAX_LABELS: Final = 64
"""Maximum number of labelled domains and of labelled readers, because each is a time series forever."""
_PREFIX: Final = "mariadb_replica_"
_HOUR_S: Final = 3600.0


class Metrics:
    """Metrics of a daemon. `text()` returns one scrape."""

    def __init__(self, record: Callable[[], StatusRecord], latency: AckLatency) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Replica(record, latency))

    def text(self) -> bytes:
        return exposition.generate_latest(self._registry)


class _Replica(Collector):
    def __init__(self, record: Callable[[], StatusRecord], latency: AckLatency) -> None:
        self._record = record
        self._latency = latency
        self._process = ProcessCollector(registry=None)

    def collect(self) -> Iterator[Metric]:
        now = self._record()
        own = {"cluster": now.cluster} if now.cluster else {}
        for family in itertools.chain(_figures(now, self._latency), self._process.collect()):
            family.samples = [one._replace(labels=own | one.labels) for one in family.samples]
            yield family


def _figures(now: StatusRecord, latency: AckLatency) -> Iterator[Metric]:
    yield from _state(now)
    yield from _connection(now)
    yield from _lag(now)
    yield from _stream(now)
    yield from _acks(now, latency)
    yield from _relay(now)
    yield from _readers(now)
    yield from _itself(now)


def _gauge(name: str, text: str, value: float | None) -> Iterator[Metric]:
    if value is not None:
        yield GaugeMetricFamily(_PREFIX + name, text, value=value)


def _counter(name: str, text: str, value: float) -> Iterator[Metric]:
    yield CounterMetricFamily(_PREFIX + name, text, value=value)


def _labelled(name: str, text: str, label: str, values: dict[str, float]) -> Iterator[Metric]:
    family = GaugeMetricFamily(_PREFIX + name, text, labels=(label,))
    for key, value in itertools.islice(values.items(), MAX_LABELS):
        family.add_metric((key,), value)
    yield family


def _state(now: StatusRecord) -> Iterator[Metric]:
    build = GaugeMetricFamily(_PREFIX + "build_info", "The program that runs.", labels=("version", "python"))
    build.add_metric((now.version, platform.python_version()), 1)
    yield build
    states = {state: float(state == now.state) for state in get_args(State)}
    yield from _labelled("state", "1 for the state the replica is in, 0 for the others.", "state", states)
    yield from _gauge("ready", "1 when /readyz says yes.", float(now.ready))
    yield from _gauge("start_time_seconds", "When the daemon started.", now.started_at)


def _connection(now: StatusRecord) -> Iterator[Metric]:
    one = now.connection
    connected = float(now.state in ("streaming", "paused"))
    yield from _gauge("connected", "1 while there is a dump connection to a primary.", connected)
    info = GaugeMetricFamily(
        _PREFIX + "primary_info", "The server in use.", labels=("endpoint", "version", "server_id", "tls")
    )
    info.add_metric((one.endpoint, one_line(one.primary_version), str(one.primary_server_id), one.tls), 1)
    yield info
    yield from _gauge("semi_sync", "1 when this connection acknowledges.", float(one.semi_sync))
    yield from _counter("connections", "Dump connections made.", one.connections)
    yield from _counter("disconnects", "Connections that we did not end ourselves.", one.disconnects)
    yield from _counter(
        "failed_attempts", "Attempts to connect that did not get as far as a stream.", one.failed_attempts
    )
    primary = now.primary
    if primary is not None:
        yield from _gauge("clock_offset_seconds", "The primary's clock minus ours.", primary.clock_offset_s)
        yield from _gauge("primary_answer_time_seconds", "When the primary last answered.", primary.asked_at)
        waits = None if primary.semi_sync is None else float(primary.semi_sync)
        yield from _gauge("primary_semi_sync", "1 while the primary's commits wait for acknowledgements.", waits)
        clients = primary.semi_sync_clients
        yield from _gauge("primary_semi_sync_clients", "Semi-synchronous replicas the primary counts.", clients)


def _lag(now: StatusRecord) -> Iterator[Metric]:
    lag = now.behind
    yield from _gauge("behind_seconds", "Age of the newest transaction here, 0 if none is missing.", lag.seconds)
    yield from _gauge("behind_bytes", "Bytes of the primary's binlog not received at its last answer.", lag.bytes)
    yield from _gauge("behind_groups", "Transactions not received at its last answer, at most.", lag.groups)
    hours = lag.purged_in_hours
    safe = math.inf if lag.purge == "never" else None if hours is None else hours * _HOUR_S
    yield from _gauge("purged_in_seconds", "Minimum time the primary keeps the next changes; +Inf: always.", safe)
    yield from _gauge("position_time_seconds", "When the newest transaction here was committed.", now.position.time)
    sequence = {str(g.domain_id): float(g.seq_no) for g in GtidPosition.parse(now.position.gtid)}
    yield from _labelled("sequence", "Sequence number of the newest transaction here, by domain.", "domain", sequence)


def _stream(now: StatusRecord) -> Iterator[Metric]:
    stream = now.stream
    yield from _counter("received_bytes", "Bytes received in dumps.", stream.received_bytes)
    yield from _counter("groups", "Transactions received in full.", stream.groups)
    yield from _counter("events", "Events received.", stream.events)
    skipped = CounterMetricFamily(
        _PREFIX + "skipped_events", "Events left out on purpose, by reason.", labels=("reason",)
    )
    skipped.add_metric(("ignorable",), stream.ignored_events)
    yield skipped
    yield from _counter("discarded_groups", "Half-received transactions cut off; sent again.", stream.discarded_groups)
    yield from _counter(
        "statement_dml",
        "Changes in transactions logged as statements, without rows, of any table; TRUNCATE is not counted.",
        stream.statement_dml,
    )
    yield from _counter("checksum_errors", "Events that did not match their CRC32.", stream.checksum_errors)
    yield from _counter("heartbeats", "Heartbeats of an idle primary.", stream.heartbeats)
    yield from _gauge("last_receipt_time_seconds", "When bytes last arrived.", stream.last_receipt_at)
    yield from _counter("paused_seconds", "Time that receiving was paused for lack of space.", stream.paused_s)
    yield from _counter("disk_full", "Times the disk was full.", stream.disk_full_events)


def _acks(now: StatusRecord, latency: AckLatency) -> Iterator[Metric]:
    yield from _counter("acks", "Acknowledgements sent.", now.acks.count)
    yield from _counter("syncs", "fdatasync calls of the relay log.", now.acks.syncs)
    counts = list(itertools.accumulate(latency.counts))
    bounds = [*(repr(bound) for bound in ACK_BUCKETS_S), "+Inf"]
    text = "From the receipt of a transaction to its acknowledgement."
    family = HistogramMetricFamily(_PREFIX + "ack_latency_seconds", text)
    family.add_metric((), list(zip(bounds, counts, strict=True)), sum_value=latency.sum_s)
    yield family


def _relay(now: StatusRecord) -> Iterator[Metric]:
    relay = now.relay
    yield from _gauge("relay_bytes", "Bytes of the relay log.", relay.bytes)
    yield from _gauge("relay_files", "Files of the relay log.", relay.files)
    yield from _gauge("relay_free_bytes", "Free on its disk, for our user.", relay.free_bytes)
    yield from _counter("relay_removed_files", "Relay files removed by retention.", relay.removed_files)
    yield from _counter("relay_removed_bytes", "Bytes removed by retention.", relay.removed_bytes)


def _readers(now: StatusRecord) -> Iterator[Metric]:
    yield from _gauge("readers", "Registered readers of the relay log.", len(now.readers))
    distances = {one.name: float(one.bytes_behind) for one in now.readers if one.bytes_behind is not None}
    yield from _labelled("reader_behind_bytes", "Bytes of the relay log after a reader's place.", "reader", distances)
    seen = {one.name: one.seen for one in now.readers}
    yield from _labelled("reader_seen_time_seconds", "When a reader was last seen.", "reader", seen)
    yield from _counter("readers_dropped", "Readers whose files were removed.", now.relay.dropped_readers)


def _itself(now: StatusRecord) -> Iterator[Metric]:
    yield from _gauge("loop_delay_seconds", "Recent delay of the receiving loop.", now.loop_delay_s)
    failed = CounterMetricFamily(_PREFIX + "failed_turns", "Failed turns of work beside the stream.", labels=("part",))
    for part, count in sorted(now.errors.items()):
        failed.add_metric((part,), count)
    yield failed
