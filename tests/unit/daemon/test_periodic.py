from __future__ import annotations

import threading

import pytest
import structlog
from structlog.testing import capture_logs

from replica.daemon.run import Periodic
from replica.errors import RelayError


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopping waits for the last turn however long the machine stands still meanwhile."""
    monkeypatch.setattr("replica.daemon.run.JOIN_TIMEOUT_S", 60.0)


def periodic(work: object, every_s: float = 0.001) -> Periodic:
    return Periodic("part", every_s, work, structlog.get_logger())  # type: ignore[arg-type]


def test_it_goes_on_until_it_is_stopped() -> None:
    turns = threading.Semaphore(0)
    one = periodic(turns.release)
    one.start()
    for _ in range(3):
        assert turns.acquire(timeout=60)
    one.stop()
    assert not one._thread.is_alive()
    assert one.errors == 0


def test_an_error_is_said_once_and_tried_again() -> None:
    turns = threading.Semaphore(0)

    def fail() -> None:
        turns.release()
        raise RelayError("the disk is away.")

    with capture_logs() as logged:
        one = periodic(fail)
        one.start()
        for _ in range(4):
            assert turns.acquire(timeout=60)
        one.stop()
    assert one.errors >= 4
    assert [(line["event"], line["part"]) for line in logged] == [("failed turn", "part")]


def test_a_bug_is_logged_with_its_traceback_and_does_not_end_the_turns() -> None:
    turns = threading.Semaphore(0)

    def fail() -> None:
        turns.release()
        raise ZeroDivisionError

    with capture_logs() as logged:
        one = periodic(fail)
        one.start()
        assert turns.acquire(timeout=60)
        assert turns.acquire(timeout=60)
        one.stop()
    assert [(line["event"], line["exc_info"]) for line in logged] == [("internal error", True)]


def test_stopping_what_was_never_started() -> None:
    periodic(lambda: None).stop()
