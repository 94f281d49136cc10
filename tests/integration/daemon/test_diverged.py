"""Servers with the same numbers and other transactions: a promoted clone with a copied server id."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
import structlog

from replica.errors import PositionLostError
from replica.live.embedded import EmbeddedReplica
from replica.protocol.gtid import GtidPosition
from tests.fixtures.logs.listing import relay_gtids
from tests.fixtures.mariadb import MariaDb
from tests.fixtures.replicas import replica_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.server

WAIT_S = 60.0
MADE_AT = 1_700_000_000
NEVER = GtidPosition.parse("4294967295-1-1")


class Clone(MariaDb):
    """A server on a copy of another one's data directory, with the other's server id."""

    def __init__(self, original: MariaDb, *options: str) -> None:
        super().__init__(original.version, *options, server_id=original.server_id)
        self._original = original

    def _template(self) -> Path:
        return self._original.datadir


@pytest.fixture
def pair(server_version: str) -> Iterator[tuple[MariaDb, MariaDb]]:
    """A server at 0-1-2, and a clone of it that was made there."""
    options = ("--log-slave-updates", "--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1")
    with MariaDb(server_version, *options) as first:
        first.sql("CREATE DATABASE d", "CREATE TABLE d.t(a INT)")
        first.stop()
        with Clone(first, *options) as clone:
            first.start()
            yield first, clone


def replicated(first: MariaDb, directory: Path, position: str) -> None:
    with EmbeddedReplica(replica_config(first), directory) as replica:
        replica.start(GtidPosition())
        assert replica.wait_for(GtidPosition.parse(position), WAIT_S)


def test_a_promoted_clone_with_a_copied_server_id_is_gone_on_from(
    pair: tuple[MariaDb, MariaDb], tmp_path: Path
) -> None:
    """Its binlog files have the same names, and the same server id in them: only its content tells what it is."""
    first, clone = pair
    first.sql("INSERT INTO d.t VALUES (1)", "INSERT INTO d.t VALUES (2)")
    replicated(first, tmp_path, "0-1-4")
    # As a replica that was made from a copy has it: the same transactions, under the same numbers, at other places.
    clone.sql("SET SESSION sql_log_bin=0", "CREATE TABLE d.u(a INT)")
    last = first.binlogs()[-1]
    text = subprocess.run(
        [first.binary("mariadb-binlog"), str(first.datadir / last)], capture_output=True, check=True
    ).stdout
    arguments = ["-h127.0.0.1", f"-P{clone.port}", "-uroot", "-proot", "--skip-ssl"]
    clone.sql("FLUSH BINARY LOGS")
    subprocess.run([clone.binary("mariadb"), *arguments], input=text, check=True)
    assert clone.gtid_binlog_pos() == "0-1-4"
    first.stop()
    clone.sql("INSERT INTO d.t VALUES (3)")
    with (
        structlog.testing.capture_logs() as logs,
        EmbeddedReplica(replica_config(clone), tmp_path, log=structlog.get_logger()) as replica,
    ):
        replica.start(None)
        assert replica.wait_for(GtidPosition.parse("0-1-5"), WAIT_S)
    assert relay_gtids(clone, tmp_path) == [f"0-1-{number}" for number in range(1, 6)]
    (said,) = (entry for entry in logs if entry["event"] == "goes on from another server")
    assert said["gtid"] == "0-1-4"


@pytest.mark.parametrize(
    ("second", "value"), [(1, 1), (0, 2)], ids=["alike-in-another-second", "another-in-the-same-second"]
)
def test_a_clone_that_diverged_under_the_same_numbers_is_refused(
    pair: tuple[MariaDb, MariaDb], tmp_path: Path, second: int, value: int
) -> None:
    first, clone = pair
    first.sql(f"SET timestamp={MADE_AT}", "INSERT INTO d.t VALUES (1)")
    replicated(first, tmp_path, "0-1-3")
    before = relay_gtids(first, tmp_path)
    clone.sql(f"SET timestamp={MADE_AT + second}", f"INSERT INTO d.t VALUES ({value})")
    clone.sql("INSERT INTO d.t VALUES (7)")
    assert clone.gtid_binlog_pos() == "0-1-4"
    for host in (clone.host, f"{clone.host},{clone.host}"):  # with several hosts too it is no server that only lags
        with EmbeddedReplica(replica_config(clone, host=host), tmp_path) as replica:
            replica.start(None)
            with pytest.raises(PositionLostError, match="another transaction under the number 0-1-3"):
                replica.wait_for(NEVER, WAIT_S)
    assert relay_gtids(first, tmp_path) == before, "nothing of the other history came in"


def test_where_the_transaction_was_purged_there_is_nothing_to_compare(
    pair: tuple[MariaDb, MariaDb], tmp_path: Path
) -> None:
    first, clone = pair
    replicated(first, tmp_path, "0-1-2")
    first.stop()
    clone.purge_binlogs()
    clone.sql("INSERT INTO d.t VALUES (3)")
    with (
        structlog.testing.capture_logs() as logs,
        EmbeddedReplica(replica_config(clone), tmp_path, log=structlog.get_logger()) as replica,
    ):
        replica.start(None)
        assert replica.wait_for(GtidPosition.parse("0-1-3"), WAIT_S)
    (said,) = (entry for entry in logs if entry["event"] == "cannot compare the last transaction")
    assert "purged" in said["why"]
