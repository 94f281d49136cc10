"""A Spark standalone cluster with a MariaDB primary and an S3 server, each on a host of its own.

    with Cluster(folder) as cluster:
        with cluster.driver("node1") as driver:
            driver.run("result = spark.range(10).count()")
        cluster.workers["node1"].kill()

Hosts: `master`, the nodes (a worker each, and drivers), `db`, `store`. They share no disk: data that
a driver leaves for the driver on another host has to be in the store.
"""

from __future__ import annotations

import contextlib
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Self

import psutil

from tests.fixtures.jars import DELTA, delta_jars
from tests.fixtures.object_store import object_store_jars
from tests.recipes.workbench import Workbench
from tests.spark.conftest import CONFIGURATION
from tools.cluster.hosts import Network
from tools.cluster.services import ServerOnHost, SparkMaster, SparkWorker, StoreOnHost, class_path
from tools.proofs.soak.spark.driver import kill_application

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from tools.cluster.hosts import Host

NODES: Final = ("node1", "node2")
BUCKET: Final = "lake"
ACCOUNT: Final = {"user": "repl", "password": "replica-secret"}
CORES: Final = 2
WORKER_MEMORY: Final = "1600m"
JVM: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=128m -XX:+UseSerialGC"


class ClusterDriver(Workbench):
    """A Spark driver on a host of the cluster, which runs code that it is given."""

    def __init__(self, host: Host, settings: Mapping[str, str], name: str) -> None:
        folder = host.disk / name
        folder.mkdir(exist_ok=True)
        super().__init__(settings, folder, {})
        self.host = host

    def _where(self) -> list[str]:
        return [*self.host.enter(), "sh", "-c", 'cd "$0" && exec "$@" 2>>driver.log', str(self.folder)]

    def _environment(self) -> dict[str, str]:
        return super()._environment() | self.host.environment()

    def __exit__(self, kind: type[BaseException] | None = None, *rest: object) -> None:
        if kind is not None:
            self.kill()  # another thread may wait for its answer
        super().__exit__(kind, *rest)

    @property
    def processes(self) -> list[psutil.Process]:
        """The driver script, its JVM, and all that these started."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self._driver.pid).children(recursive=True)
        return []

    def kill(self) -> None:
        """Kill all processes of the driver at once."""
        kill_application(self._driver, None, whole=True)


class Cluster:
    """The whole: hosts, services, drivers. `nodes`: names of the hosts with a worker."""

    def __init__(
        self,
        folder: Path,
        version: str | None = None,
        *,
        server_options: Sequence[str] = ("--binlog-row-metadata=FULL",),
        nodes: Sequence[str] = NODES,
    ) -> None:
        self.network = Network(folder)
        self.workers: dict[str, SparkWorker] = {}
        self._version = version
        self._server_options = server_options
        self._nodes = nodes
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            network = stack.enter_context(self.network)
            self.primary = stack.enter_context(ServerOnHost(network.add("db"), self._version, *self._server_options))
            self.primary.add_user(ACCOUNT["user"], ACCOUNT["password"])
            self.store = stack.enter_context(StoreOnHost(network.add("store")))
            self.store.make_bucket(BUCKET)
            self.master = SparkMaster(network.add("master"))
            self.master.start()
            for name in self._nodes:
                self.workers[name] = SparkWorker(network.add(name), self.master, cores=CORES, memory=WORKER_MEMORY)
                self.workers[name].start()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def server(self) -> dict[str, Any]:
        """Options with which a query reaches the primary."""
        return {"host": self.primary.host, "port": self.primary.port, **ACCOUNT}

    def host(self, name: str) -> Host:
        return self.network.hosts[name]

    def settings(self, host: Host, endpoint: str | None = None) -> dict[str, str]:
        """Settings of a session whose driver runs on a host; `endpoint`: of the store, if not its own."""
        jars = class_path([*delta_jars(), *object_store_jars()])
        settings = CONFIGURATION | DELTA | self.store.spark_settings(endpoint)
        settings.pop("spark.sql.streaming.checkpointFileManagerClass")  # the default, as users have it
        return settings | {
            "spark.master": self.master.url,
            "spark.driver.host": host.address,
            "spark.driver.bindAddress": host.address,
            "spark.driver.extraClassPath": jars,
            "spark.executor.extraClassPath": jars,
            "spark.executor.extraJavaOptions": JVM,
            "spark.executor.memory": "768m",
            "spark.hadoop.fs.s3a.attempts.maximum": "3",
            "spark.hadoop.fs.s3a.connection.timeout": "10s",
            "spark.sql.warehouse.dir": str(host.disk / "warehouse"),
        }

    def driver(self, name: str, *, endpoint: str | None = None, **more: str) -> ClusterDriver:
        """Return a driver for a host, to be entered."""
        host = self.host(name)
        return ClusterDriver(host, self.settings(host, endpoint) | more, "driver")
