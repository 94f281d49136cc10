from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from replica.errors import RelayError
from replica.relay_log.directory import lock
from replica.relay_log.directory.lock import LOCK_NAME, RelayLock, lock_holder

if TYPE_CHECKING:
    from pathlib import Path

HOLDER = """
import sys, pathlib
from replica.relay_log.directory.lock import RelayLock, lock_holder
lock = RelayLock(pathlib.Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_one_at_a_time(tmp_path: Path) -> None:
    with RelayLock(tmp_path / "made"), pytest.raises(RelayError, match=f"process {os.getpid()}"):
        RelayLock(tmp_path / "made")
    RelayLock(tmp_path / "made").close()


def test_closing_twice_does_no_harm(tmp_path: Path) -> None:
    held = RelayLock(tmp_path)
    held.close()
    held.close()


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ)) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(RelayError, match=f"process {holder.pid}"):
            RelayLock(tmp_path)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    RelayLock(tmp_path).close()
    assert (tmp_path / "relay.lock").exists()


def test_who_holds_it_is_told_to_everybody(tmp_path: Path) -> None:
    assert lock_holder(tmp_path) is None
    with RelayLock(tmp_path):
        assert lock_holder(tmp_path) == str(os.getpid())
    assert lock_holder(tmp_path) is None


def test_looking_at_it_keeps_nobody_from_taking_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    RelayLock(tmp_path).close()
    looking = os.open(tmp_path / LOCK_NAME, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    assert lock_holder(tmp_path) is None, "two that look do not take each other for a replica"
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            os.close(looking)  # whoever looks lets go after a moment

    monkeypatch.setattr(lock, "time", SimpleNamespace(sleep=pause))
    RelayLock(tmp_path).close()
    assert len(pauses) == 3


def test_a_lock_that_stays_taken_is_not_waited_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(lock, "time", SimpleNamespace(sleep=pauses.append))
    with RelayLock(tmp_path), pytest.raises(RelayError, match="in use"):
        RelayLock(tmp_path)
    assert 0 < sum(pauses) < 1
