from __future__ import annotations

import math

from prometheus_client.parser import text_string_to_metric_families

from replica.daemon.metrics import MAX_LABELS, Metrics
from replica.live.progress import ACK_BUCKETS_S, AckLatency
from tests.unit.daemon.records import record


def scraped(latency: AckLatency | None = None, **changed: object) -> dict[str, float]:
    text = Metrics(lambda: record(**changed), latency or AckLatency()).text().decode()
    return {
        sample.name.removeprefix("mariadb_replica_") + "".join(f"/{value}" for value in sample.labels.values()): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_figure_of_a_record() -> None:
    found = scraped()
    expected = {
        "state/streaming": 1, "state/paused": 0, "ready": 1, "connected": 1, "semi_sync": 1, "connections_total": 2,
        "disconnects_total": 1, "behind_seconds": 0, "behind_bytes": 0, "behind_groups": 0,
        "purged_in_seconds": 47.5 * 3600, "sequence/0": 99, "sequence/3": 5, "received_bytes_total": 1e6,
        "groups_total": 99, "events_total": 500, "skipped_events_total/ignorable": 3, "discarded_groups_total": 1,
        "statement_dml_total": 4,
        "heartbeats_total": 12, "acks_total": 90, "syncs_total": 95, "relay_files": 3, "relay_bytes": 3 << 20,
        "relay_free_bytes": 5 << 30, "relay_removed_files_total": 2, "readers": 1,
        "reader_behind_bytes/orders": 1 << 20, "readers_dropped_total": 0, "failed_turns_total/monitor": 1,
        "primary_semi_sync": 1, "clock_offset_seconds": 0.001,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    assert found["primary_info/db1:3306/1/TLSv1.3 AES/10.11.9-MariaDB"] == 1


def test_what_is_not_known_is_left_out() -> None:
    unknown = {"seconds": None, "bytes": None, "groups": None, "purge": "unknown", "purged_in_hours": None}
    found = scraped(behind=unknown, primary=None)
    assert not {"behind_seconds", "behind_bytes", "behind_groups", "purged_in_seconds", "primary_semi_sync"} & set(
        found
    )


def test_never_purged_is_infinity() -> None:
    assert scraped(behind={"purge": "never", "purged_in_hours": None})["purged_in_seconds"] == math.inf


def test_the_latency_is_a_cumulative_histogram() -> None:
    latency = AckLatency()
    for seconds in (0.00005, 0.0004, 0.0004, 0.3, 100.0):
        latency.add(seconds)
    found = scraped(latency)
    assert found["ack_latency_seconds_bucket/0.0001"] == 1
    assert found["ack_latency_seconds_bucket/0.0005"] == 3
    assert found["ack_latency_seconds_bucket/10.0"] == 4
    assert found["ack_latency_seconds_bucket/+Inf"] == found["ack_latency_seconds_count"] == 5
    assert math.isclose(found["ack_latency_seconds_sum"], 100.30085)
    assert len([name for name in found if "bucket" in name]) == len(ACK_BUCKETS_S) + 1


def test_names_from_outside_do_not_break_the_format_and_are_limited() -> None:
    one = {"name": 'a"b\\c\nd', "position": "", "relay": "relay.000001:4", "seen": 1.0, "bytes_behind": 1}
    readers = [one, *({**one, "name": f"q{number}"} for number in range(200))]
    found = scraped(readers=readers)
    assert found['reader_behind_bytes/a"b\\c\nd'] == 1
    assert len([name for name in found if name.startswith("reader_behind_bytes")]) == MAX_LABELS
    assert found["readers"] == 201


def test_the_process_is_measured_too() -> None:
    assert scraped()["process_resident_memory_bytes"] > 0


def test_a_cluster_is_a_label_of_every_figure() -> None:
    def labels(**changed: object) -> list[dict[str, str]]:
        text = Metrics(lambda: record(**changed), AckLatency()).text().decode()
        return [sample.labels for family in text_string_to_metric_families(text) for sample in family.samples]

    named, without = labels(cluster="shop, 1"), labels()
    assert [one.pop("cluster") for one in named] == ["shop, 1"] * len(without)
    assert named == without
    assert len(named) > 50
