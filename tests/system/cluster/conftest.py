"""One cluster for all tests of this folder: hosts with networks and disks of their own, whose parts are killed."""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.installation import installations
from tests.fixtures.mariadb import wait_until
from tests.fixtures.s3_faults import Fault, FaultyStore, Request
from tools.cluster.cluster import Cluster
from tools.cluster.hosts import why_no_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 300.0


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if reason := why_no_hosts():
        pytest.skip(f"no hosts of their own on this machine: {reason}")
    with Cluster(tmp_path_factory.mktemp("cluster") / "hosts", list(installations())[-1]) as running:
        yield running


@pytest.fixture(autouse=True)
def _whole(request: pytest.FixtureRequest) -> Iterator[None]:
    """Bring back the workers that a test took away."""
    yield
    if "cluster" in request.fixturenames:
        for worker in request.getfixturevalue("cluster").workers.values():
            if not worker.runs:
                worker.start()


class HeldPuts:
    """The cluster's store behind a proxy that holds back PUTs of data files or of commits, when it is asked to."""

    NONE, DATA, COMMITS = range(3)

    def __init__(self, cluster: Cluster) -> None:
        self._kind = multiprocessing.get_context("fork").Value("i", self.NONE)
        self._held = multiprocessing.get_context("fork").Value("i", 0)
        store = cluster.store
        self.proxy = FaultyStore(store.address, store.port, self._fault, address=cluster.network.gateway)

    def _fault(self, request: Request) -> Fault | None:
        path = request.path.partition("?")[0]
        of_log = "/_delta_log/" in path
        held = {
            self.NONE: False,
            self.DATA: path.endswith(".parquet") and not of_log,
            self.COMMITS: path.endswith(".json") and of_log and "mirror_control" not in path,
        }[self._kind.value]
        if request.method != "PUT" or not held:
            return None
        self._held.value += 1
        return Fault(delay_s=5.0)

    def wait(self, kind: int) -> None:
        """Hold back such PUTs, and return as soon as one is held."""
        self._held.value = 0
        self._kind.value = kind
        wait_until(lambda: self._held.value, "something is written", timeout_s=PATIENCE_S)

    def release(self) -> None:
        self._kind.value = self.NONE


@pytest.fixture
def held_puts(cluster: Cluster) -> Iterator[HeldPuts]:
    held = HeldPuts(cluster)
    with held.proxy:
        yield held
