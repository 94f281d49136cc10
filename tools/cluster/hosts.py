"""Hosts of a cluster on one machine: each with an IP address, a file system and process numbers of its own.

    with Network(folder) as network:
        node = network.add("node1")
        node.run("touch", "/tmp/here")         # no other host has this file
        process = node.start(["sleep", "60"])  # process.kill() ends it, node.crash() ends all of the host
        node.cut()                             # the host stays, without its network

The hosts are on a bridge in a namespace of its own. The machine reaches them through one interface, with the address
`network.gateway`. Namespaces and interface end with the process that made them, however that process ends. Of the
machine's files, a host sees `shared_paths` alone, and read-only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import psutil

from replica.errors import PrerequisiteError
from replica.native.compiling.code_cache import CACHE as KERNELS
from tests.fixtures.installation import CACHE, PROJECT
from tests.fixtures.orphans import leave_no_orphans

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

PROGRAMS: Final = ("unshare", "nsenter", "ip", "mount", "pivot_root", "hostname")
MOST_NETWORKS: Final = 100
"""Clusters that one machine may have at once."""
END_S: Final = 20.0
NEEDED: Final = (
    "Run it as root on Linux with iproute2 and util-linux (in a container: --privileged): the hosts of the cluster are "
    "namespaces for network, files and processes."
)


def why_no_hosts() -> str:
    """Return what this machine lacks for hosts of its own; empty if it has all."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)}: not found"
    if os.geteuid() != 0:
        return "this account is not root"
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "ip", "link", "add", "type", "bridge"],
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if tried.returncode == 0 else tried.stderr.strip() or f"unshare ends with {tried.returncode}"


def require_hosts() -> None:
    """Refuse a machine on which no hosts can be made.

    Raises:
        PrerequisiteError: with the reason, and what is needed.
    """
    if reason := why_no_hosts():
        raise PrerequisiteError(f"this machine cannot hold a cluster: {reason}.", hint=NEEDED)


def shared_paths() -> list[Path]:
    """Return what is installed on each host, read-only.

    The system, Python, this project, its compiled kernels, servers and jars.
    """
    servers = Path(os.environ.get("MARIADB_SERVERS", CACHE / "servers"))
    java = shutil.which("java") or "/usr"
    named = ["/usr", "/etc", sys.base_prefix, sys.prefix, PROJECT, CACHE, servers, os.environ.get("JAVA_HOME", java)]
    named += [KERNELS] if KERNELS else []
    kept: list[Path] = []
    for path in sorted({Path(os.path.realpath(one)) for one in named}):
        folder = path if path.is_dir() else path.parent
        if not any(folder.is_relative_to(one) for one in kept):
            kept.append(folder)
    return kept


class HostProcess:
    """A process on a host: what `subprocess.Popen` started there."""

    def __init__(self, entered: subprocess.Popen[bytes]) -> None:
        self.entered = entered
        self._own: psutil.Process | None = None

    @property
    def process(self) -> psutil.Process:
        """The process itself: nsenter, which started it, waits for it."""
        end = time.monotonic() + END_S
        while self._own is None:
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in psutil.Process(self.entered.pid).children():
                    self._own = child
            if self._own is None:
                if not self.runs or time.monotonic() > end:
                    raise psutil.NoSuchProcess(self.entered.pid)
                time.sleep(0.01)
        return self._own

    @property
    def runs(self) -> bool:
        return self.entered.poll() is None

    def end(self, number: int = signal.SIGTERM) -> None:
        """Send a signal, and wait for the end of the process; after a while, kill it."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self.process.send_signal(number)
        try:
            self.entered.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill the process, as `kill -9` does; its children stay."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self.process.kill()
        self.entered.wait(END_S)

    def kill_all(self) -> None:
        """Kill the process and all that it started."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for one in [self.process, *self.process.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
        self.entered.wait(END_S)


