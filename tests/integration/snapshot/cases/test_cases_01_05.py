"""Cases 1-5: positions that run ahead of the rows. Rotations while commits hang, XA, sessions that look at the status.

The numbers are those of docs/snapshot.md. What only a load brings out (2, 3, 5) is that of `scripts/prove snapshot`,
here for a few thousand rows and without Spark.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from replica.errors import PrerequisiteError
from streaming_source.planning import feed
from tests.fixtures.mariadb import wait_until
from tests.integration.snapshot.kit.query import READ, SnapshotQuery
from tests.integration.snapshot.kit.tables import METADATA, SMALL_CHUNKS, fill, ids
from tools.proofs.snapshot.source import binlogs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

HANGING = (
    METADATA,
    "--rpl-semi-sync-master-wait-no-slave=ON",
    "--rpl-semi-sync-master-wait-point=AFTER_SYNC",
    "--rpl-semi-sync-master-timeout=600000",
)
PREPARED = (
    "XA START 'x'",
    "INSERT INTO s.t VALUES (3, 3, 'xa'), (493, 3, 'xa')",
    "UPDATE s.t SET id = 7 WHERE id = 500",
    "DELETE FROM s.t WHERE id = 20",
    "XA END 'x'",
    "XA PREPARE 'x'",
)


@pytest.mark.quick_on("newest")
def test_case_1_a_rotation_while_a_commit_hangs(
    server_version: str, make_server: Callable[..., MariaDb], tmp_path: Path
) -> None:
    """The position of a snapshot covers the hanging row, its rows do not: it has to come once all the same."""
    server = make_server(server_version, *HANGING)
    fill(server, "s.t", 200, step=10)
    with SnapshotQuery(server, tmp_path, "s.t", **SMALL_CHUNKS, snapshotRowsPerSecond="20") as query:
        query.batch()
        query.batch()
        assert query.reading
        server.sql("SET GLOBAL rpl_semi_sync_master_enabled = ON")
        before = server.gtid_binlog_pos()
        hanging = threading.Thread(target=server.sql, args=("INSERT INTO s.t VALUES (1995, 0, 'hangs')",))
        hanging.start()
        wait_until(lambda: server.gtid_binlog_pos() != before, "the row is in the binlog")
        assert (1995,) not in ids(server, "s.t")
        files = len(binlogs(server))  # SHOW BINARY LOGS would wait, too
        rotating = threading.Thread(target=server.sql, args=("FLUSH BINARY LOGS",))
        rotating.start()
        wait_until(lambda: len(binlogs(server)) > files, "the binlog has rotated")
        while query.reading:
            query.batch()
        assert (1995,) not in ids(server, "s.t"), "all was read while the commit hung"
        server.sql("SET GLOBAL rpl_semi_sync_master_enabled = OFF")
        hanging.join()
        rotating.join()
        server.sql("INSERT INTO s.t VALUES (1, 0, 'behind')")
        query.catch_up()
        assert query.keys("t") == ids(server, "s.t")
        assert query.operations("t", "insert", READ).count((1995,)) == 1


def test_case_4_an_xa_transaction_that_is_prepared_over_the_whole_snapshot(
    server_version: str, make_server: Callable[..., MariaDb], tmp_path: Path
) -> None:
    server = make_server(server_version, METADATA)
    fill(server, "s.t", 50, step=10)
    with SnapshotQuery(server, tmp_path, "s.t", **SMALL_CHUNKS) as query:
        query.begin()
        server.sql(*PREPARED)
        query.read_all()
        assert query.operations("t", READ) == [(n * 10,) for n in range(1, 51)]
        server.sql("XA COMMIT 'x'")
        query.catch_up()
        assert query.keys("t") == ids(server, "s.t")
        assert query.operations("t", "insert", "update", "delete") == [(3,), (493,), (7,), (20,)]


@pytest.mark.parametrize("lose", ["", "relay"])
def test_case_4_an_xa_transaction_that_was_prepared_long_before_the_query_began(
    server_version: str,
    make_server: Callable[..., MariaDb],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lose: str,
) -> None:
    """The relay log begins before its XA PREPARE, some files back: its rows come once, at XA COMMIT."""
    monkeypatch.setattr(feed, "XA_PATIENCE_S", 0.5)
    server = make_server(server_version, METADATA)
    fill(server, "s.t", 50, step=10)
    server.sql(*PREPARED)
    for number in range(3):
        server.sql("FLUSH BINARY LOGS", f"INSERT INTO s.t VALUES ({1000 + number}, 0, 'behind')")
    with SnapshotQuery(server, tmp_path, "s.t", **SMALL_CHUNKS) as query:
        query.batch()
        start, end = query.plan()
        query.stop(lose=lose)
        query.take(query.rows(start, end))
        query.committed(end)
        query.read_all()
        assert query.keys("t") == ids(server, "s.t")
        query.stop(lose=lose)
        server.sql("XA COMMIT 'x'")
        query.catch_up()
        assert query.keys("t") == ids(server, "s.t")
        assert query.operations("t", "insert", "update", "delete") == [(3,), (493,), (7,), (20,)]


def test_case_4_rows_that_were_prepared_before_all_binlogs_are_refused(
    server_version: str, make_server: Callable[..., MariaDb], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "XA_PATIENCE_S", 0.5)
    server = make_server(server_version, METADATA)
    fill(server, "s.t", 50, step=10)
    server.sql("XA START 'x'", "INSERT INTO s.t VALUES (3, 3, 'xa')", "XA END 'x'", "XA PREPARE 'x'")
    server.sql("FLUSH BINARY LOGS")
    server.purge_binlogs()
    with (
        SnapshotQuery(server, tmp_path, "s.t", **SMALL_CHUNKS) as query,
        pytest.raises(PrerequisiteError, match=r"no longer in the binlog"),
    ):
        query.read_all()
