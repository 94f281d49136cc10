"""Queries over a server whose sequence numbers go back: the planner and the tasks, without Spark.

Each run of a query plans until nothing is left and ends; its checkpoint goes on as the JSON text that Spark keeps.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from replica.commands.explain.command import explain_relay
from replica.errors import AmbiguousPositionError, OutOfOrderGtidError, SchemaError
from replica.protocol.gtid import Gtid, GtidPosition
from replica.readers.log.in_relay_log import RelayLogReader
from replica.relay_log.log import RelayLog
from streaming_source.files.load_files import load_files
from streaming_source.files.partition import read_file_changes
from streaming_source.offsets.offset import SourceOffset
from streaming_source.options.source_options import SourceOptions
from streaming_source.planning.open_planner import open_planner
from streaming_source.rows.reader import read_changes
from streaming_source.source.batch.planning import plan_range
from streaming_source.source.batch.server import end_at_load
from streaming_source.source.load import load_plan
from tests.fixtures.mariadb import ENGINE_LOG_FLUSHED, MariaDb, wait_until
from tests.integration.daemon.test_failover import replicate
from tests.spark.daemons import Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.server, pytest.mark.quick_on("newest")]


def reading(server: MariaDb, folder: Path, **more: str) -> dict[str, str]:
    """The options of every query here."""
    return {
        "host": server.host,
        "port": str(server.port),
        "user": "repl",
        "password": "replica-secret",
        "relayDir": str(folder),
        "table": "o.t",
    } | more


class Query:
    """A streaming query over o.t. `offsets` is the log in its checkpoint, `numbers` its sink."""

    def __init__(self, server: MariaDb, folder: Path, **options: str) -> None:
        self.folder = folder
        self.given = reading(server, folder, startingPosition="earliest") | options
        self.offsets: list[str] = []
        self.numbers: list[int] = []

    def run(self, *numbers: int, again: bool = False, **options: str) -> None:
        """Read until these have come, and nothing else; `again`: the last batch is planned once more first."""
        given = self.given | options
        plan = load_plan(given)
        planner = open_planner(SourceOptions.parse(given), plan)
        try:
            if not self.offsets:
                offset = planner.initial_offset()
                self.offsets.append(json.dumps(planner.latest_offset(offset, bounded=True).json()))
            if again:
                start, end = (SourceOffset.parse(json.loads(text)) for text in self.offsets[-2:])
                del self.numbers[len(self.numbers) - self.last :]
                self._take(planner, plan, start, end)
            before = len(self.numbers)
            idle = 0
            while idle < 3 or len(self.numbers) - before < len(numbers):
                start = SourceOffset.parse(json.loads(self.offsets[-1]))
                end = planner.latest_offset(start, bounded=True)
                idle = idle + 1 if end == start else 0
                if end != start:
                    self.offsets.append(json.dumps(end.json()))
                    self._take(planner, plan, start, end)
            assert self.numbers[before:] == list(numbers)
        finally:
            planner.close()

    last = 0

    def _take(self, planner, plan, start, end) -> None:  # type: ignore[no-untyped-def]
        found = []
        for partition in planner.partitions(start, end):
            for batch in read_changes(partition, plan):
                found += [row["after"]["a"] for row in batch.to_pylist()]
        self.last = len(found)
        self.numbers += found
        planner.commit(end)


class OneRun(Query):
    """The same under Trigger.AvailableNow (`bounded`) or Trigger.Once: each run ends by itself."""

    def finish(self, *numbers: int, bounded: bool) -> None:
        plan = load_plan(self.given)
        planner = open_planner(SourceOptions.parse(self.given), plan)
        before = len(self.numbers)
        try:
            if bounded:
                planner.prepare_available_now()
            start = SourceOffset.parse(json.loads(self.offsets[-1])) if self.offsets else planner.initial_offset()
            while True:
                end = planner.latest_offset(start, bounded=bounded)
                if end == start and (self.offsets or not bounded):
                    break
                self.offsets.append(json.dumps(end.json()))
                self._take(planner, plan, start, end)
                if not bounded:
                    break
                start = SourceOffset.parse(json.loads(self.offsets[-1]))
            assert self.numbers[before:] == list(numbers)
        finally:
            planner.close()


def write(server: MariaDb, *numbers: int) -> None:
    for number in numbers:
        server.sql(f"SET gtid_seq_no = {number}", f"INSERT INTO o.t VALUES ({number})")


@pytest.fixture
def primary(server_version: str) -> Iterator[MariaDb]:
    with MariaDb(server_version, "--binlog-row-metadata=FULL") as started:
        started.add_user()
        started.sql("CREATE DATABASE o", "CREATE TABLE o.t (a INT)")  # 0-1-1, 0-1-2
        yield started


ONE = {"maxTransactionsPerTrigger": "1"}


def test_strict_reads_up_to_it_and_says_how_to_go_on(primary: MariaDb, tmp_path: Path) -> None:
    query = Query(primary, tmp_path / "relay", **ONE)
    write(primary, 8, 9, 2, 10)
    for _ in range(2):  # a restart says the same
        with pytest.raises(OutOfOrderGtidError, match=r"0-1-2 at .* comes after 0-1-9") as caught:
            query.run(0, 0, 0, 0)
        assert "gtidStrictMode=false" in caught.value.hint
        assert query.numbers == [8, 9], "all before it has come"
    query.run(2, 10, gtidStrictMode="false")
    with pytest.raises(OutOfOrderGtidError):  # what is in the log already is judged too
        Query(primary, query.folder).run(0)


@pytest.mark.parametrize("lost", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_restart_after_each_batch_reads_each_row_once(primary: MariaDb, tmp_path: Path, *, lost: bool) -> None:
    query = Query(primary, tmp_path / "relay", gtidStrictMode="false", **ONE)
    for at, numbers in enumerate([(3, 9), (2,), (3,), (), (4, 9, 9), (2,), (10,), (11, 5)]):
        write(primary, *numbers)
        query.run(*numbers, again=at > 0)
        if at % 2:
            primary.sql("FLUSH BINARY LOGS")
        if lost:
            shutil.rmtree(query.folder)
    assert query.numbers == [3, 9, 2, 3, 4, 9, 9, 2, 10, 11, 5]
    assert [json.loads(text)["v"] for text in query.offsets].count(3) > 5


def test_another_server_is_refused_while_the_position_names_two_places(primary: MariaDb, tmp_path: Path) -> None:
    with MariaDb(primary.version, "--log-slave-updates", "--binlog-row-metadata=FULL", server_id=2) as other:
        replicate(primary, other)
        query = Query(primary, tmp_path / "relay", gtidStrictMode="false")
        write(primary, 9, 2)
        query.run(9, 2)
        wait_until(lambda: other.value("SELECT COUNT(*) FROM o.t") == 2, "the other server has both")
        shutil.rmtree(query.folder)
        with pytest.raises(AmbiguousPositionError, match="0-1-2 matches more than one place"):
            query.run(host=other.host, port=str(other.port))
        write(primary, 10)
        query.run(10)
        shutil.rmtree(query.folder)
        write(primary, 11)
        wait_until(lambda: other.gtid_binlog_pos() == "0-1-11", "a copy")
        query.run(11, host=other.host, port=str(other.port))


def rows_of(server: MariaDb, *names: str, **options: str) -> list[int]:
    """A batch read of the server's own binlog files."""
    paths = [str(server.datadir / name) for name in names]
    loaded = load_files({"paths": json.dumps(paths), "table": "o.t"} | options)
    return [
        row["after"]["a"]
        for partition in loaded.partitions
        for batch in read_file_changes(partition, loaded.plan)
        for row in batch.to_pylist()
    ]


