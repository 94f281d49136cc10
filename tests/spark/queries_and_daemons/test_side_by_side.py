"""Many readers of one primary: a daemon with a query at its log, two queries with replicas of their own, and a replica
in this process. Each has its server id, relay folder and semi-sync client; one is stopped, two are killed, and the
others neither notice nor lose anything.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import psutil
import pytest
from pyspark.errors import StreamingQueryException

from replica.live.embedded import EmbeddedReplica
from replica.protocol.gtid import GtidPosition
from replica.relay_log.directory.lock import lock_holder
from replica.relay_log.directory.readers import registered_readers
from tests.fixtures.logs.listing import relay_gtids, server_gtids
from tests.fixtures.mariadb import wait_until
from tests.fixtures.replicas import replica_config
from tests.integration.connection.semisync.semi_sync import OPTIONS, semi_sync
from tests.spark.daemons import Daemon
from tests.spark.queries import PATIENCE_S, Run, Shop, ids, wait

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.fixtures.mariadb import MariaDb

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow]


class _Reader:
    """A query, and the source process that Spark started for it."""

    def __init__(self, run: Run, changes: DataFrame) -> None:
        self.run = run
        self.changes = changes
        self.start()

    def start(self) -> None:
        before = _sources()
        self.query = self.run.start(self.changes)
        wait(lambda: _sources() - before, "its source process", self.query)
        (self.process,) = _sources() - before
        # One after the other: Spark gives each of its Python processes ten seconds to start.
        wait(lambda: len(self.run.rows) > 0, "its first rows", self.query)

    def has(self, rows: int) -> None:
        wait(lambda: len(self.run.rows) >= rows, f"{rows} rows", self.query)
        assert ids(self.run.rows) == [*range(1, rows + 1)]


def _sources() -> set[psutil.Process]:
    """Source processes of the session."""
    found = set()
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "python_streaming_source_runner" in " ".join(child.cmdline()):
                found.add(child)
    return found


def _replicas(primary: MariaDb) -> list[int]:
    """Server ids of those who read from it now."""
    return sorted(int(row[0]) for row in primary.sql("SHOW SLAVE HOSTS"))


def _is_on(primary: MariaDb) -> bool:
    return bool(primary.sql("SHOW STATUS LIKE 'Rpl_semi_sync_master_status'")[0][1] == "ON")


def test_stopped_or_killed_readers_are_not_noticed_by_the_others(
    spark: SparkSession, make_server: Callable[..., MariaDb], tmp_path: Path
) -> None:
    primary = make_server("10.11", *OPTIONS, "--binlog-row-metadata=FULL")
    primary.add_user()
    folders = [tmp_path / name for name in ("daemon", "own", "in-process")]
    with (
        Shop(spark, primary, "shop", tmp_path) as shop,
        Daemon(primary, folders[0], "--semi-sync") as daemon,
        EmbeddedReplica(replica_config(primary, semi_sync=True), folders[2]) as embedded,
    ):
        embedded.start(GtidPosition())
        shop.insert(1)
        daemon.catch_up()
        no_server = dict.fromkeys(("host", "port", "user", "password"))
        attached = _Reader(shop.run("attached"), shop.changes(**no_server, relayDir=folders[0], readerName="orders"))
        own = _Reader(shop.run("own"), shop.changes(semiSync="true", relayDir=folders[1]))
        stopped = _Reader(shop.run("stopped"), shop.changes(relayDir=None))
        readers = [attached, own, stopped]
        # Four replicas, of which three acknowledge; the attached query is none of them.
        assert len(set(_replicas(primary))) == len(primary.dump_threads()) == 4
        assert semi_sync(primary, "clients") == 3
        assert len({lock_holder(folder) for folder in folders}) == 3
        assert [reader.name for reader in registered_readers(folders[0])] == ["orders"]
        shop.insert(2, 3)
        for reader in readers:
            reader.has(4)
        wait_until(lambda: _is_on(primary), "COMMITs wait for an acknowledgement")
        switched_off = semi_sync(primary, "no_times")

        stopped.query.stop()
        wait_until(lambda: len(primary.dump_threads()) == 3, "the primary saw the stopped query leave")
        shop.insert(5, 3)
        for reader in (attached, own):
            reader.has(7)

        replicas = _replicas(primary)
        daemon.kill()
        wait_until(lambda: semi_sync(primary, "clients") == 2, "the primary saw the daemon die")
        shop.insert(8, 3)
        own.has(10)
        own.process.kill()
        with pytest.raises(StreamingQueryException):  # Spark says "Connection reset", or nothing
            own.query.awaitTermination(PATIENCE_S)
        shop.insert(11, 3)
        assert attached.query.isActive
        assert len(attached.run.rows) == 7
        daemon.start()
        own.start()
        for reader in (attached, own):
            reader.has(13)
        wait_until(lambda: semi_sync(primary, "clients") == 3, "all acknowledge again")
        assert _replicas(primary) == replicas  # a server id stays with its relay folder
        stopped.start()
        stopped.has(13)

        # Nobody's COMMIT had to wait for somebody who was gone, and each has the whole history.
        assert semi_sync(primary, "no_times") == switched_off
        everything = server_gtids(primary)
        assert embedded.wait_for(GtidPosition.parse(primary.gtid_binlog_pos()), PATIENCE_S)
        daemon.catch_up()
        for folder in (folders[0], folders[2]):
            assert relay_gtids(primary, folder) == everything
