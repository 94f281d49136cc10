"""Deployment of the Spark application: its driver process, its tasks, its folders.

The planner runs in a descendant of the driver's JVM, and Spark reports nothing about the cluster to it. But the JVM's
command line has the master and more. PySpark passes settings that are made before the session starts as `--conf`.
spark-submit passes `--master` and the names of properties files. spark-defaults.conf is in SPARK_CONF_DIR or under
SPARK_HOME. Settings of a session that already existed are not visible. Without a visible master, tasks count as not
local, because inline bytes reach every executor and a path may not. The number of cores is then unknown.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import subprocess
import tempfile
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import RelayError
from replica.relay_log.directory.lock import lock_holder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming_source.options.source_options import SourceOptions
# Spark plans a batch read in a Python process that it may end at any time. Data that has to exist as long as the
# driver is tied to the driver's Java process, the nearest Java ancestor. Process ids are reused, so a `DriverProcess`
# has the start time too. On systems without /proc, every driver counts as running.


MAX_ANCESTORS: Final = 10
"""Most ancestors to examine. One or two processes lie between the driver and this process, and one or two shells in
tests.
"""


class DriverProcess(NamedTuple):
    """Identity of a driver process: its id and its start, because ids are reused.

    Attributes:
        started: its start in clock ticks after boot; 0 if the system does not report it.
    """

    pid: int
    started: int


class _Process(NamedTuple):
    name: str
    parent: int
    started: int


def this_driver() -> DriverProcess:
    """Return the nearest Java ancestor, or the parent process if there is none."""
    pid = os.getppid()
    for _ in range(MAX_ANCESTORS):
        found = _process(pid)
        if found is None:
            break
        if found.name == "java":
            return DriverProcess(pid, found.started)
        pid = found.parent
    parent = _process(os.getppid())
    return DriverProcess(os.getppid(), parent.started if parent else 0)


def this_process() -> DriverProcess:
    """Return the identity of this process itself."""
    own = _process(os.getpid())
    return DriverProcess(os.getpid(), own.started if own else 0)


def lives(driver: DriverProcess) -> bool:
    """Return True if the driver process still runs."""
    if not driver.started or _process(os.getpid()) is None:
        return True
    found = _process(driver.pid)
    return found is not None and found.started == driver.started


def _process(pid: int) -> _Process | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name is in parentheses and may contain anything, also parentheses.
    name, fields = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
    return _Process(name, int(fields[1]), int(fields[19]))


UNKNOWN_CORES: Final = 8
"""Cores of a cluster that does not report its cores. Surplus partitions cost some 30 ms each; with too few, cores are
idle.
"""
MAX_SETTINGS_BYTES: Final = 1 << 20
"""Most bytes of a properties file to read. Such files have a few KB."""
_OPTIONS: Final = {
    "--master": "spark.master",
    "--executor-cores": "spark.executor.cores",
    "--num-executors": "spark.executor.instances",
    "--total-executor-cores": "spark.cores.max",
    "--properties-file": "file",
}
_LOCAL: Final = re.compile(r"local(?:\[(\d+|\*)(?:,\d+)?\])?")
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[(\d+),(\d+),\d+\]")
_SETTING: Final = re.compile(r"(spark\.[\w.]+)[=\s:]\s*(.*?)\s*")


@dataclass(frozen=True)
class SparkSetup:
    """Settings of the application by name, with spark.master."""

    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def tasks_are_local(self) -> bool:
        """Whether the master is a local one, so that tasks see this machine's files.

        A local cluster, which Spark has for tests, counts as several machines.
        """
        return _LOCAL.fullmatch(self._master) is not None

    @property
    def cores(self) -> int:
        """Number of tasks that run at once, as far as the settings show it."""
        if local := _LOCAL.fullmatch(self._master):
            return (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)
        if cluster := _LOCAL_CLUSTER.fullmatch(self._master):
            return int(cluster[1]) * int(cluster[2])
        executors, each = self._number("spark.executor.instances"), self._number("spark.executor.cores")
        most = self._number("spark.dynamicAllocation.maxExecutors")
        product = (executors or most or 0) * (each or 1)
        return product or self._number("spark.cores.max") or self._number("spark.default.parallelism") or UNKNOWN_CORES

    @property
    def _master(self) -> str:
        return self.settings.get("spark.master", "")

    def _number(self, name: str) -> int | None:
        text = self.settings.get(name, "")
        return int(text) if text.isdigit() and len(text) < 7 else None


def spark_setup() -> SparkSetup:
    """Return the settings of the JVM that this process descends from."""
    return SparkSetup(settings_of(_arguments(this_driver().pid), os.environ))


def settings_of(arguments: list[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a command line and of its properties file. The command line overrides the file."""
    given: dict[str, str] = {}
    for option, value in pairwise([*arguments, ""]):
        name, _, joined = option.partition("=")
        if name in _OPTIONS:
            given[_OPTIONS[name]] = joined or value
        elif option == "--conf" or name.startswith("-Dspark."):
            given |= _settings(value if option == "--conf" else option.removeprefix("-D"))
    folder = environment.get("SPARK_CONF_DIR") or os.path.join(environment.get("SPARK_HOME", ""), "conf")  # noqa: PTH118
    file = given.pop("file", os.path.join(folder, "spark-defaults.conf"))  # noqa: PTH118
    return {**_file(Path(file)), **given}


