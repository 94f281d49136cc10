"""A fleet's processes: started, started again, killed when they stand still, and ended together; without a server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from replica.errors import AuthenticationError, DisconnectedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WAIT_S = 30
# A process of its own, as the parent is: without threads, and with the signals to itself.
PROGRAM = """
    import json, os, socket, sys, time
    from pathlib import Path
    from replica.daemon import fleet
    from replica.daemon.notify import Notifier

    fleet.FIRST_RETRY_S, fleet.SILENT_S, fleet.STOP_S, fleet.TURN_S = 0.1, 1.0, 1.0, 0.2

    def work(file):
        with file.open("a") as log:
            print(os.getpid(), file=log)
        turn = len(file.read_text().splitlines())
        exec(MEMBERS[file.stem])

    def say(level, event, **fields):
        print(json.dumps({"level": level, "event": event, **fields}), flush=True)

    sys.exit(fleet.Fleet({name: Path(sys.argv[1], name) for name in MEMBERS}, work, say).run())
"""
ALIVE = "n = Notifier(); n.ready()\nwhile True: time.sleep(0.1); n.alive()"
LEAVES = "import signal; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); " + ALIVE


class Running:
    """A fleet in a process, whose members do what is given."""

    def __init__(self, folder: Path, members: dict[str, str]) -> None:
        self.folder = folder
        source = textwrap.dedent(PROGRAM).replace("MEMBERS", repr(members))
        self.process = subprocess.Popen(
            [sys.executable, "-c", source, str(folder)], stdout=(folder / "out").open("wb"), env=os.environ
        )

    def said(self, event: str) -> list[dict[str, Any]]:
        lines = (self.folder / "out").read_text().splitlines()
        return [line for line in map(json.loads, lines) if line["event"] == event]

    def pids(self, name: str) -> list[int]:
        path = self.folder / name
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def until(self, seen: Callable[[], object]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not seen():
            assert time.monotonic() < deadline, (self.folder / "out").read_text()
            time.sleep(0.02)

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_S)


@pytest.fixture
def fleet_of(tmp_path: Path) -> Iterator[Callable[[dict[str, str]], Running]]:
    started: list[Running] = []

    def start(members: dict[str, str]) -> Running:
        started.append(Running(tmp_path, members))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_all_run_and_end_together_with_exit_code_0(fleet_of: Callable[[dict[str, str]], Running]) -> None:
    running = fleet_of({"a": LEAVES, "b": LEAVES})
    running.until(lambda: running.pids("a") and running.pids("b"))
    time.sleep(0.3)  # their handlers are set
    assert running.end() == 0
    assert [one["exit_code"] for one in running.said("daemon has ended")] == [0, 0]
    assert all(gone(pid) for name in "ab" for pid in running.pids(name))


def test_one_that_fails_is_started_again_and_the_other_is_not_touched(
    fleet_of: Callable[[dict[str, str]], Running],
) -> None:
    failing = f"if turn < 3: sys.exit({DisconnectedError.exit_code})\n{LEAVES}"
    running = fleet_of({"a": LEAVES, "b": failing})
    running.until(lambda: len(running.pids("b")) == 3)
    waits = [one["seconds"] for one in running.said("daemon is started again")]
    assert waits == [0.1, 0.2], "each wait is longer than the one before"
    assert len(running.pids("a")) == 1


def test_what_a_person_has_to_mend_waits_for_sighup(fleet_of: Callable[[dict[str, str]], Running]) -> None:
    running = fleet_of({"a": LEAVES, "b": f"if turn == 1: sys.exit({AuthenticationError.exit_code})\n{LEAVES}"})
    running.until(lambda: running.said("daemon is not started again"))
    assert running.said("daemon is not started again")[0]["level"] == "error"
    time.sleep(0.5)
    assert len(running.pids("b")) == 1
    running.process.send_signal(signal.SIGHUP)
    running.until(lambda: len(running.pids("b")) == 2)


def test_one_that_stands_still_is_killed_and_started_again(fleet_of: Callable[[dict[str, str]], Running]) -> None:
    hanging = f"if turn == 1: Notifier().ready(); time.sleep(1000)\n{LEAVES}"
    running = fleet_of({"a": hanging})
    running.until(lambda: len(running.pids("a")) == 2)
    assert running.said("daemon stands still and is killed")
    assert running.said("daemon is started again")[0]["exit_code"] == 128 + signal.SIGABRT


def test_one_that_does_not_end_is_killed(fleet_of: Callable[[dict[str, str]], Running]) -> None:
    deaf = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {ALIVE}"
    running = fleet_of({"a": deaf})
    running.until(lambda: running.pids("a"))
    time.sleep(0.3)
    assert running.end() == 128 + signal.SIGKILL
    assert gone(running.pids("a")[0])


def test_it_ends_with_the_exit_code_when_none_is_left(fleet_of: Callable[[dict[str, str]], Running]) -> None:
    running = fleet_of({"a": "sys.exit(0)", "b": f"sys.exit({AuthenticationError.exit_code})"})
    assert running.process.wait(WAIT_S) == AuthenticationError.exit_code


def test_none_outlives_a_parent_that_is_killed(fleet_of: Callable[[dict[str, str]], Running]) -> None:
    running = fleet_of({"a": LEAVES})
    running.until(lambda: running.pids("a"))
    time.sleep(0.3)
    running.process.kill()
    running.process.wait()
    running.until(lambda: gone(running.pids("a")[0]))