class Host:
    """One host. `disk` is a folder of its own, with the same path on the host and on the machine."""

    def __init__(self, name: str, address: str, folder: Path) -> None:
        self.name = name
        self.address = address
        self.folder = folder
        self.disk = folder / "disk"
        self._holder: subprocess.Popen[bytes] | None = None

    @property
    def runs(self) -> bool:
        return self._holder is not None

    @property
    def pid(self) -> int:
        """The first process of the host, as the machine numbers it."""
        if self._holder is None:
            raise RuntimeError(f"{self.name} does not run")
        return psutil.Process(self._holder.pid).children()[0].pid

    def boot(self, hosts: Path) -> None:
        """Make the namespaces and the root; what was on the disk is kept, all else is new."""
        root = self.folder / "root"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        self.disk.mkdir(exist_ok=True)
        error = self.folder / "start-host.log"
        self._holder = subprocess.Popen(
            [
                *("unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork"),
                *(Path(__file__).with_name("start-host"), self.name, root, self.disk, hosts, *shared_paths()),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=error.open("wb"),
            start_new_session=True,  # Ctrl-C is for the program, which ends its hosts itself
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"up\n":
            raise RuntimeError(f"{self.name} did not start: {error.read_text().strip()}")

    def crash(self) -> None:
        """End all processes of the host at once, as a power cut does; its disk stays."""
        if self._holder is None:
            return
        holder, self._holder = self._holder, None
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):
            psutil.Process(holder.pid).children()[0].kill()
        holder.kill()
        holder.communicate()

    def enter(self, *, own_processes: bool = True) -> list[str]:
        """Return the words that run a command on the host.

        Without `own_processes` the command is a direct child, which counts its processes as the machine does.
        """
        which = ["--net", "--mount", "--uts", "--ipc", *(["--pid"] if own_processes else [])]
        return ["nsenter", "--target", str(self.pid), *which, "--root", "--wd", "--"]

    def environment(self) -> dict[str, str]:
        """Return the variables of a process on the host: those of this one, with folders and address of the host."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TMP", "XDG_"))}
        mine = {"HOME": "/root", "TMPDIR": "/tmp", "SPARK_LOCAL_IP": self.address}  # noqa: S108  (the host's own)
        return {**kept, **mine, "PYTHONPATH": str(PROJECT)}

    def start(
        self,
        words: Sequence[str | Path],
        *,
        log: Path | None = None,
        more: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> HostProcess:
        """Start a command on the host; its output is appended to `log`."""
        with ExitStack() as stack:
            out = stack.enter_context(log.open("ab")) if log else None
            return HostProcess(
                subprocess.Popen(
                    [*self.enter(), *words],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT if out else None,
                    env={**self.environment(), **(more or {})},
                    pass_fds=pass_fds,
                    start_new_session=True,
                )
            )

    def run(self, *words: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command on the host to its end."""
        command = [*self.enter(), *map(str, words)]
        return subprocess.run(command, env=self.environment(), capture_output=True, text=True, check=check)

    def processes(self, word: str) -> list[psutil.Process]:
        """Return the processes of the host that have `word` in their command line."""
        space = Path(f"/proc/{self.pid}/ns/pid").readlink()
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.NoSuchProcess):
                if Path(f"/proc/{process.pid}/ns/pid").readlink() == space and any(
                    word in one for one in process.cmdline()
                ):
                    found.append(process)
        return found

    def cut(self) -> None:
        """Take the network from the host; its processes go on."""
        self.run("ip", "link", "set", "eth0", "down")

    def join(self) -> None:
        """Give the network back."""
        self.run("ip", "link", "set", "eth0", "up")

    def own_copy(self, installed: Path) -> None:
        """Make an installed folder writable on this host alone: what is changed there stays on this host."""
        up, work = (self.disk / "changed" / part / installed.relative_to("/") for part in ("up", "work"))
        for place in (up, work):
            place.mkdir(parents=True)
        layers = f"lowerdir={installed},upperdir={up},workdir={work}"
        self.run("mount", "-t", "overlay", "overlay", "-o", layers, installed)


class Network:
    """A bridge with hosts, and the machine's own interface to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hosts: dict[str, Host] = {}
        self._stack = ExitStack()
        self._number = 0
        self._switch = 0

    def __enter__(self) -> Self:
        require_hosts()
        leave_no_orphans()  # a process forked from this one may hold the pipes to the hosts
        self.folder.mkdir(parents=True, exist_ok=True)
        self._names = self.folder / "hosts"
        with ExitStack() as stack:
            switch = subprocess.Popen(
                ["unshare", "--net", "sh", "-c", "echo up; exec cat"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            stack.callback(switch.communicate)
            stack.callback(switch.kill)
            assert switch.stdout is not None
            switch.stdout.readline()
            self._switch = switch.pid
            self._on_switch("ip", "link", "add", "bridge0", "type", "bridge")
            self._on_switch("ip", "link", "set", "bridge0", "up")
            self._number = self._take_number()
            _run("ip", "address", "add", f"{self.gateway}/24", "dev", self.interface)
            _run("ip", "link", "set", self.interface, "up")
            self._plug("machine")
            self._write_names()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def gateway(self) -> str:
        """Address of the machine in this network."""
        return f"10.77.{self._number}.1"

    @property
    def interface(self) -> str:
        """Interface of the machine to this network."""
        return f"cluster{self._number}"

    def add(self, name: str) -> Host:
        """Start a host of this name."""
        host = Host(name, f"10.77.{self._number}.{11 + len(self.hosts)}", self.folder / name)
        self.hosts[name] = host
        self._write_names()
        self._stack.callback(host.crash)
        self.boot(host)
        return host

    def boot(self, host: Host) -> None:
        """Start a host, also again after a crash."""
        host.boot(self._names)
        number = host.address.rpartition(".")[2]
        port = f"port{number}"
        end = time.monotonic() + END_S
        # The kernel removes the interface of a host that crashed a moment later.
        while self._on_switch("ip", "link", "show", port, check=False).returncode == 0 and time.monotonic() < end:
            time.sleep(0.05)
        ends = [*("name", port, "netns", str(self._switch)), "type", "veth"]
        card = f"02:4d:44:42:{self._number:02x}:{int(number):02x}"  # the same after a crash: others remember it
        _run("ip", "link", "add", *ends, *("peer", "name", "eth0", "address", card, "netns", str(host.pid)))
        self._plug(port)
        host.run("ip", "address", "add", f"{host.address}/24", "dev", "eth0")
        host.run("ip", "link", "set", "eth0", "up")
        host.run("ip", "link", "set", "lo", "up")

    def _take_number(self) -> int:
        for number in range(MOST_NETWORKS):
            ends = ["type", "veth", "peer", "name", "machine", "netns", str(self._switch)]
            made = _run("ip", "link", "add", "name", f"cluster{number}", *ends, check=False)
            if made.returncode == 0:
                return number
        raise PrerequisiteError(
            f"this machine has {MOST_NETWORKS} clusters already: {made.stderr.strip()}", hint=NEEDED
        )

    def _plug(self, port: str) -> None:
        self._on_switch("ip", "link", "set", port, "master", "bridge0", "up")

    def _on_switch(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return _run("nsenter", "--target", str(self._switch), "--net", "--", *words, check=check)

    def _write_names(self) -> None:
        named = [f"{host.address} {host.name}\n" for host in self.hosts.values()]
        text = "".join(["127.0.0.1 localhost\n", f"{self.gateway} machine\n", *named])
        self._names.write_text(text, encoding="utf-8")


def _run(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")
    return done
