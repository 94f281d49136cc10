"""Executors that lack a package or have another version of ours, and a relay log that no executor can see."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from replica.version import __version__
from tests.fixtures.installation import PROJECT
from tools.cluster.cluster import BUCKET
from tools.cluster.mirrors import BucketPlace, MirrorOnCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tools.cluster.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1800)]
_COUNT = "result = spark.read.format('mariadb-binlog').options(**{options!r}).load().count()"


@pytest.fixture(scope="module")
def table(cluster: Cluster) -> Iterator[str]:
    cluster.primary.sql("CREATE DATABASE bad", "CREATE TABLE bad.t (id INT PRIMARY KEY, v INT)")
    cluster.primary.sql("USE bad", "INSERT INTO t SELECT seq, seq FROM seq_1_to_1000")
    yield "bad.t"
    cluster.primary.sql("DROP DATABASE bad")


@pytest.fixture
def change_nodes(cluster: Cluster) -> Iterator[Callable[[Path, str], None]]:
    """Run a command on both nodes, where an installed folder can be written; afterwards, they are as before."""

    def change(installed: Path, command: str) -> None:
        for worker in cluster.workers.values():
            worker.host.own_copy(installed)
            worker.host.run("sh", "-c", command)

    yield change
    for worker in cluster.workers.values():
        worker.kill()
        worker.host.crash()
        shutil.rmtree(worker.host.disk / "changed")
        cluster.network.boot(worker.host)
        worker.start()


def test_executors_without_deltalake(cluster: Cluster, table: str, change_nodes: Callable[[Path, str], None]) -> None:
    change_nodes(Path(sys.prefix).resolve(), f"rm -r {sys.prefix}/lib/python3*/site-packages/deltalake*")
    place = BucketPlace(cluster, table, "no-deltalake", {})
    with MirrorOnCluster(place, "master") as driver:
        states = driver.run_whole()
        assert {name: one.state for name, one in states.items()} == {table: "current"}
        assert driver.audit().tables[table].equal
    (row,) = place.rows("mirror_control", "writer")
    assert "deltalake, which is not installed" in row["writer"]
    assert "in the driver and on all executors" in row["writer"]


def test_executors_with_another_version_of_this_package(
    cluster: Cluster, table: str, change_nodes: Callable[[Path, str], None]
) -> None:
    change_nodes(PROJECT, f"sed -i 's/{__version__}/0.0.1/' {PROJECT}/replica/version.py")
    said = (
        rf"InstallationError: the executor on node\d has spark-mariadb-binlog 0\.0\.1 .* the driver has {__version__}"
    )
    place = BucketPlace(cluster, table, "other-version", {})
    with MirrorOnCluster(place, "master") as driver:
        with pytest.raises(AssertionError, match=said):
            driver.run_whole()
        with pytest.raises(AssertionError, match=said):
            driver.run(_COUNT.format(options={**cluster.server, "table": table}))
    assert place.commits(table.replace(".", "/")) <= 1, "at most the empty table that the driver made"


def test_a_path_that_executors_do_not_see(cluster: Cluster, table: str) -> None:
    options = {**cluster.server, "table": table, "startingPosition": "earliest", "transport": "path"}
    with cluster.driver("master") as driver:
        with pytest.raises(AssertionError, match=r"RelayError: .*transport=inline"):
            driver.run(_COUNT.format(options=options))
        assert driver.run(_COUNT.format(options=options | {"transport": "inline"})) == 1000


def test_nothing_of_the_store_is_on_a_disk_of_another_host(cluster: Cluster) -> None:
    assert (cluster.store.folder / BUCKET).is_dir()
    for name in ("node1", "node2", "master", "db"):
        assert cluster.host(name).run("ls", cluster.store.folder, check=False).returncode == 2
