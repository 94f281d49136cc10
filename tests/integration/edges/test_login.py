"""Edge cases 80-81: accounts, and what a server demands of them before it replicates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.errors import AuthenticationError, PrerequisiteError, ReplicaError
from replica.live.embedded import EmbeddedReplica
from replica.protocol.gtid import GtidPosition
from tests.fixtures.replicas import replica_config

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server


def position_seen_by(server: MariaDb, directory: Path, user: str, password: str) -> GtidPosition:
    """Log in and replicate as this account; where that ends."""
    replica = EmbeddedReplica(replica_config(server, user=user, password=password), directory)
    try:
        target = replica.server_position()
        replica.start(GtidPosition())
        assert replica.wait_for(target, 60)
        return replica.head().position
    finally:
        replica.close()


@pytest.mark.edge(80)
@pytest.mark.parametrize("password", ["secret", ""])
def test_native_passwords(server: MariaDb, tmp_path: Path, password: str) -> None:
    server.sql("CREATE OR REPLACE DATABASE login")
    server.add_user("native", password)
    assert position_seen_by(server, tmp_path, "native", password) == GtidPosition.parse(server.gtid_binlog_pos())


@pytest.mark.edge(80)
def test_accounts_that_cannot_log_in_this_way(server: MariaDb, tmp_path: Path) -> None:
    server.sql(
        "CREATE OR REPLACE USER ssl_only@'%' IDENTIFIED BY 'x' REQUIRE SSL",
        "CREATE OR REPLACE USER socket_only@'%' IDENTIFIED VIA unix_socket",
        "GRANT REPLICATION SLAVE ON *.* TO ssl_only@'%', socket_only@'%'",
    )
    for user, code in (("ssl_only", 1045), ("socket_only", 1698)):
        with pytest.raises(AuthenticationError) as caught:
            position_seen_by(server, tmp_path, user, "x")
        assert caught.value.code == code
        assert caught.value.hint


@pytest.mark.edge(80)
def test_versions_with_and_without_the_old_prefix(server: MariaDb) -> None:
    with server.connect() as session:
        greeting = str(session.server_version)
    assert greeting.startswith("5.5.5-") == (int(server.version.split(".")[0]) < 11)


@pytest.mark.edge(81)
def test_the_one_privilege_that_is_needed(server: MariaDb, tmp_path: Path) -> None:
    server.sql("CREATE OR REPLACE DATABASE login")
    server.add_user("least", "x", grants="REPLICATION SLAVE")
    assert position_seen_by(server, tmp_path / "least", "least", "x") == GtidPosition.parse(server.gtid_binlog_pos())
    server.add_user("none", "x", grants="")
    with pytest.raises((AuthenticationError, PrerequisiteError), match="REPLICATION SLAVE") as caught:
        position_seen_by(server, tmp_path / "none", "none", "x")
    assert isinstance(caught.value, ReplicaError)
    assert "GRANT REPLICATION SLAVE" in str(caught.value)