def test_files_are_refused_or_read_in_their_order(primary: MariaDb) -> None:
    write(primary, 9)
    primary.sql("FLUSH BINARY LOGS")
    write(primary, 2, 10)
    first, second = primary.binlogs()
    with pytest.raises(OutOfOrderGtidError, match=r"0-1-2 in .*000002 comes after 0-1-9"):
        rows_of(primary, first, second)
    assert rows_of(primary, first, second, gtidStrictMode="false") == [9, 2, 10]
    assert rows_of(primary, second) == [2, 10], "alone it is in order"


def test_explain_and_position_refuse_what_is_there_twice(primary: MariaDb, tmp_path: Path) -> None:
    query = Query(primary, tmp_path / "relay", gtidStrictMode="false")
    write(primary, 9, 2, 9, 12)
    query.run(9, 2, 9, 12)
    log = RelayLog(query.folder)
    for look in (
        lambda: explain_relay(log, Gtid(0, 1, 9), None),
        lambda: RelayLogReader(log).after_group(Gtid(0, 1, 9)),
        lambda: log.locate(GtidPosition.parse("0-1-9")),
    ):
        with pytest.raises(AmbiguousPositionError, match=r"000001:\d+, \S*000001:\d+"):
            look()
    assert explain_relay(log, Gtid(0, 1, 12), None).transaction is not None
    assert str(RelayLogReader(log).after_group(Gtid(0, 1, 12)).position) == "0-1-12"


