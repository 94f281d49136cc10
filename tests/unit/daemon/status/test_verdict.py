from __future__ import annotations

import pytest

from replica.daemon.status.verdict import judge, running
from tests.unit.daemon.records import NOW, record

FAILURE = {"error": "PositionLostError", "message": "It is gone.", "hint": "Take a snapshot.", "exit_code": 32}


@pytest.mark.parametrize(
    ("changed", "code", "word"),
    [
        ({}, 0, "healthy"),
        ({"ready": False, "not_ready": "90 s behind"}, 11, "behind"),
        ({"ready": False, "not_ready": "not known", "behind": {"seconds": None}}, 11, "behind"),
        ({"ready": False, "not_ready": "connecting", "state": "connecting"}, 10, "connecting"),
        ({"ready": False, "not_ready": "starting", "state": "starting"}, 10, "starting"),
        ({"ready": False, "not_ready": "x", "state": "paused", "pause": "relay log full"}, 12, "paused"),
        ({"ready": False, "not_ready": "x", "state": "disk full"}, 12, "disk full"),
        ({"ready": False, "not_ready": "x", "state": "stopping"}, 3, "stopping"),
    ],
)
def test_a_daemon_that_runs(changed: dict[str, object], code: int, word: str) -> None:
    verdict = judge(record(**changed), holder="4711", now=NOW + 3)
    assert (verdict.exit_code, verdict.word) == (code, word)
    assert running(record(**changed)) == verdict


@pytest.mark.parametrize(
    ("changed", "words", "advice"),
    [
        ({}, "ended without a final status; last sign of life at 2023-11-14 22:13:20 UTC, 2 h", "start it again"),
        ({"state": "stopped"}, "stopped on request", ""),
        ({"state": "failed", "failure": FAILURE}, "It is gone. (exit code 32)", "Take a snapshot."),
    ],
)
def test_a_daemon_that_does_not(changed: dict[str, object], words: str, advice: str) -> None:
    verdict = judge(record(**changed), holder=None, now=NOW + 7200)
    assert (verdict.exit_code, verdict.word) == (3, "not running")
    assert words in verdict.reason
    assert advice in verdict.advice


def test_a_fresh_healthy_record_of_a_killed_process_is_not_believed() -> None:
    assert judge(record(), holder=None, now=NOW + 1).exit_code == 3


@pytest.mark.parametrize("late_s", [60, -60])  # -60: the clock was put back
def test_a_daemon_that_hangs(late_s: float) -> None:
    verdict = judge(record(), holder="4711", now=NOW + late_s)
    assert (verdict.exit_code, verdict.word) == (4, "silent")
    assert "process 4711 holds the relay log" in verdict.reason


def test_a_writer_without_status() -> None:
    assert judge(None, holder="12", now=NOW).exit_code == 4
    assert judge(None, holder=None, now=NOW).exit_code == 3
