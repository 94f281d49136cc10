"""Tests that are interrupted: no server, no daemon and no folder of theirs stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.installation import PROJECT
from tests.fixtures.mariadb import wait_until
from tests.fixtures.orphans import _marked, leave_no_orphans

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.server

HANGING = """
import json, subprocess, sys, threading, time
from pathlib import Path
from tests.fixtures.mariadb import MariaDb

def test_hangs():
    servers = [MariaDb(), MariaDb()]
    threads = [threading.Thread(target=server.__enter__) for server in servers]  # which end before their servers
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    assert all(server.value("SELECT 1") == 1 for server in servers)
    there = {"pids": [*(server.pid for server in servers), other.pid], "folders": [str(s.folder) for s in servers]}
    here = Path(__file__).parent
    (here / "there.new").write_text(json.dumps(there))
    (here / "there.new").rename(here / "there")
    time.sleep(600)
"""


@pytest.fixture
def hanging(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    """A run of pytest whose only test has started two servers and a process, and waits."""
    test = tmp_path / "test_hanging.py"
    test.write_text(HANGING, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(PROJECT / "pyproject.toml"), "-p", "no:cacheprovider"]
    with (tmp_path / "output").open("wb") as output:
        started = subprocess.Popen(
            [*command, *request.param, str(test)],
            cwd=PROJECT,
            env=os.environ | {"PYTHONPATH": str(PROJECT)},
            stdout=output,
            stderr=output,
        )
    try:
        wait_until((tmp_path / "there").exists, "the test of that run hangs")
        yield started
    finally:
        started.kill()
        started.wait()


def _is_there(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # killed, and whoever has adopted it has not looked yet


@pytest.mark.parametrize(
    ("hanging", "number"),
    [
        pytest.param([], signal.SIGKILL, id="killed"),
        pytest.param([], signal.SIGTERM, id="terminated"),
        pytest.param([], signal.SIGINT, id="interrupted"),
        pytest.param(["-n", "1"], signal.SIGKILL, id="killed with a worker", marks=pytest.mark.slow),
    ],
    indirect=["hanging"],
)
def test_nothing_of_an_interrupted_run_stays(
    hanging: subprocess.Popen[bytes], number: signal.Signals, tmp_path: Path
) -> None:
    there = json.loads((tmp_path / "there").read_text(encoding="utf-8"))
    assert all(map(_is_there, there["pids"]))
    hanging.send_signal(number)
    wait_until(lambda: not any(map(_is_there, there["pids"])), "every process of that run has ended")
    wait_until(lambda: not any(Path(folder).exists() for folder in there["folders"]), "its folders are gone")


def test_a_process_is_watched_once_and_its_children_are_known() -> None:
    mark = leave_no_orphans()
    assert leave_no_orphans() == mark
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in _marked(mark)
        assert os.getpid() not in _marked(mark)
