"""Hosts on one machine: apart from each other while they run, without a trace afterwards, however they end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.fixtures.installation import PROJECT
from tools.cluster.hosts import Network, why_no_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

needs_hosts = pytest.mark.skipif(bool(why_no_hosts()), reason=f"no hosts of their own: {why_no_hosts()}")
GONE_S = 20.0
_HOLD = """
import sys, time
from pathlib import Path
from tools.cluster.hosts import Network
with Network(Path(sys.argv[1])) as network:
    sleeper = network.add("node1").start(["sleep", "4711"])
    print(network.interface, sleeper.process.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with Network(tmp_path / "hosts") as running:
        yield running


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(PROJECT), **more}


def is_gone(interface: str) -> bool:
    return subprocess.run(["ip", "link", "show", interface], capture_output=True, check=False).returncode == 1


def wait_until_gone(interface: str, *pids: int) -> None:
    end = time.monotonic() + GONE_S
    while not is_gone(interface) or any(psutil.pid_exists(pid) for pid in pids):
        assert time.monotonic() < end, (interface, pids)
        time.sleep(0.1)


@needs_hosts
def test_hosts_share_no_file_no_address_and_no_process(network: Network) -> None:
    node1, node2 = network.add("node1"), network.add("node2")
    for path in ("/tmp/here", "/var/tmp/here", "/dev/shm/here", "/root/here", str(node1.disk / "here")):  # noqa: S108
        node1.run("touch", path)
        assert node1.run("ls", path).stdout == f"{path}\n"
        assert node2.run("ls", path, check=False).returncode == 2
    assert node1.run("touch", PROJECT / "here", check=False).returncode == 1, "what is installed is read-only"
    assert node1.run("getent", "hosts", "node2").stdout.split() == [node2.address, "node2"]
    assert node2.address not in node1.run("ip", "-4", "address").stdout
    sleeper = node1.start(["sleep", "4711"])
    assert node1.processes("4711") == [sleeper.process]
    assert node2.processes("4711") == []
    assert "4711" not in node2.run("ps", "ax").stdout


@needs_hosts
def test_a_host_that_is_cut_off_is_not_reached_and_one_that_crashes_keeps_its_disk(network: Network) -> None:
    node1, node2 = network.add("node1"), network.add("node2")
    ask = ["python3", "-c", f"import socket; socket.create_connection(('{node2.address}', 9), 1)"]
    assert "refused" in node1.run(*ask, check=False).stderr
    node2.cut()
    assert re.search(r"timed out|No route", node1.run(*ask, check=False).stderr)
    node2.join()
    sleeper = node2.start(["sleep", "4711"])
    node2.run("touch", node2.disk / "kept", "/tmp/lost")  # noqa: S108
    node2.crash()
    sleeper.entered.wait(10)
    network.boot(node2)
    assert node2.processes("4711") == []
    assert node2.run("ls", node2.disk).stdout == "kept\n"
    assert node2.run("ls", "/tmp/lost", check=False).returncode == 2  # noqa: S108
    assert "refused" in node1.run(*ask, check=False).stderr


@needs_hosts
def test_a_changed_installation_is_that_of_one_host(network: Network) -> None:
    node1, node2 = network.add("node1"), network.add("node2")
    node1.own_copy(PROJECT)
    file = PROJECT / "pyproject.toml"
    node1.run("sh", "-c", f"echo changed >{file}")
    assert node1.run("cat", file).stdout == "changed\n"
    assert node2.run("cat", file).stdout == file.read_text(encoding="utf-8") != "changed\n"


@needs_hosts
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_stays_of_a_network_whose_process_ended(tmp_path: Path, number: signal.Signals) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, tmp_path / "hosts"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert holder.stdout is not None
    interface, pid = holder.stdout.readline().split()
    assert not is_gone(interface)
    holder.send_signal(number)
    holder.communicate()
    wait_until_gone(interface, int(pid))


def test_a_machine_without_namespaces_is_told_what_it_needs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.cluster"],
        env=environment(PATH=str(tmp_path)),
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 21
    assert re.fullmatch(
        r"cluster: this machine cannot hold a cluster: unshare, .* not found\. Run it as root on Linux .*\n",
        done.stderr,
    )
    assert done.stdout == ""


@needs_hosts
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.server
@pytest.mark.timeout(600)
def test_a_cluster_that_stays_says_how_to_reach_it_and_leaves_nothing_after_ctrl_c() -> None:
    staying = subprocess.Popen(
        [sys.executable, "-m", "tools.cluster", "--stay"],
        env=environment(),
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert staying.stdout is not None
    lines: list[str] = []
    while "Ctrl-C" not in "".join(lines[-1:]):
        lines.append(staying.stdout.readline())
        assert lines[-1], staying.communicate()
    said = "".join(lines)
    client = re.search(r"^  (\S+/mariadb -h (10\.77\.\d+)\.\d+ .*)$", said, re.MULTILINE)
    assert client is not None, said
    asked = subprocess.run([*client[1].split(), "-e", "SELECT 41 + 1"], capture_output=True, text=True, check=True)
    assert "42" in asked.stdout
    interface = f"cluster{client[2].rpartition('.')[2]}"
    assert not is_gone(interface)
    assert "spark.master=spark://10.77." in said
    staying.send_signal(signal.SIGINT)
    assert "nothing of the cluster is left" in staying.communicate(timeout=120)[1]
    assert staying.returncode == 130
    wait_until_gone(interface)
