"""Batch reads of a real server: ranges by position and by time, second looks, what is kept and what is refused.

Spark's part is played by pickling: the source to the process that plans, reader and partitions to tasks.
"""

from __future__ import annotations

import os
import pickle
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from replica.errors import ConfigError, DataLossError, PositionPurgedError, RelayError
from replica.options.values import shown_instant
from streaming_source.driver import deployment
from streaming_source.driver.deployment import DriverProcess
from streaming_source.rows.partition import ChangePartition
from streaming_source.source.batch import folders as batch_folders
from streaming_source.source.data_source import MariaDbBinlogSource
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.spark.daemons import Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def moments() -> list[int]:
    return [int(time.time()) - 1000 + 100 * number for number in range(3)]


@contextmanager
def three_times(moments: list[int]) -> Iterator[MariaDb]:
    """Three rows at each of three times, one transaction a row: 0-1-3 to 0-1-11."""
    with MariaDb(None, "--binlog-row-metadata=FULL") as running:
        running.add_user()
        before = f"SET timestamp = {moments[0] - 1000}"
        running.sql(before, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
        for number, moment in enumerate(moments):
            rows = (f"INSERT INTO d.t VALUES ({number * 10 + row})" for row in range(3))
            running.sql(f"SET timestamp = {moment - 50}", "FLUSH BINARY LOGS", f"SET timestamp = {moment}", *rows)
        yield running


@pytest.fixture(scope="module")
def server(moments: list[int]) -> Iterator[MariaDb]:
    with three_times(moments) as running:
        yield running


def _travelled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301


class Frame:
    """A DataFrame: the range is planned at the first look, and read at each."""

    def __init__(self, server: MariaDb | None, **options: object) -> None:
        login = {} if server is None else {"host": server.host, "port": server.port, "user": "repl"}
        secret = {} if server is None else {"password": "replica-secret"}
        given = {"table": "d.t", "transport": "path"} | login | secret | options
        self.source = MariaDbBinlogSource({key.lower(): str(value) for key, value in given.items()})
        self.schema = self.source.schema()
        self.reader: Any = None
        self.parts: list[Any] = []

    def plan(self) -> None:
        self.reader = _travelled(self.source).reader(self.schema)
        self.parts = self.reader.partitions()

    def ids(self) -> list[int]:
        if self.reader is None:
            self.plan()
        task = _travelled(self.reader)
        batches = (batch for part in self.parts for batch in task.read(_travelled(part)))
        return [row["after"]["id"] for batch in batches for row in batch.to_pylist()]

    @property
    def folder(self) -> Path:
        (path,) = {Path(part.path).parent for partition in self.parts for part in partition.ranges}
        return path


def test_a_range_ends_at_load_whatever_comes_later_and_reads_the_same_again(server: MariaDb, tmp_path: Path) -> None:
    frame = Frame(server, relayDir=tmp_path)
    server.sql("INSERT INTO d.t VALUES (900)")
    try:
        assert frame.ids() == [0, 1, 2, 10, 11, 12, 20, 21, 22]
        server.sql("INSERT INTO d.t VALUES (901)")
        assert frame.ids() == [0, 1, 2, 10, 11, 12, 20, 21, 22]
        frame.plan()
        assert frame.ids() == [0, 1, 2, 10, 11, 12, 20, 21, 22]
        assert Frame(server, relayDir=tmp_path, startingPosition="0-1-10").ids() == [22, 900, 901]
        wait_until(lambda: not server.dump_threads(), "no replica is left behind")
    finally:
        server.sql("SET sql_log_bin = 0", "DELETE FROM d.t WHERE id >= 900")


def test_positions_exclude_the_start_and_include_the_end(server: MariaDb, tmp_path: Path) -> None:
    between = Frame(server, relayDir=tmp_path, startingPosition="0-1-4", endingPosition="0-1-7")
    assert between.ids() == [2, 10, 11]
    assert Frame(server, relayDir=tmp_path, startingPosition="0-1-4", endingPosition="0-1-4").ids() == []
    assert Frame(server, relayDir=tmp_path, endingPosition="0-1-3").ids() == [0]


def test_times_join_without_gap_or_overlap(server: MariaDb, moments: list[int], tmp_path: Path) -> None:
    first, second, third = map(shown_instant, moments)
    for start, end, ids in (
        (first, second, [0, 1, 2]),
        (second, third, [10, 11, 12]),
        (first, third, [0, 1, 2, 10, 11, 12]),
        (second, second, []),
    ):
        assert Frame(server, relayDir=tmp_path, startingPosition=start, endingPosition=end).ids() == ids
    later = Frame(server, relayDir=tmp_path, startingPosition=third, endingPosition="0-1-10")
    assert later.ids() == [20, 21]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingPosition": "0-1-9", "endingPosition": "0-1-5"}, "endingPosition 0-1-5 lies before startingPosition"),
        ({"endingPosition": "0-1-5000"}, "endingPosition 0-1-5000 is not reached: the binlog is at 0-1-"),
        ({"endingPosition": "2100-01-01T00:00:00Z"}, "is in the future"),
    ],
)
def test_ranges_that_are_none_are_refused(
    server: MariaDb, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Frame(server, relayDir=tmp_path, **options).plan()
    assert list(tmp_path.iterdir()) == []


def test_a_range_larger_than_the_relay_log_may_be_says_what_to_do(server: MariaDb, tmp_path: Path) -> None:
    server.sql("CREATE TABLE d.large (a LONGBLOB)")
    start = server.gtid_binlog_pos()
    server.sql(*["INSERT INTO d.large VALUES (REPEAT('x', 1000000))"] * 25)
    with pytest.raises(RelayError, match="does not fit into relayMaxBytes, 1 MB") as caught:
        Frame(server, relayDir=tmp_path, relayMaxBytes="1m", relayMaxFileBytes="1m", startingPosition=start).plan()
    assert "trigger(availableNow=True)" in caught.value.hint
    assert list(tmp_path.iterdir()) == [], "and leaves nothing behind"
    server.sql("DROP TABLE d.large")


def test_bytes_on_board_need_no_folder(server: MariaDb, tmp_path: Path) -> None:
    frame = Frame(server, relayDir=tmp_path, transport="inline", endingPosition="0-1-8")
    assert frame.ids() == [0, 1, 2, 10, 11, 12]
    assert list(tmp_path.iterdir()) == []


def test_nothing_secret_travels_to_tasks(server: MariaDb, tmp_path: Path) -> None:
    frame = Frame(server, relayDir=tmp_path, endingPosition="0-1-8")
    frame.plan()
    for value in (frame.reader, frame.parts, repr(frame.reader)):
        assert b"replica-secret" not in pickle.dumps(value)


def test_folders_go_with_their_driver_and_when_nobody_reads_them(
    server: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = [Frame(server, relayDir=tmp_path, endingPosition=f"0-1-{end}") for end in (4, 5, 6, 7)]
    for frame in frames[:3]:
        frame.plan()
    dead = frames[0].folder / batch_folders.STATE_NAME
    dead.write_text(dead.read_text().replace(str(deployment.this_driver().pid), "4194305"))
    idle = frames[1].folder
    monkeypatch.setattr(batch_folders, "touch", lambda _: None)
    old = time.time() - batch_folders.KEEP_S - 3600
    os.utime(idle / batch_folders.STATE_NAME, (old, old))
    frames[3].plan()
    left = {folder.name for folder in tmp_path.iterdir()}
    assert left == {frames[2].folder.name, frames[3].folder.name}
    assert frames[2].ids() == [0, 1, 2, 10]
    with pytest.raises((DataLossError, RelayError)):
        frames[0].ids()


def test_a_process_that_has_another_start_is_another_driver() -> None:
    me = deployment.this_driver()
    assert deployment.lives(me)
    assert not deployment.lives(DriverProcess(me.pid, me.started + 1))


def test_a_daemons_log_is_read_where_it_is(server: MariaDb, moments: list[int], tmp_path: Path) -> None:
    with Daemon(server, tmp_path / "relay") as daemon:
        daemon.catch_up()
        alone = {"relayDir": daemon.relay_dir}
        frame = Frame(None, **alone, endingPosition="0-1-11")
        assert frame.ids() == [0, 1, 2, 10, 11, 12, 20, 21, 22]
        assert frame.folder == daemon.relay_dir
        assert all(isinstance(part, ChangePartition) for part in frame.parts)
        _, second, third = map(shown_instant, moments)
        assert Frame(None, **alone, startingPosition=second, endingPosition=third).ids() == [10, 11, 12]
        readers = daemon.relay_dir / "readers"
        assert list(readers.glob("*.json")) == [], "nothing is kept for it"
        Frame(None, **alone, readerName="nightly", startingPosition="0-1-9", endingPosition="0-1-10").plan()
        assert [path.name for path in readers.glob("*.json")] == ["nightly.json"]
        with pytest.raises(ConfigError, match="is not reached: the binlog is at"):
            Frame(None, **alone, endingPosition="0-1-5000").plan()


def test_purged_ranges_are_refused_at_the_first_look(moments: list[int], tmp_path: Path) -> None:
    with three_times(moments) as server:
        frame = Frame(server, relayDir=tmp_path, startingPosition="0-1-4", endingPosition="0-1-7")
        server.sql("FLUSH BINARY LOGS")
        server.purge_binlogs()
        with pytest.raises(PositionPurgedError, match="purged") as caught:
            frame.plan()
        assert "failOnDataLoss=false" in caught.value.hint
        assert Frame(server, relayDir=tmp_path).ids() == [], "earliest is what there is"
