from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from replica.errors import RelayError
from replica.relay.lock import RelayLock, lock_holder

if TYPE_CHECKING:
    from pathlib import Path

HOLDER = """
import sys, pathlib
from replica.relay.lock import RelayLock, lock_holder
lock = RelayLock(pathlib.Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_one_at_a_time(tmp_path: Path) -> None:
    with RelayLock(tmp_path / "made"), pytest.raises(RelayError, match=f"process {os.getpid()}"):
        RelayLock(tmp_path / "made")
    RelayLock(tmp_path / "made").close()


def test_closing_twice_does_no_harm(tmp_path: Path) -> None:
    lock = RelayLock(tmp_path)
    lock.close()
    lock.close()


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


def test_looking_at_it_keeps_nobody_from_taking_it(tmp_path: Path) -> None:
    RelayLock(tmp_path).close()
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            lock_holder(tmp_path)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        for _ in range(100):
            RelayLock(tmp_path).close()
    finally:
        ended.set()
        watcher.join()