def _file(path: Path) -> dict[str, str]:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return _settings(file.read(MAX_SETTINGS_BYTES))
    except OSError:  # the file does not exist, or this account may not read it
        return {}


def _settings(text: str) -> dict[str, str]:
    found = (_SETTING.fullmatch(line.strip()) for line in text.splitlines())
    return {match[1]: match[2] for match in found if match}


def _arguments(process: int) -> list[str]:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:  # no /proc on this system
        shown = subprocess.run(["ps", "-o", "args=", "-p", str(process)], capture_output=True, text=True, check=False)
        return shown.stdout.split()


# `relay_directory` returns a private folder in the temp folder. Its name depends on the server, the account and the
# tables, so that a restarted query finds its log again. A replica locks the folder while it writes, so a second query
# with the same options takes the next one. A folder of that name that others may write is an error, because anyone may
# have made it in /tmp.


MAX_QUERIES = 64
"""Most queries of one account with the same options on one machine. More queries are a sign of a loop that never stops
its queries.
"""


def relay_directory(options: SourceOptions) -> Path:
    """Return an existing folder to use.

    The folder is not locked, so a caller that loses the race for the lock calls again.

    Raises:
        RelayError: there is no free folder, or others can write one.
    """
    if options.relay_dir is not None:
        return options.relay_dir
    base = private_base()
    key = "|".join((options.server, options.connection.user, *options.patterns))
    name = hashlib.sha256(key.encode()).hexdigest()[:16]
    for number in range(1, MAX_QUERIES + 1):
        folder = private_folder(base / f"{name}-{number}")
        if is_free(folder):
            return folder
    raise RelayError(
        f"{MAX_QUERIES} queries with these options are running on this machine.",
        hint="Stop some of them, or give each its own relayDir.",
    )


def private_base() -> Path:
    """Return the account's private folder in the temp folder."""
    return private_folder(Path(tempfile.gettempdir()) / f"spark-mariadb-binlog-{os.getuid()}")


def is_free(folder: Path) -> bool:
    """Return True if no process writes a relay log in the folder now."""
    return lock_holder(folder) is None


def private_folder(folder: Path) -> Path:
    """Return `folder`, and create it if needed.

    Raises:
        RelayError: others can write the folder, or another account owns it.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise RelayError(
            f"{folder} is not a private folder of this account.",
            hint="Set relayDir to a folder that no one else can write.",
        )
    return folder
