"""Positions that a real server does not have any more: refused before the first row, or gone on from where it begins.

Without Spark: the planner as Spark's source process uses it, and rows through the code of a task.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from replica.errors import DataLossError, PositionLostError, PositionPurgedError
from streaming_source.offsets.offset import SourceOffset
from streaming_source.options.source_options import SourceOptions
from streaming_source.planning.open_planner import open_planner
from streaming_source.rows.reader import read_changes
from streaming_source.source.load import load_plan
from tests.fixtures.mariadb import MariaDb

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streaming_source.planning.planner import ChangePlanner

pytestmark = pytest.mark.server


class Query:
    """A streaming query over d.t: its checkpoint is `offset`, its sink is `ids`."""

    def __init__(self, server: MariaDb, folder: Path, **options: str) -> None:
        self.folder = folder
        self.given = {
            "host": server.host,
            "port": str(server.port),
            "user": "repl",
            "password": "replica-secret",
            "relayDir": str(folder),
            "table": "d.t",
            "connectRetry": "60s",
        } | options
        self.offset: SourceOffset | None = None
        self.ids: list[int] = []
        self.report: dict[str, Any] = {}

    def run(self, **options: str) -> list[int]:
        """Start, read what there is, stop; the ids of this run."""
        given = self.given | options
        plan = load_plan(given)
        planner = open_planner(SourceOptions.parse(given), plan)
        try:
            new = self._drain(planner, plan)
        finally:
            planner.close()
        self.ids += new
        return new

    def _drain(self, planner: ChangePlanner, plan: Any) -> list[int]:
        found: list[int] = []
        planner.prepare_available_now()
        if self.offset is None:
            self.offset = planner.initial_offset()
            assert planner.latest_offset(self.offset, bounded=True) == self.offset
        while (end := planner.latest_offset(self.offset, bounded=True)) != self.offset:
            for partition in planner.partitions(self.offset, end):
                for batch in read_changes(partition, plan):
                    found += [row["after"]["id"] for row in batch.to_pylist()]
            self.offset = end
        self.report = planner.report() or {}
        return found

    def lose_relay(self) -> None:
        shutil.rmtree(self.folder)


def _ready(server: MariaDb) -> None:
    server.add_user()
    server.reset_master()
    server.sql("CREATE OR REPLACE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")


def insert(server: MariaDb, *ids: int) -> None:
    for number in ids:
        server.sql(f"INSERT INTO d.t VALUES ({number})")


def purge(server: MariaDb) -> None:
    """All binlog files but a new one."""
    server.sql("FLUSH BINARY LOGS")
    server.purge_binlogs()


@pytest.fixture(scope="module")
def shop(server_version: str) -> Any:
    with MariaDb(server_version, "--binlog-row-metadata=FULL") as running:
        yield running


@pytest.fixture
def server(shop: MariaDb) -> MariaDb:
    _ready(shop)
    return shop


def test_a_purged_start_is_refused_or_gone_over(server: MariaDb, tmp_path: Path) -> None:
    insert(server, 1, 2)  # 0-1-3, 0-1-4
    purge(server)
    insert(server, 3)
    query = Query(server, tmp_path / "relay", startingPosition="0-1-2")
    with pytest.raises(PositionPurgedError, match="purged") as caught:
        query.run()
    assert query.offset is None, "nothing was begun, so that the checkpoint stays empty"
    assert not (tmp_path / "relay" / "relay.000001").exists()
    assert "failOnDataLoss=false continues" in caught.value.hint
    assert query.run(failOnDataLoss="false") == [3]
    assert query.run() == [], "from there on nothing is missing"
    at_the_border = Query(server, tmp_path / "other", startingPosition="0-1-4")
    assert at_the_border.run() == [3], "the last one of those that were removed is a position to go on from"


def test_a_purged_restart_is_refused_or_gone_over_and_told(server: MariaDb, tmp_path: Path) -> None:
    query = Query(server, tmp_path / "relay", startingPosition="earliest")
    insert(server, 1, 2)
    assert query.run() == [1, 2]
    insert(server, 3, 4)
    purge(server)
    insert(server, 5)
    with pytest.raises(PositionPurgedError, match="purged") as caught:
        query.run()
    assert "copy the tables again" in caught.value.hint
    query.lose_relay()
    assert query.run(failOnDataLoss="false") == [5]
    assert query.report["dataLoss"] == [{"after": "0-1-4", "upTo": "0-1-6"}]
    assert query.ids == [1, 2, 5]


@pytest.mark.parametrize("limits", [{}, {"maxBytesPerTrigger": "1"}])
def test_a_relay_log_that_holds_more_is_read_before_the_gap(
    server: MariaDb, tmp_path: Path, limits: dict[str, str]
) -> None:
    """The query had stopped early, its replica had received on."""
    query = Query(server, tmp_path / "relay", startingPosition="earliest", **limits)
    insert(server, 1, 2, 3)
    assert query.run() == [1, 2, 3]
    behind = SourceOffset.parse(query.offset.json())  # type: ignore[union-attr]
    first = query.offset = SourceOffset.parse({"v": 1, "gtid": "0-1-3", "resume": "0-1-3", "server": {}})
    assert first.position != behind.position
    insert(server, 4)
    purge(server)
    insert(server, 5)
    with pytest.raises(PositionPurgedError):
        query.run()
    query.offset = first
    assert query.run(failOnDataLoss="false") == [2, 3, 5]
    assert query.report["dataLoss"] == [{"after": "0-1-5", "upTo": "0-1-6"}]


@pytest.mark.parametrize("lenient", ["true", "false"])
def test_a_reset_with_the_same_numbers_is_another_history(server: MariaDb, tmp_path: Path, lenient: str) -> None:
    query = Query(server, tmp_path / "relay", startingPosition="earliest", failOnDataLoss=lenient)
    insert(server, 1, 2, 3)
    assert query.run() == [1, 2, 3]
    server.reset_master()
    server.sql("INSERT INTO d.t VALUES (101), (102), (103), (104)", *["DO 1"])
    insert(server, *range(105, 112))
    for lose in (False, True):
        if lose:
            query.lose_relay()
        with pytest.raises(PositionLostError, match="was reset") as caught:
            query.run()
        assert "new checkpoint" in caught.value.hint
        assert query.ids == [1, 2, 3], "not one row of the other history"


def test_another_server_and_one_that_diverged_are_refused(
    server: MariaDb, make_server: Callable[..., MariaDb], tmp_path: Path
) -> None:
    query = Query(server, tmp_path / "relay", startingPosition="earliest", failOnDataLoss="false")
    insert(server, 1, 2)
    assert query.run() == [1, 2]
    other = make_server(server.version, "--binlog-row-metadata=FULL", server_id=2)
    _ready(other)
    elsewhere = query.given | {"port": str(other.port)}
    for statements in ((), (f"INSERT INTO d.t VALUES ({number})" for number in range(10))):
        for statement in statements:  # the second time its sequence numbers are beyond ours
            other.sql(statement)
        query.given = elsewhere
        with pytest.raises(PositionLostError, match=r"is another server, or (has diverged|lags)"):
            query.run()
    assert query.ids == [1, 2]


def test_a_position_that_is_still_to_come_or_of_nobody_is_refused_at_the_start(server: MariaDb, tmp_path: Path) -> None:
    insert(server, 1)
    for number, position in enumerate(("0-1-99", "0-7-3", "5-1-1")):
        query = Query(server, tmp_path / str(number), startingPosition=position)
        with pytest.raises(PositionLostError, match=f"does not have {position}") as caught:
            query.run()
        assert "mariadb-replica position" in caught.value.hint
        assert query.offset is None


def test_rows_of_a_prepared_transaction_can_be_lost_alone(server: MariaDb, tmp_path: Path) -> None:
    query = Query(server, tmp_path / "relay", startingPosition="earliest")
    with server.connect() as session, session.cursor() as cursor:
        for statement in ("XA START 'x'", "INSERT INTO d.t VALUES (50)", "XA END 'x'", "XA PREPARE 'x'"):
            cursor.execute(statement)  # 0-1-3
        insert(server, 1)
        assert query.run() == [1]
        assert query.offset is not None
        assert (str(query.offset.position), str(query.offset.resume)) == ("0-1-4", "0-1-2")
        query.lose_relay()
        purge(server)
        insert(server, 2)
        with pytest.raises((PositionPurgedError, DataLossError)) as caught:
            query.run()
        assert "transactions after 0-1-4 are available" in caught.value.message
        assert "those between 0-1-2 and 0-1-4 were removed" in caught.value.message
        assert "its rows are lost" in caught.value.message
        cursor.execute("XA COMMIT 'x'")
    insert(server, 3)
    assert query.run(failOnDataLoss="false") == [2, 3]
    assert query.report["dataLoss"] == [{"after": "0-1-2", "upTo": "0-1-4", "preparedOnly": True}]