def batch_of(server: MariaDb, folder: Path, **options: str) -> list[int]:
    """A batch read of the server up to its end."""
    given = reading(server, folder) | options
    parsed, plan = SourceOptions.parse(given), load_plan(given)
    planned = plan_range(parsed, plan, end_at_load(parsed), "one")
    return [
        row["after"]["a"]
        for partition in planned.partitions
        for batch in read_changes(partition, plan)
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("flushed", [False, True])
def test_a_batch_read_ends_at_the_place_of_the_server_s_end(primary: MariaDb, tmp_path: Path, *, flushed: bool) -> None:
    for numbers in ((3, 9, 3), (2,), (9,)):  # each ends with a number that was there before, or lies below
        write(primary, *numbers)
        if flushed:
            primary.sql("FLUSH BINARY LOGS")
        with pytest.raises(OutOfOrderGtidError):
            batch_of(primary, tmp_path)
    assert batch_of(primary, tmp_path, gtidStrictMode="false") == [3, 9, 3, 2, 9]
    assert list(tmp_path.iterdir()) == [] or len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("numbers", [(9, 3), (9, 2)])
def test_what_follows_the_oldest_file_is_read_though_the_server_ends_below_it(
    primary: MariaDb, tmp_path: Path, numbers: tuple[int, ...]
) -> None:
    write(primary, 3)
    primary.sql("FLUSH BINARY LOGS")
    primary.purge_binlogs()
    assert batch_of(primary, tmp_path) == []
    query = OneRun(primary, tmp_path / "idle", gtidStrictMode="false")
    query.finish(bounded=True)
    write(primary, *numbers)
    with pytest.raises(OutOfOrderGtidError):
        batch_of(primary, tmp_path)
    assert batch_of(primary, tmp_path, gtidStrictMode="false") == list(numbers)
    query.finish(*numbers, bounded=True)
    for bounded in (True, False):
        OneRun(primary, tmp_path / f"relay{bounded}", gtidStrictMode="false").finish(*numbers, bounded=bounded)


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("bounded", [False, True])
def test_available_now_and_once_end_at_the_place_of_the_server_s_end(
    primary: MariaDb, tmp_path: Path, *, flushed: bool, bounded: bool
) -> None:
    query = OneRun(primary, tmp_path / "relay", gtidStrictMode="false")
    for at, numbers in enumerate([(3, 9, 3), (), (2,), (3,), (9, 9), (4,), (10,), ()]):
        write(primary, *numbers)
        if flushed:
            primary.sql("FLUSH BINARY LOGS")
        if at % 3 == 2:
            shutil.rmtree(query.folder)
        query.finish(*numbers, bounded=bounded)


def test_a_binlog_checkpoint_behind_the_last_transaction_keeps_no_reading_waiting(
    primary: MariaDb, tmp_path: Path
) -> None:
    query = OneRun(primary, tmp_path / "relay")
    last = 0
    while last < 2 or kind_of_last_event(primary) != "Binlog_checkpoint":
        # Of the file before, which ends as soon as the engine has flushed: behind this transaction, with some luck.
        last += 1
        assert last < 200, "the server writes no checkpoint behind a transaction"
        primary.sql(
            "SET GLOBAL innodb_flush_log_at_trx_commit = 2", "FLUSH BINARY LOGS", f"INSERT INTO o.t VALUES ({last})"
        )
        time.sleep(0.02)
        primary.sql(*ENGINE_LOG_FLUSHED)
        wait_until(lambda: kind_of_last_event(primary) in ("Binlog_checkpoint", "Xid"), "the server has settled")
    query.finish(*range(1, last + 1), bounded=True)
    assert batch_of(primary, tmp_path) == list(range(1, last + 1))
    query.finish(bounded=True)


def kind_of_last_event(server: MariaDb) -> str:
    return str(server.sql(f"SHOW BINLOG EVENTS IN '{server.binlogs()[-1]}'")[-1][2])


def test_available_now_reads_up_to_the_first_that_went_back_and_then_says_so(primary: MariaDb, tmp_path: Path) -> None:
    for bounded in (True, False):
        query = OneRun(primary, tmp_path / f"relay{bounded}")
        write(primary, *((3, 9, 3) if bounded else ()))
        if not bounded:
            query.finish(3, 9, bounded=False)  # its one batch has come
        for _ in range(2):
            with pytest.raises(OutOfOrderGtidError):
                query.finish(0, bounded=bounded)
        assert query.numbers == [3, 9]


@pytest.mark.parametrize(
    ("strict", "flushed"),
    [
        ("true", False),
        ("false", True),
        pytest.param("true", True, marks=pytest.mark.slow),
        pytest.param("false", False, marks=pytest.mark.slow),
    ],
)
def test_the_latest_position_is_the_place_of_the_server_s_end(
    primary: MariaDb, tmp_path: Path, *, strict: str, flushed: bool
) -> None:
    write(primary, 3, 9, 3)
    if flushed:
        primary.sql("FLUSH BINARY LOGS")
    query = Query(primary, tmp_path / "relay", startingPosition="latest", gtidStrictMode=strict)
    query.run()
    write(primary, 20)
    query.run(20)
    write(primary, 21)
    shutil.rmtree(query.folder)
    query.run(21)


def test_a_strict_query_stops_before_what_a_daemon_took(primary: MariaDb, tmp_path: Path) -> None:
    write(primary, 8, 9, 2, 10)
    with Daemon(primary, tmp_path / "relay", "--no-gtid-strict-mode") as daemon:
        daemon.catch_up()
        query = Query(primary, daemon.relay_dir, **ONE)
        for _ in range(2):
            with pytest.raises(OutOfOrderGtidError, match=r"0-1-2 at .* comes after 0-1-9"):
                query.run(0, 0, 0, 0)
            assert query.numbers == [8, 9], "all before it has come"
        query.run(2, 10, gtidStrictMode="false", again=True)


def test_a_point_in_time_recovery_is_read_once(primary: MariaDb, tmp_path: Path) -> None:
    write(primary, 3, 4)
    query = Query(primary, tmp_path / "relay", **ONE)
    query.run(3, 4)
    primary.sql("FLUSH BINARY LOGS")
    binlog = subprocess.run(
        [primary.binary("mariadb-binlog"), "--no-defaults", str(primary.datadir / primary.binlogs()[0])],
        capture_output=True,
        check=True,
    )
    login = [
        f"--host={primary.host}",
        f"--port={primary.port}",
        f"--user={primary.user}",
        f"--password={primary.password}",
    ]
    replay = [
        primary.binary("mariadb"),
        "--no-defaults",
        *login,
        "--skip-ssl-verify-server-cert",
        "--force",
    ]  # the tables are there already
    done = subprocess.run(replay, input=binlog.stdout, capture_output=True, check=False)
    assert b"database exists" in done.stderr, done.stderr
    assert primary.gtid_binlog_pos() == "0-1-4"
    assert primary.value("SELECT COUNT(*) FROM o.t") == 4
    with pytest.raises(OutOfOrderGtidError, match=r"0-1-3 at .* comes after 0-1-4"):
        query.run(0)
    query.run(3, 4, gtidStrictMode="false")
    shutil.rmtree(query.folder)
    write(primary, 4, 5)
    query.run(4, 5, gtidStrictMode="false", again=True)


def test_ddl_among_numbers_that_went_back_is_refused_where_rows_do_not_name_columns(
    server_version: str, tmp_path: Path
) -> None:
    with MariaDb(server_version) as primary:
        primary.add_user()
        primary.sql("CREATE DATABASE o", "CREATE TABLE o.t (a INT, b INT)")
        query = Query(primary, tmp_path / "relay", startingPosition="latest", gtidStrictMode="false", **ONE)
        query.run()
        for number in (9, 3):
            primary.sql(f"SET gtid_seq_no = {number}", f"INSERT INTO o.t VALUES ({number}, 0)")
        query.run(9, 3)
        primary.sql("SET gtid_seq_no = 3", "ALTER TABLE o.t DROP COLUMN a, ADD COLUMN a INT AFTER b")
        primary.sql("SET gtid_seq_no = 3", "INSERT INTO o.t VALUES (0, 4)")
        for _ in range(2):
            with pytest.raises(SchemaError, match=r"0-1-3 changed o\.t: ALTER TABLE.*Sequence numbers went back"):
                query.run(0)
        assert query.numbers == [9, 3]
