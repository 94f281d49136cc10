"""L on real servers: never behind what a snapshot misses, whatever the pair says; at once where no commit can be under
way.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

import pytest

from replica.errors import PrerequisiteError
from replica.live.embedded import EmbeddedReplica
from replica.protocol.gtid import BinlogPosition, GtidPosition, Order
from replica.relay_log.log import RelayLog
from replica.snapshot.connection.connection import TableConnection
from replica.snapshot.watermark.low import LowWatermark, ask_no_commit, ask_status
from replica.snapshot.watermark.primary import XaCommits
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.fixtures.replicas import replica_config
from tests.integration.snapshot.kit.running_statement import running_statement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from replica.relay_log.location import RelayHead

pytestmark = [pytest.mark.server, pytest.mark.quick_on("newest")]

WAIT_S = 60.0
SEMI_SYNC = (
    "--rpl-semi-sync-master-enabled=ON",
    "--rpl-semi-sync-master-wait-no-slave=ON",
    "--rpl-semi-sync-master-wait-point=AFTER_SYNC",
    "--rpl-semi-sync-master-timeout=600000",
)


@contextlib.contextmanager
def read_lower(
    server: MariaDb, directory: Path, age_s: float, start: GtidPosition | None = None
) -> Iterator[tuple[LowWatermark, RelayLog]]:
    """L of a server whose binlog is received into `directory`."""
    config = replica_config(server)
    with EmbeddedReplica(config, directory) as replica:
        replica.start(start)
        log = RelayLog(directory)
        wait_until(lambda: log.head() is not None, "the relay log begins")
        lower = LowWatermark(config, config.endpoints[0], log, age_s=age_s)
        with contextlib.closing(lower):
            yield lower, log


def replicate(first: MariaDb, second: MariaDb) -> None:
    user, password = first.add_user()
    # 11.4 and later verify the primary's certificate unless told otherwise; this one has none.
    plain = ", master_ssl=0, master_ssl_verify_server_cert=0" if first.version >= "11" else ""
    second.sql(
        f"CHANGE MASTER TO master_host='{first.host}', master_port={first.port}, master_user='{user}', "
        f"master_password='{password}', master_use_gtid=slave_pos, master_connect_retry=1{plain}",
        "START SLAVE",
    )


def received(log: RelayLog) -> str:
    head = log.head()
    return "" if head is None else str(head.position)


def polled(lower: LowWatermark) -> RelayHead | None:
    lower.poll()
    return lower.watermark()


def wait_for(lower: LowWatermark, position: str) -> None:
    def there() -> bool:
        found = polled(lower)
        return found is not None and str(found.position) == position

    wait_until(there, f"L is at {position}")


def pair_of(server: MariaDb) -> BinlogPosition:
    found = dict(server.sql("SHOW STATUS LIKE 'binlog_snapshot_%'"))
    return BinlogPosition(found["Binlog_snapshot_file"], int(found["Binlog_snapshot_position"]))


def test_it_stays_before_a_commit_that_waits_while_the_binlog_is_rotated(
    make_server: Callable[..., MariaDb], server_version: str, tmp_path: Path
) -> None:
    server = make_server(server_version, *SEMI_SYNC)
    server.sql("SET GLOBAL rpl_semi_sync_master_enabled = OFF")
    server.sql("CREATE DATABASE s", "CREATE TABLE s.t (id INT PRIMARY KEY) ENGINE=InnoDB", "INSERT INTO s.t VALUES (1)")
    config = replica_config(server)
    before = server.gtid_binlog_pos()
    with read_lower(server, tmp_path, 0.5, GtidPosition()) as (lower, log):
        wait_for(lower, before)
        server.sql("SET GLOBAL rpl_semi_sync_master_enabled = ON")
        hanging = threading.Thread(target=server.sql, args=("INSERT INTO s.t VALUES (2)",))
        hanging.start()
        wait_until(lambda: server.gtid_binlog_pos() != before, "the row is in the binlog")
        wait_until(lambda: received(log) == server.gtid_binlog_pos(), "we have it")
        rotating = threading.Thread(target=server.sql, args=("FLUSH BINARY LOGS",))
        rotating.start()
        wait_until(lambda: pair_of(server).file == "bin.000002", "the binlog is rotated")
        pair = pair_of(server)
        wrong = server.value(f"SELECT BINLOG_GTID_POS('{pair.file}', {pair.position})")
        assert wrong == server.gtid_binlog_pos() != before, "the pair covers a row that no snapshot sees"
        fresh = LowWatermark(config, config.endpoints[0], log, age_s=600)
        with (
            contextlib.closing(TableConnection.open(config, config.endpoints[0])) as connection,
            contextlib.closing(fresh),
        ):
            for _ in range(30):
                assert polled(fresh) is None, "a commit is under way"
                found = polled(lower)
                assert found is not None
                assert str(found.position) == before
                upper = connection.begin_snapshot()
                assert connection.rows("SELECT COUNT(*) FROM s.t") == [("1",)]
                connection.end_snapshot()
                assert str(upper) != before
                time.sleep(0.1)
            server.sql("SET GLOBAL rpl_semi_sync_master_enabled = OFF")
            hanging.join(WAIT_S)
            rotating.join(WAIT_S)
            wait_for(fresh, server.gtid_binlog_pos())
        wait_for(lower, server.gtid_binlog_pos())
        server.sql("INSERT INTO s.t VALUES (3)")
        wait_for(lower, server.gtid_binlog_pos())


def test_a_server_without_a_group_is_at_rest(
    make_server: Callable[..., MariaDb], server_version: str, tmp_path: Path
) -> None:
    server = make_server(server_version)
    replica_config(server)  # makes the account
    server.reset_master()
    assert server.gtid_binlog_pos() == ""
    with read_lower(server, tmp_path, 600) as (lower, _):
        found = polled(lower)
        assert found is not None, lower.reason
        assert found.position == GtidPosition()
        assert lower.reason == ""


def test_a_server_that_commits_nothing_has_it_at_once_where_the_log_begins(
    make_server: Callable[..., MariaDb], server_version: str, tmp_path: Path
) -> None:
    """No group of the log tells of a commit, and the last one of the server is young."""
    server = make_server(server_version)
    config = replica_config(server)
    server.sql("CREATE DATABASE s", "CREATE TABLE s.t (id INT PRIMARY KEY) ENGINE=InnoDB", "INSERT INTO s.t VALUES (1)")
    with read_lower(server, tmp_path, 600, GtidPosition.parse(server.gtid_binlog_pos())) as (lower, _):
        wait_for(lower, server.gtid_binlog_pos())
        assert lower.reason == ""
        other = LowWatermark(config, config.endpoints[0], RelayLog(tmp_path), age_s=600)
        with contextlib.closing(other):
            with running_statement(server):
                for _ in range(10):
                    assert polled(other) is None, "it may be a commit: the account is not shown what it does"
            wait_for(other, server.gtid_binlog_pos())


def test_a_server_at_rest_after_its_last_commit_and_after_a_restart(
    make_server: Callable[..., MariaDb], server_version: str, tmp_path: Path
) -> None:
    server = make_server(server_version)
    server.sql("CREATE DATABASE s", "CREATE TABLE s.t (id INT PRIMARY KEY) ENGINE=InnoDB")
    with read_lower(server, tmp_path / "one", 1, GtidPosition()) as (lower, _):
        wait_for(lower, server.gtid_binlog_pos())
    server.stop()
    server.start()
    with read_lower(server, tmp_path / "two", 1, GtidPosition()) as (lower, _):
        wait_for(lower, server.gtid_binlog_pos())


def test_snapshots_see_all_up_to_it_under_load_and_rotation_and_monitoring(
    make_server: Callable[..., MariaDb], server_version: str, tmp_path: Path
) -> None:
    server = make_server(server_version, "--max-binlog-size=4096", "--sync-binlog=1")
    server.sql("CREATE DATABASE s", "CREATE TABLE s.t (id INT PRIMARY KEY AUTO_INCREMENT, v INT) ENGINE=InnoDB")
    config = replica_config(server)
    before = GtidPosition.parse(server.gtid_binlog_pos()).gtids[0].seq_no
    ending = threading.Event()

    def work(statement: str) -> None:
        with server.connect() as connection, connection.cursor() as cursor:
            while not ending.is_set():
                cursor.execute(statement)

    threads = [threading.Thread(target=work, args=("INSERT INTO s.t (v) VALUES (1)",)) for _ in range(3)]
    threads += [threading.Thread(target=work, args=("SHOW GLOBAL STATUS LIKE 'b%'",))]
    with (
        read_lower(server, tmp_path, 0.3) as (lower, _),
        contextlib.closing(TableConnection.open(config, config.endpoints[0])) as connection,
    ):
        for thread in threads:
            thread.start()
        try:
            seen: list[int] = []

            def enough() -> bool:
                found = polled(lower)
                upper = connection.begin_snapshot()
                ((count,),) = connection.rows("SELECT COUNT(*) FROM s.t")
                connection.end_snapshot()
                if found is not None:
                    number = found.position.gtids[0].seq_no - before
                    assert number <= int(count or 0)
                    assert found.position.compare(upper) in (Order.BEFORE, Order.EQUAL)
                    seen.append(number)
                return len(set(seen)) >= 10

            wait_until(enough, "ten places")
        finally:
            ending.set()
            for thread in threads:
                thread.join(WAIT_S)
    assert seen == sorted(seen)


def test_where_no_commit_can_be_under_way_snapshots_see_all_that_the_log_has(
    make_server: Callable[..., MariaDb], server_version: str, tmp_path: Path
) -> None:
    """Under writers that pause, each in a domain of its own; one takes Aria in, which has no two phases."""
    server = make_server(server_version, "--max-binlog-size=4096", "--sync-binlog=1")
    server.sql("CREATE DATABASE s", *(f"CREATE TABLE s.t{n} (id INT PRIMARY KEY AUTO_INCREMENT)" for n in (1, 2)))
    server.sql("CREATE TABLE s.a (id INT PRIMARY KEY AUTO_INCREMENT) ENGINE=Aria")
    config = replica_config(server)
    ending = threading.Event()
    plain = ("INSERT INTO s.t1 VALUES (NULL)",)
    mixed = ("BEGIN", "INSERT INTO s.t2 VALUES (NULL)", "INSERT INTO s.a VALUES (NULL)", "COMMIT")
    server.sql("SET gtid_domain_id = 2", *mixed)
    once = GtidPosition.parse(server.gtid_binlog_pos()).get(2)
    assert once is not None
    groups_a_row = {1: 1, 2: once.seq_no}

    def work(domain: int, *statements: str) -> None:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"SET gtid_domain_id = {domain}")
            while not ending.wait(0.002):
                for statement in statements:
                    cursor.execute(statement)

    threads = [threading.Thread(target=work, args=(1, *plain)), threading.Thread(target=work, args=(2, *mixed))]
    with (
        read_lower(server, tmp_path, 600) as (_, log),
        contextlib.closing(TableConnection.open(config, config.endpoints[0])) as connection,
    ):
        seen: set[str] = set()

        def enough() -> bool:
            head = log.head()
            settled = connection.run(ask_no_commit())
            connection.begin_snapshot()
            rows = {n: int(connection.rows(f"SELECT COUNT(*) FROM s.t{n}")[0][0] or 0) for n in (1, 2)}
            connection.end_snapshot()
            if settled and head is not None:
                for domain, count in rows.items():
                    last = head.position.get(domain)
                    assert last is None or last.seq_no // groups_a_row[domain] <= count
                seen.add(str(head.position))
            return len(seen) >= 30

        for thread in threads:
            thread.start()
        try:
            wait_until(enough, "thirty places")
        finally:
            ending.set()
            for thread in threads:
                thread.join(WAIT_S)


def prepare(server: MariaDb, name: str, row: int) -> None:
    server.sql(f"XA START '{name}'", f"INSERT INTO x.t VALUES ({row})", f"XA END '{name}'", f"XA PREPARE '{name}'")


@pytest.mark.parametrize("own", [True, False], ids=["by its own session", "by another session"])
def test_an_xa_commit_is_listed_until_the_engine_is_done_with_it(
    make_server: Callable[..., MariaDb], server_version: str, tmp_path: Path, *, own: bool
) -> None:
    server = make_server(server_version, *SEMI_SYNC)
    server.sql("SET GLOBAL rpl_semi_sync_master_enabled = OFF")
    server.sql("CREATE DATABASE x", "CREATE TABLE x.t (id INT PRIMARY KEY) ENGINE=InnoDB")
    config = replica_config(server)
    with (
        read_lower(server, tmp_path, 0.3, GtidPosition()) as (_, log),
        contextlib.closing(TableConnection.open(config, config.endpoints[0])) as connection,
        server.connect() as session,
        session.cursor() as cursor,
    ):

        def settled() -> bool:
            return connection.run(ask_no_commit())

        def lower() -> str:
            """L, were all committed but XA COMMITs."""
            head = log.head()
            assert head is not None
            commits = XaCommits(log)
            commits.update(head.location, connection.run(ask_status()).prepared)
            found = commits.watermark(head)
            assert found is not None
            return str(found.position)

        if own:
            for statement in ("XA START 'a'", "INSERT INTO x.t VALUES (1)", "XA END 'a'", "XA PREPARE 'a'"):
                cursor.execute(statement)
        else:
            prepare(server, "a", 1)
        before = server.gtid_binlog_pos()
        wait_until(lambda: received(log) == before, "we have it")
        assert lower() == before
        server.sql("SET GLOBAL rpl_semi_sync_master_enabled = ON")
        hanging = threading.Thread(target=cursor.execute, args=("XA COMMIT 'a'",))
        hanging.start()
        wait_until(lambda: received(log) == server.gtid_binlog_pos() != before, "we have it")
        for _ in range(10):
            assert lower() == before
            assert not settled()
            assert server.sql("SELECT id FROM x.t") == []
            time.sleep(0.1)
        server.sql("SET GLOBAL rpl_semi_sync_master_enabled = OFF")
        hanging.join(WAIT_S)
        wait_until(settled, "no commit is under way")
        assert lower() == server.gtid_binlog_pos() != before
        assert server.sql("SELECT id FROM x.t") == [(1,)]


def test_it_does_not_go_back_before_an_xa_commit_whose_rows_the_log_has_not(server: MariaDb, tmp_path: Path) -> None:
    server.sql("CREATE OR REPLACE DATABASE x", "CREATE TABLE x.t (id INT PRIMARY KEY) ENGINE=InnoDB")
    prepare(server, "a", 1)
    with read_lower(server, tmp_path, 0.5, GtidPosition.parse(server.gtid_binlog_pos())) as (lower, log):
        polled(lower)
        server.sql("XA COMMIT 'a'")
        committed = GtidPosition.parse(server.gtid_binlog_pos())
        server.sql("INSERT INTO x.t VALUES (2)")
        wait_until(lambda: received(log) == server.gtid_binlog_pos(), "we have it")
        wait_until(lambda: polled(lower) is not None, "there is a place")
        found = lower.watermark()
        assert found is not None
        assert committed.compare(found.position) in (Order.EQUAL, Order.BEFORE)


def test_a_lost_connection_is_made_again(server: MariaDb, tmp_path: Path) -> None:
    server.sql("CREATE OR REPLACE DATABASE x")
    with read_lower(server, tmp_path, 0.5) as (lower, _):
        assert lower.watermark() is None
        assert lower.reason
        wait_until(lambda: polled(lower) is not None, "there is a place")
        kept = lower.watermark()
        for (thread,) in server.sql(
            "SELECT id FROM information_schema.processlist WHERE user = 'repl' AND command = 'Sleep'"
        ):
            server.sql(f"KILL {thread}")
        wait_until(lambda: bool(polled(lower)) and bool(lower.reason), "it notices")
        assert lower.watermark() == kept
        wait_until(lambda: bool(polled(lower)) and not lower.reason, "it is back")
        assert lower.watermark() == kept


def test_another_server_than_the_relay_logs_is_refused(
    make_server: Callable[..., MariaDb], server: MariaDb, server_version: str, tmp_path: Path
) -> None:
    server.sql("CREATE OR REPLACE DATABASE x")
    with read_lower(server, tmp_path, 0.5, GtidPosition()) as (lower, log):
        wait_until(lambda: polled(lower) is not None, "there is a place")
        other = replica_config(make_server(server_version))
        foreign = LowWatermark(other, other.endpoints[0], log)
        with contextlib.closing(foreign), pytest.raises(PrerequisiteError, match="copied from another server"):
            foreign.poll()


def test_a_replica_is_read_while_the_relay_log_is_its_primarys(
    make_server: Callable[..., MariaDb], server_version: str, tmp_path: Path
) -> None:
    first = make_server(server_version, server_id=1)
    second = make_server(server_version, "--log-slave-updates", server_id=2)
    replicate(first, second)
    first.sql("CREATE DATABASE s", "CREATE TABLE s.t (id INT PRIMARY KEY) ENGINE=InnoDB", "INSERT INTO s.t VALUES (1)")
    wait_until(lambda: second.gtid_binlog_pos() == first.gtid_binlog_pos(), "the replica has it")
    config = replica_config(second)
    with EmbeddedReplica(replica_config(first), tmp_path) as replica:
        replica.start(GtidPosition())
        log = RelayLog(tmp_path)
        lower = LowWatermark(config, config.endpoints[0], log, age_s=0.3, replica=True)
        with contextlib.closing(lower):
            wait_for(lower, first.gtid_binlog_pos())
            second.sql("STOP SLAVE SQL_THREAD")
            before = first.gtid_binlog_pos()
            first.sql("INSERT INTO s.t VALUES (2)")
            wait_until(lambda: received(log) == first.gtid_binlog_pos(), "we have it")
            for _ in range(10):
                found = polled(lower)
                assert found is not None
                assert str(found.position) == before
                time.sleep(0.1)
            second.sql("START SLAVE SQL_THREAD")
            wait_for(lower, first.gtid_binlog_pos())
            assert second.sql("SELECT id FROM s.t ORDER BY id") == [(1,), (2,)]


def test_a_replica_that_does_not_write_what_it_replicates_is_refused(
    make_server: Callable[..., MariaDb], server: MariaDb, server_version: str, tmp_path: Path
) -> None:
    server.sql("CREATE OR REPLACE DATABASE x")
    with read_lower(server, tmp_path, 0.5, GtidPosition()) as (lower, log):
        wait_until(lambda: polled(lower) is not None, "there is a place")
        other = replica_config(make_server(server_version, server_id=2))
        silent = LowWatermark(other, other.endpoints[0], log, replica=True)
        with contextlib.closing(silent), pytest.raises(PrerequisiteError, match="does not write replicated changes"):
            silent.poll()


def test_a_server_without_a_binlog_is_refused(
    make_server: Callable[..., MariaDb], server_version: str, tmp_path: Path
) -> None:
    config = replica_config(make_server(server_version, "--skip-log-bin"))
    lower = LowWatermark(config, config.endpoints[0], RelayLog(tmp_path))
    with contextlib.closing(lower), pytest.raises(PrerequisiteError, match="log_bin is off"):
        lower.poll()
