from __future__ import annotations

import click
import pytest

from replica.daemon.status.page import page
from replica.daemon.status.verdict import judge
from tests.unit.daemon.records import NOW, head, record


def shown(**changed: object) -> str:
    one = record(**changed)
    return click.unstyle(page(one, head(), judge(one, holder="4711", now=NOW), NOW))


def test_a_healthy_daemon_on_one_page() -> None:
    lines = [line.split(None, 1) for line in shown().splitlines()]
    assert lines[0] == ["healthy"]
    text = shown()
    assert "0-1-99,3-1-5 (relay.000003:4096, bin.000007:1234, written 2 s ago)" in text
    assert "0 s, 0 B, 0 transactions at most" in text
    assert "90 (p50 0.5 ms, p99 2 ms, max 12.3 ms), after fsync" in text
    assert "1 d 23 h at the earliest" in text
    assert "3 files, 3 MiB; 5 GiB free" in text
    assert "orders at relay.000002:4, 1 MiB behind, seen 5 s ago" in text
    assert "1 disconnects" in text


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"behind": {"seconds": None, "bytes": None, "groups": None}}, "unknown, bytes unknown, transactions unknown"),
        ({"behind": {"purge": "never", "purged_in_hours": None}}, "never (the primary keeps its binlogs)"),
        ({"behind": {"purge": "gone", "purged_in_hours": 0.0}}, "already purged on the primary"),
        ({"behind": {"purge": "unknown", "purged_in_hours": None}}, "purged in   unknown"),
        ({"primary": {"clock_offset_s": -12.5}}, "its clock is -12.5 s from ours"),
        ({"primary_error": "no route"}, "not answering the monitor: no route"),
        ({"primary": {"semi_sync": False}}, "the primary does not wait for them now"),
        ({"connection": {"semi_sync": False}, "acks": {"count": 0}}, "not semi-synchronous"),
        ({"dropped_readers": ["slow"]}, "slow: its files were removed"),
        ({"stream": {"paused_s": 90.0}}, "paused for 1 min 30 s in all"),
        ({"connection": {"endpoint": ""}}, "none yet"),
    ],
)
def test_what_is_worth_a_word(changed: dict[str, object], words: str) -> None:
    assert words in shown(**changed)


def test_a_daemon_that_is_down_says_where_the_log_ends() -> None:
    verdict = judge(None, holder=None, now=NOW)
    text = click.unstyle(page(None, head(), verdict, NOW))
    assert text.splitlines() == [
        "not running: no daemon has written a status here",
        "  log ends  0-1-99 (relay.000001:9000)",
    ]


def test_many_readers_do_not_scroll_the_verdict_away() -> None:
    one = {"name": "q", "position": "", "relay": "relay.000001:4", "seen": NOW, "bytes_behind": None}
    text = shown(readers=[one] * 50)
    assert text.count("reader ") == 20
    assert "and 30 more" in text
