"""A real Galera cluster: three nodes with one server id and common GTIDs, and a replica that goes from one to the next.

The cluster of a version is started once for the module; each test makes its own table.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from replica.errors import PositionLostError, PrerequisiteError
from replica.handshake.start.resume import Stored
from replica.live.embedded import EmbeddedReplica
from replica.protocol.gtid import GtidPosition
from replica.relay_log.directory.identity import IDENTITY_NAME, source_of
from replica.relay_log.log import RelayLog
from replica.relay_log.walks.last_event import fingerprint_at
from tests.fixtures.logs.listing import relay_gtids
from tests.fixtures.mariadb import wait_until
from tests.fixtures.other_servers.galera import GaleraCluster
from tests.fixtures.replicas import replica_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from replica.options.config import ReplicaConfig
    from replica.relay_log.location import RelayHead
    from tests.fixtures.other_servers.galera import GaleraNode

pytestmark = [pytest.mark.server, pytest.mark.quick_on("newest")]

WAIT_S = 60.0
NEVER = GtidPosition.parse("4294967295-1-1")


@pytest.fixture(scope="module")
def cluster(server_version: str) -> Iterator[GaleraCluster]:
    with GaleraCluster(server_version) as cluster:
        yield cluster


def config(cluster: GaleraCluster, *nodes: GaleraNode, **options: object) -> ReplicaConfig:
    user, password = cluster.account
    hosts = ",".join(f"{node.host}:{node.port}" for node in nodes)
    return replica_config(nodes[0], **{"host": hosts, "user": user, "password": password, **options})


def everywhere(cluster: GaleraCluster, position: GtidPosition) -> None:
    wait_until(
        lambda: all(GtidPosition.parse(node.gtid_binlog_pos()).get(7) == position.get(7) for node in cluster.nodes),
        f"all nodes have {position}",
    )


def reached(node: GaleraNode) -> GtidPosition:
    return GtidPosition.parse(node.gtid_binlog_pos())


def stored_at(directory: Path, head: RelayHead) -> Stored:
    """What a checkpoint keeps of a place of the log."""
    uid, last = source_of(directory, head.location.file), fingerprint_at(RelayLog(directory), head.location)
    return Stored(head.position, head.primary, 5, uid=uid, last=last)


def test_a_killed_node_is_followed_by_the_next_and_each_row_comes_once(cluster: GaleraCluster, tmp_path: Path) -> None:
    one, two, three = cluster.nodes
    one.sql("CREATE OR REPLACE TABLE d.t(a INT PRIMARY KEY)")
    begin = reached(one)
    everywhere(cluster, begin)
    with EmbeddedReplica(config(cluster, one, two, three), tmp_path) as replica:
        replica.start(begin)
        for number, node in enumerate((one, two, three)):
            node.sql(f"INSERT INTO d.t VALUES ({number})")
        everywhere(cluster, reached(three))
        assert replica.wait_for(reached(one), WAIT_S)
        one.kill()
        cluster.wait_whole(2)
        three.sql("INSERT INTO d.t VALUES (10)")
        assert replica.wait_for(reached(three), WAIT_S)
        one.rejoin()
        cluster.wait_whole()
        two.sql("INSERT INTO d.t VALUES (11)")
        everywhere(cluster, reached(two))
    config_of_one = config(cluster, one)
    with EmbeddedReplica(config_of_one, tmp_path) as replica:  # back to the first, over a restart of ours
        replica.start(None)
        assert replica.wait_for(reached(one), WAIT_S)
    last = reached(one).get(7)
    first = begin.get(7)
    assert last is not None
    assert first is not None
    expected = [f"7-5-{number}" for number in range(first.seq_no + 1, last.seq_no + 1)]
    assert relay_gtids(one, tmp_path) == expected


def test_a_log_of_which_nobody_noted_the_node_is_compared_by_content(cluster: GaleraCluster, tmp_path: Path) -> None:
    """As one of an older release, or without its identity: the server id says that it is the same server."""
    one, two, _ = cluster.nodes
    one.sql("CREATE OR REPLACE TABLE d.o(a INT)", "FLUSH LOCAL BINARY LOGS", "INSERT INTO d.o VALUES (1)")
    with EmbeddedReplica(config(cluster, one), tmp_path) as replica:
        replica.start(GtidPosition())
        assert replica.wait_for(reached(one), WAIT_S)
    everywhere(cluster, reached(one))
    (tmp_path / IDENTITY_NAME).unlink()
    two.sql("INSERT INTO d.o VALUES (2)")
    with EmbeddedReplica(config(cluster, two), tmp_path) as replica:
        replica.start(None)
        assert replica.wait_for(GtidPosition((reached(two).get(7),)), WAIT_S)  # type: ignore[arg-type]
    shared = [gtid for gtid in relay_gtids(one, tmp_path) if gtid.startswith("7-")]
    assert shared == [f"7-5-{number}" for number in range(1, len(shared) + 1)]


def test_what_only_one_node_has_does_not_keep_the_replica_from_another(cluster: GaleraCluster, tmp_path: Path) -> None:
    one, two, _ = cluster.nodes
    one.sql("CREATE OR REPLACE TABLE d.m(a INT) ENGINE=MyISAM")
    begin = reached(one)
    everywhere(cluster, begin)
    with EmbeddedReplica(config(cluster, one), tmp_path) as replica:
        replica.start(begin)
        one.sql("INSERT INTO d.m VALUES (1)")
        assert reached(one).get(100) is not None
        assert replica.wait_for(reached(one), WAIT_S)
    one.sql("CREATE OR REPLACE TABLE d.n(a INT)")
    everywhere(cluster, GtidPosition((reached(one).get(7),)))  # type: ignore[arg-type]
    with EmbeddedReplica(config(cluster, two), tmp_path) as replica:
        replica.start(None)
        assert replica.wait_for(GtidPosition((reached(one).get(7),)), WAIT_S)  # type: ignore[arg-type]


def test_several_nodes_that_number_apart_are_refused(tmp_path: Path) -> None:
    with GaleraCluster(gtid_mode=False, size=2) as cluster:
        one, two = cluster.nodes
        with EmbeddedReplica(config(cluster, one, two), tmp_path / "two") as replica:
            replica.start(GtidPosition())
            with pytest.raises(PrerequisiteError, match="wsrep_gtid_mode is OFF") as caught:
                replica.wait_for(NEVER, WAIT_S)
        assert "same server_id on all nodes" in caught.value.hint
        one.sql("CREATE TABLE d.t(a INT)")
        with EmbeddedReplica(config(cluster, one), tmp_path / "one") as replica:
            replica.start(GtidPosition())
            assert replica.wait_for(reached(one), WAIT_S)


def test_a_lost_relay_log_is_fetched_from_another_node(cluster: GaleraCluster, tmp_path: Path) -> None:
    """As from Spark's checkpoint: place, server id and uid are of the first node, and mean nothing on the second."""
    one, two, _ = cluster.nodes
    one.sql("CREATE OR REPLACE TABLE d.u(a INT)", "INSERT INTO d.u VALUES (1)")
    begin = reached(one)
    with EmbeddedReplica(config(cluster, one), tmp_path / "first") as replica:
        replica.start(GtidPosition())
        assert replica.wait_for(begin, WAIT_S)
        stored = stored_at(tmp_path / "first", replica.head())
    everywhere(cluster, begin)
    two.sql("INSERT INTO d.u VALUES (2)")
    with EmbeddedReplica(config(cluster, two), tmp_path / "second") as replica:
        replica.start(Stored(begin, stored.primary, server_id=5, uid=stored.uid, last=stored.last))
        assert replica.wait_for(GtidPosition((reached(two).get(7),)), WAIT_S)  # type: ignore[arg-type]


def test_a_node_with_another_transaction_under_our_number_is_refused(cluster: GaleraCluster, tmp_path: Path) -> None:
    one, two, _ = cluster.nodes
    one.sql("CREATE OR REPLACE TABLE d.w(a INT)", "INSERT INTO d.w VALUES (1)")
    begin = reached(one)
    with EmbeddedReplica(config(cluster, one), tmp_path / "first") as replica:
        replica.start(GtidPosition())
        assert replica.wait_for(begin, WAIT_S)
        stored = stored_at(tmp_path / "first", replica.head())
    assert stored.last is not None
    everywhere(cluster, begin)
    for other in (replace(stored.last, rows=1), replace(stored.last, time=1)):
        with EmbeddedReplica(config(cluster, two), tmp_path / "second") as replica:
            replica.start(Stored(begin, stored.primary, server_id=5, uid=stored.uid, last=other))
            with pytest.raises(PositionLostError, match="another transaction under the number"):
                replica.wait_for(NEVER, WAIT_S)
