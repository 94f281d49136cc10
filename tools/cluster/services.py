"""What runs on the hosts of a cluster: Spark's master and workers, a MariaDB primary, an S3 server.

In: a host. Out: a service that can be started, killed and started again there. Each is ready when its start returns.
"""

from __future__ import annotations

import json
import os
import time
import urllib.request
from typing import TYPE_CHECKING, Any, Final

from tests.fixtures.mariadb import MariaDb
from tests.fixtures.object_store import ObjectStore
from tests.fixtures.spark_home import unpacked_spark_home
from tools.cluster.hosts import HostProcess

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import psutil

    from tools.cluster.hosts import Host

MASTER_PORT: Final = 7077
MASTER_PAGE: Final = 8080
WORKER_PAGE: Final = 8081
STORE_PORT: Final = 7070
SERVER_PORT: Final = 3306
PATIENCE_S: Final = 600.0
"""For a JVM to start on a loaded machine."""
EXECUTOR: Final = "CoarseGrainedExecutorBackend"


class ClusterError(RuntimeError):
    """A service did not start; the message has the end of its log."""


class SparkService:
    """Master or worker of a standalone cluster."""

    def __init__(self, host: Host, name: str) -> None:
        self.host = host
        self._name = name
        self._process: HostProcess | None = None

    @property
    def log(self) -> Path:
        return self.host.disk / f"{self._name}.log"

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.runs

    def _start(self, kind: str, *words: str, **more: str) -> None:
        home = unpacked_spark_home()
        settings = {"SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m", "SPARK_NO_DAEMONIZE": "1"}
        settings |= {"SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
        command = [home / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", "--host", self.host.address, *words]
        self._process = self.host.start(command, log=self.log, more=settings | more)

    def kill(self) -> None:
        """Kill the JVM; executors of a worker stay for a moment."""
        if self._process is not None:
            self._process.kill()

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait for a condition, or raise the end of the log."""
        end = time.monotonic() + PATIENCE_S
        while not holds():
            if not self.runs or time.monotonic() > end:
                said = self.log.read_text(encoding="utf-8", errors="replace")[-3000:]
                raise ClusterError(f"{self._name} on {self.host.name}: {what}: {said}")
            time.sleep(0.1)


class SparkMaster(SparkService):
    """The master of the cluster."""

    def __init__(self, host: Host) -> None:
        super().__init__(host, "master")

    @property
    def url(self) -> str:
        return f"spark://{self.host.address}:{MASTER_PORT}"

    @property
    def page(self) -> str:
        return f"http://{self.host.address}:{MASTER_PAGE}"

    def start(self) -> None:
        ports = ("--port", str(MASTER_PORT), "--webui-port", str(MASTER_PAGE))
        # By default the master gives up an application of which ten executors were killed.
        self._start("master.Master", *ports, SPARK_MASTER_OPTS="-Dspark.deploy.maxExecutorRetries=-1")
        self.wait_until(lambda: bool(self.state()), "does not answer")

    def state(self) -> dict[str, Any]:
        """What the master reports of its cluster; empty while it does not answer."""
        try:
            with urllib.request.urlopen(f"{self.page}/json/", timeout=5) as answer:  # noqa: S310
                found: dict[str, Any] = json.load(answer)
        except (OSError, ValueError):
            return {}
        return found

    def alive(self) -> list[str]:
        """Addresses of the workers that are registered and alive."""
        return [one["host"] for one in self.state().get("workers", []) if one["state"] == "ALIVE"]


class SparkWorker(SparkService):
    """The worker of a host, with its executors."""

    def __init__(self, host: Host, master: SparkMaster, *, cores: int, memory: str) -> None:
        super().__init__(host, "worker")
        self.master = master
        self._size = ("--cores", str(cores), "--memory", memory)

    def start(self, **environment: str) -> None:
        """Start the worker, and wait until the master has it. Executors get the `environment`, too."""
        work = self.host.disk / "spark-work"
        ports = ("--webui-port", str(WORKER_PAGE), "--work-dir", str(work))
        environment = {"SPARK_LOCAL_DIRS": str(self.host.disk / "spark-local"), **environment}
        self._start("worker.Worker", *ports, *self._size, self.master.url, **environment)
        self.wait_until(lambda: self.host.address in self.master.alive(), "is not registered")

    def executors(self) -> list[psutil.Process]:
        """JVMs of the executors on this host."""
        return self.host.processes(EXECUTOR)

    def kill(self) -> None:
        """Kill the worker and its executors: the host leaves the cluster."""
        super().kill()
        if self.host.runs:
            for executor in self.executors():
                executor.kill()

    def executor_log(self) -> str:
        """What the executors wrote to their error output."""
        texts = [
            path.read_text(errors="replace") for path in sorted((self.host.disk / "spark-work").glob("*/*/stderr"))
        ]
        return "\n".join(texts)


class ServerOnHost(MariaDb):
    """A MariaDB primary on a host."""

    def __init__(self, host: Host, version: str | None, *options: str) -> None:
        super().__init__(version, "--bind-address=0.0.0.0", *options, port=SERVER_PORT, base=host.disk)
        self.host = host.address
        self._host = host

    def _command(self, *more: str) -> list[str]:
        return [*self._host.enter(own_processes=False), *super()._command(*more)]


class StoreOnHost(ObjectStore):
    """An S3 server on a host."""

    def __init__(self, host: Host) -> None:
        super().__init__(host.disk / "store", port=STORE_PORT)
        self.address = host.address
        self._host = host

    def _command(self) -> list[str | Path]:
        return [*self._host.enter(), *super()._command()]

    def stop(self) -> None:
        """End the server; its objects stay."""
        if self._process is not None:
            HostProcess(self._process).end()
            self._process = None


def class_path(jars: list[Path]) -> str:
    """Return jars as a class path: they are installed on each host."""
    return os.pathsep.join(map(str, jars))
