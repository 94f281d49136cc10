"""A mirror of the cluster's primary into its store: targets, control table and checkpoint are in the bucket.

Only the relay log is on a disk of the driver's host. A driver on another host has none, and fetches it again from the
primary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from tools.cluster.cluster import BUCKET, ClusterDriver
from tools.proofs.soak.mirror.driver import MirrorCalls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tools.cluster.cluster import Cluster

RELAY = "/var/tmp/relay"  # noqa: S108  (a folder of each host's own)


class BucketPlace:
    """Where a mirror lies in the bucket, and what it is called with."""

    def __init__(self, cluster: Cluster, tables: str, name: str, options: Mapping[str, object]) -> None:
        self.cluster = cluster
        self.name = name
        self.control = f"delta.`s3a://{BUCKET}/{name}/mirror_control`"
        self.server: Mapping[str, object] = cluster.server
        self.arguments: dict[str, Any] = {
            "tables": tables,
            "into": f"s3a://{BUCKET}/{name}/{{database}}/{{table}}",
            "checkpointLocation": f"s3a://{BUCKET}/{name}-checkpoint",
            "relayDir": f"{RELAY}-{name}",
            **self.server,
            **options,
        }

    def rows(self, table: str, columns: str = "*") -> list[dict[str, Any]]:
        """Rows of a target (`shop/orders`) or of the control table, as delta-rs reads them, without Spark."""
        opened = DeltaTable(f"s3://{BUCKET}/{self.name}/{table}", storage_options=self.cluster.store.options())
        found = pa.table(QueryBuilder().register("t", opened).execute(f"SELECT {columns} FROM t").read_all())
        return found.to_pylist()

    def commits(self, table: str) -> int:
        """Return how many commits a target has; 0 if there is none."""
        log = self.cluster.store.folder / BUCKET / self.name / table / "_delta_log"
        return len(list(log.glob("*.json")))


class MirrorOnCluster(ClusterDriver, MirrorCalls):
    """A driver on a host of the cluster that runs a mirror."""

    def __init__(self, place: BucketPlace, host: str, *, endpoint: str | None = None, **more: str) -> None:
        cluster = place.cluster
        settings = cluster.settings(cluster.host(host), endpoint) | more
        super().__init__(cluster.host(host), settings, f"driver-{place.name}")
        self.place: BucketPlace = place
