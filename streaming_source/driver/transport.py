"""The deployment of the Spark application: whether tasks run on this machine, and how many run at once.

The planner runs in a descendant of the driver's JVM, and Spark reports nothing about the cluster to it. But the JVM's
command line has the master and more. PySpark passes settings that are made before the session starts as `--conf`.
spark-submit passes `--master` and the names of properties files. spark-defaults.conf is in SPARK_CONF_DIR or under
SPARK_HOME. Settings of a session that already existed are not visible. Without a visible master, tasks count as not
local, because inline bytes reach every executor and a path may not. The number of cores is then unknown.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streaming_source.driver.driver_process import this_driver

if TYPE_CHECKING:
    from collections.abc import Mapping

UNKNOWN_CORES: Final = 8
"""Cores of a cluster that does not report them. Surplus partitions cost some 30 ms each; with too few, cores are
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
