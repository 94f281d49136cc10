"""A Spark standalone cluster on this machine that mirrors a MariaDB server into S3, while its parts are killed.

The hosts have their own address, file system and processes: a MariaDB primary, an S3 server, Spark's master, and two
nodes with a worker each. An executor is killed, a node loses its worker, and the driver is killed and continues on the
other node. At the end the audit compares every row. The exit code is 0 if all tables are equal, 21 if this machine
cannot hold the hosts, 130 after Ctrl-C, and 1 otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from replica.errors import ReplicaError
from tests.fixtures.installation import installations
from tools.cluster.cluster import BUCKET, Cluster
from tools.cluster.hosts import require_hosts, shared_paths
from tools.cluster.mirrors import BucketPlace, MirrorOnCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.proofs.soak.mirror.driver import AuditOfAll

ROWS = 20_000
TABLES = ("orders", "customers", "visits")
PATIENCE_S = 600.0


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="scripts/cluster", description=__doc__)
    found.add_argument(
        "--stay", action="store_true", help="start the cluster alone, print how to reach it, and keep it"
    )
    found.add_argument("--writer", choices=["native", "spark"], default="native", help="of the mirror (default native)")
    found.add_argument("--server", choices=list(installations()), help="MariaDB version (default: the newest)")
    return found


@contextlib.contextmanager
def step(doing: str) -> Iterator[None]:
    """Print what is done, and then how long it took."""
    print(f"  {doing} …", end="", flush=True)
    began = time.monotonic()
    yield
    print(f" {time.monotonic() - began:.1f} s", flush=True)


def show(cluster: Cluster) -> None:
    """Print the hosts and what runs there."""
    of_host = {
        "db": f"MariaDB {cluster.primary.version}, port {cluster.primary.port}, user root, password root",
        "store": f"S3 server, {cluster.store.endpoint}, bucket {BUCKET}",
        "master": f"Spark master, {cluster.master.url}, page {cluster.master.page}",
    }
    for host in cluster.network.hosts.values():
        what = of_host.get(host.name, "Spark worker, two cores; drivers")
        print(f"    {host.name:8}{host.address:13}{what}")


def show_connections(cluster: Cluster) -> None:
    """Print how a person reaches the cluster from another terminal."""
    node = next(iter(cluster.workers.values())).host
    enter = " ".join([*node.enter(), "env", f"SPARK_LOCAL_IP={node.address}", "HOME=/root", "TMPDIR=/tmp"])
    print("\nFrom this machine, in another terminal:")
    print(f"  {cluster.primary.binary('mariadb')} -h {cluster.primary.host} -u root -proot --skip-ssl")
    print(f"  a shell on {node.name}:\n    {enter} bash")
    print("  settings of a Spark session there (the keys of S3 are of this run):")
    for name, value in cluster.settings(node).items():
        if name.startswith(("spark.master", "spark.driver.host", "spark.driver.extra", "spark.hadoop", "spark.sql.ca")):
            print(f"    {name}={value}")
    print(f"  all logs: {cluster.network.folder}/*/disk\n\nCtrl-C ends the cluster.", flush=True)


def fill(cluster: Cluster) -> None:
    cluster.primary.sql("CREATE DATABASE shop")
    for table in TABLES:
        cluster.primary.sql(
            "USE shop",
            f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT NOT NULL, t VARCHAR(60))",
            f"INSERT INTO {table} SELECT seq, 0, CONCAT('row ', seq) FROM seq_1_to_{ROWS}",
        )


def change(cluster: Cluster, turn: int) -> None:
    """Change some rows of each table."""
    first = 100 * turn
    for table in TABLES:
        cluster.primary.sql(
            "USE shop",
            f"UPDATE {table} SET v = v + 1, t = 'turn {turn}' WHERE id BETWEEN {first} AND {first + 200}",
            f"DELETE FROM {table} WHERE id BETWEEN {first + 300} AND {first + 310}",
            f"INSERT INTO {table} SELECT seq, {turn}, 'new' FROM seq_{ROWS + first + 1}_to_{ROWS + first + 50}",
        )


def follow(cluster: Cluster, driver: MirrorOnCluster) -> None:
    """Wait until the targets have all that the primary has now."""
    wanted = cluster.primary.gtid_binlog_pos()
    end = time.monotonic() + PATIENCE_S
    while True:
        driver.check()
        states = {} if driver.place.commits("mirror_control") == 0 else driver.states()
        if len(states) == len(TABLES) and {one.position for one in states.values()} == {wanted}:
            return
        if time.monotonic() > end:
            raise TimeoutError(f"the mirror is not at {wanted} after {PATIENCE_S:.0f} s: {states}")
        time.sleep(0.5)


def demo(cluster: Cluster, writer: str) -> AuditOfAll:
    """Mirror, kill, and audit."""
    place = BucketPlace(cluster, "shop.*", "demo", {"writer": writer, "trigger": {"processingTime": "1 second"}})
    with MirrorOnCluster(place, "node1") as driver:
        with step(
            f"node1: a driver mirrors {len(TABLES)} tables of {ROWS} rows into s3a://{BUCKET}, by {writer} writes"
        ):
            driver.start()
            follow(cluster, driver)
        executor = cluster.workers["node2"].executors()[0]
        with step("node2: the executor is killed while rows change"):
            change(cluster, 1)
            executor.kill()
            change(cluster, 2)
            follow(cluster, driver)
        with step("node2: the worker is killed, rows change, the worker comes back"):
            cluster.workers["node2"].kill()
            change(cluster, 3)
            follow(cluster, driver)
            cluster.workers["node2"].start()
        with step("node1: the driver is killed, rows change"):
            change(cluster, 4)
            driver.kill()
            change(cluster, 5)
    with MirrorOnCluster(place, "node2") as driver:
        with step("node2: a new driver goes on from the checkpoint in S3, and fetches the relay log again"):
            driver.start()
            follow(cluster, driver)
        with step("the audit compares every row of every table"):
            return driver.audit()


def run(options: argparse.Namespace, folder: Path) -> bool:
    require_hosts()
    with contextlib.ExitStack() as stack:
        print("A cluster of five hosts, each with an address, a file system and processes of its own:")
        with step("starting MariaDB, the S3 server, Spark's master and two workers"):
            cluster = stack.enter_context(Cluster(folder, options.server or list(installations())[-1]))
        show(cluster)
        print(f"    installed on each host, read-only: {', '.join(map(str, shared_paths()))}")
        if options.stay:
            show_connections(cluster)
            signal.pause()
        with step("filling the tables"):
            fill(cluster)
        found = demo(cluster, options.writer)
    wrong = [table for table, one in found.tables.items() if not one.equal]
    rows = sum(one.rows for one in found.tables.values())
    verdict = f"NOT EQUAL: {', '.join(wrong)}" if wrong else f"EQUAL: {len(found.tables)} tables, {rows} rows"
    print(f"{verdict}, at {found.position}")
    return not wrong and len(found.tables) == len(TABLES)


def main(argv: list[str] | None = None) -> int:
    options = parser().parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="cluster-"))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        equal = run(options, folder)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("\nended: nothing of the cluster is left", file=sys.stderr)
        return 130
    except ReplicaError as error:
        print(f"cluster: {error}", file=sys.stderr)
        return error.exit_code
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
