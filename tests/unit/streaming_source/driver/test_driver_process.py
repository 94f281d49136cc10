"""KernelFacts by /proc, or nobody is taken for dead."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from streaming_source.driver import deployment
from streaming_source.driver.deployment import DriverProcess, lives, this_driver

if TYPE_CHECKING:
    import pytest


def test_a_driver_lives_until_its_process_ends() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    found = deployment._process(child.pid)
    assert found is not None
    driver = DriverProcess(child.pid, found.started)
    assert found.parent == os.getpid()
    assert lives(driver)
    assert not lives(driver._replace(started=driver.started + 1)), "its number was given to another process"
    child.communicate(b"\n")
    assert not lives(driver)


def test_the_java_process_above_us_is_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    above = {os.getppid(): ("python3 (x) y", 71, 5), 71: ("java", 72, 6), 72: ("bash", 1, 7)}
    monkeypatch.setattr(deployment, "_process", lambda pid: deployment._Process(*above[pid]))
    assert this_driver() == DriverProcess(71, 6)
    above[71] = ("bash", 72, 6)
    above[1] = ("init", 0, 1)
    above[0] = ("none", 0, 0)
    assert this_driver() == DriverProcess(os.getppid(), 5)


def test_without_proc_every_driver_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment, "_process", lambda _: None)
    assert this_driver() == DriverProcess(os.getppid(), 0)
    assert lives(DriverProcess(4194305, 9))
