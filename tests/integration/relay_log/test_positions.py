"""Times, places and transactions of a real binlog as GTID positions: asked of the server, its replica and its files."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from click.testing import CliRunner

from replica.commands.cli import program
from replica.commands.tail.source import warnings_logger
from replica.errors import ConfigError, PositionLostError, PositionPurgedError, ReplicaError
from replica.live.embedded import EmbeddedReplica
from replica.options.values import shown_instant
from replica.protocol.gtid import BinlogPosition, Gtid, GtidPosition
from replica.readers.primary import PrimaryReader
from tests.fixtures.replicas import replica_config

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server

LOG = warnings_logger()
WAIT_S = 60.0


class History(NamedTuple):
    """Behind a first file, five files a hundred seconds apart, with three rows of one time each."""

    server: MariaDb
    now: int

    def time(self, number: int) -> int:
        """When file `number` was written, from 0 on."""
        return self.now - 1000 + number * 100


def _written(server: MariaDb) -> History:
    server.sql("SET timestamp = UNIX_TIMESTAMP() - 2000", "CREATE DATABASE d", "CREATE TABLE d.t (a INT)")
    history = History(server, int(time.time()))
    for number in range(5):
        moment = history.time(number)
        rows = (f"INSERT INTO d.t VALUES ({number * 10 + row})" for row in range(3))
        server.sql(f"SET timestamp = {moment - 50}", "FLUSH BINARY LOGS", f"SET timestamp = {moment}", *rows)
    return history


@pytest.fixture(scope="module")
def history(server: MariaDb) -> History:
    return _written(server)


@pytest.fixture
def own_history(make_server: Callable[..., MariaDb], server_version: str) -> History:
    """For a test that changes it."""
    return _written(make_server(server_version))


def _files(server: MariaDb) -> list[str]:
    return [str(server.datadir / name) for name in server.binlogs()]


def test_a_time_is_the_place_before_the_first_transaction_committed_then_or_later(history: History) -> None:
    config = replica_config(history.server)
    for number, seconds in ((0, history.time(0) - 90), (2, history.time(2)), (4, history.time(4))):
        found = PrimaryReader(config, LOG).at_time(seconds)
        assert str(found.position) == f"0-1-{2 + 3 * number}"
        assert found.next is not None
        assert (found.next.gtid, found.next.time_s) == (Gtid(0, 1, 3 + 3 * number), history.time(number))
        assert found.next.place is not None
        assert found.next.place.file == f"bin.{number + 2:06d}"
    ended = PrimaryReader(config, LOG).at_time(history.time(4) + 1)
    assert (str(ended.position), ended.next) == ("0-1-17", None)
    beginning = PrimaryReader(config, LOG).at_time(1)
    assert str(beginning.position) == "", "nothing was ever purged: the first transaction of all"


def test_a_time_to_come_is_refused_with_the_servers_clock(history: History) -> None:
    with pytest.raises(ConfigError, match=r"is in the future: it is 20\d\d-"):
        PrimaryReader(replica_config(history.server), LOG).at_time(int(time.time()) + 3600)


def test_a_place_is_its_position_and_inside_a_transaction_the_one_before(history: History) -> None:
    """BINLOG_GTID_POS counts a transaction as reached behind its GTID event: a start there would lose it."""
    server, config = history.server, replica_config(history.server)
    position, wrong = 8, 0
    for name, offset, kind, *_ in server.sql("SHOW BINLOG EVENTS IN 'bin.000004'"):
        found = PrimaryReader(config, LOG).at_place(BinlogPosition(name, offset))
        if kind in ("Table_map", "Annotate_rows"):
            continue  # one inside is like another, and each is a dump
        inside = kind not in ("Format_desc", "Gtid_list", "Binlog_checkpoint", "Gtid", "Rotate")
        assert (str(found.position), found.inside) == (f"0-1-{position}", inside)
        if kind != "Rotate":
            assert found.next is not None
            assert found.next.gtid.seq_no == position + 1
        wrong += server.value(f"SELECT BINLOG_GTID_POS('{name}', {offset})") != f"0-1-{position}"
        position += kind == "Xid"
    assert wrong >= 3, "the server's own answer would have lost transactions"
    assert str(found.position) == "0-1-11"


@pytest.mark.parametrize("place", ["bin.000004:257", "bin.000099:4", "other.000004:4"])
def test_what_is_no_place_of_the_binlog_is_refused_with_what_there_is(history: History, place: str) -> None:
    file, _, offset = place.partition(":")
    with pytest.raises(ConfigError, match=r"it has the files bin\.000001 to bin\.000006"):
        PrimaryReader(replica_config(history.server), LOG).at_place(BinlogPosition(file, int(offset)))


def test_behind_a_transaction_is_the_position_of_all_domains_until_it_is_purged(own_history: History) -> None:
    history = own_history
    server, config = history.server, replica_config(history.server)
    server.sql("SET gtid_domain_id = 7", "INSERT INTO d.t VALUES (70)")
    server.sql("INSERT INTO d.t VALUES (71)")
    found = PrimaryReader(config, LOG).after_group(Gtid(7, 1, 1))
    assert str(found.position) == "0-1-17,7-1-1"
    assert found.next is not None
    assert found.next.gtid == Gtid(0, 1, 18)
    assert str(PrimaryReader(config, LOG).after_group(Gtid(0, 1, 4)).position) == "0-1-4"
    for missing in (Gtid(0, 1, 99), Gtid(0, 2, 5), Gtid(3, 1, 1)):
        with pytest.raises(PositionLostError, match=f"{missing} is not in the binlog"):
            PrimaryReader(config, LOG).after_group(missing)
    server.purge_binlogs("bin.000004")
    with pytest.raises(PositionPurgedError, match=f"begin at {shown_instant(history.time(2) - 50)}") as caught:
        PrimaryReader(config, LOG).at_time(history.time(0))
    assert "earliest, which is 0-1-8" in caught.value.hint
    accepted = PrimaryReader(config, LOG).at_time(history.time(0), accept_gap=True)
    assert str(accepted.position) == "0-1-8"
    assert str(PrimaryReader(config, LOG).at_time(history.time(3)).position) == "0-1-11"
    with pytest.raises(ReplicaError):
        PrimaryReader(config, LOG).after_group(Gtid(0, 1, 4))


def _command(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(program, ["position", "--json", *arguments], catch_exceptions=False)
    return dict(json.loads(result.stdout))


def test_server_replica_and_files_answer_alike(history: History, tmp_path: Path) -> None:
    server = history.server
    config = replica_config(server)
    end = GtidPosition.parse(server.gtid_binlog_pos())
    with EmbeddedReplica(config, tmp_path / "relay") as replica:
        replica.start(GtidPosition())
        assert replica.wait_for(end, WAIT_S)
    wheres = (
        ["--host", server.host, "--port", str(server.port), "--user", "repl", "--password", "replica-secret"],
        ["--relay-dir", str(tmp_path / "relay")],
        _files(server),
    )
    first = server.sql("SHOW BINLOG EVENTS IN 'bin.000003'")
    gtids = [offset for _, offset, kind, *_ in first if kind == "Gtid"]
    for question, position in (
        (["--time", shown_instant(history.time(1))], "0-1-5"),
        (["--time", shown_instant(history.time(3) - 1)], "0-1-11"),
        (["--file-pos", "bin.000003:4"], "0-1-5"),
        (["--file-pos", f"bin.000003:{gtids[1]}"], "0-1-6"),
        (["--file-pos", f"bin.000003:{gtids[2] + 42}"], "0-1-7"),  # behind the GTID event of the third
        (["--gtid", "0-1-9"], "0-1-9"),
    ):
        answers = [_command(*question, *where) for where in wheres]
        assert [answer["position"] for answer in answers] == [position] * 3, question
        following = int(position.rpartition("-")[2]) + 1
        assert [answer["next"]["gtid"] for answer in answers] == [f"0-1-{following}"] * 3


def test_transactions_prepared_at_a_time_are_resumed_from(any_server: MariaDb) -> None:
    server, now = any_server, int(time.time())
    server.reset_master()
    server.sql(f"SET timestamp = {now - 2000}", "CREATE DATABASE x", "CREATE TABLE x.t (a INT)")
    with server.connect() as session, session.cursor() as cursor:
        cursor.execute(f"SET timestamp = {now - 300}")
        for statement in ("XA START 'x'", "INSERT INTO x.t VALUES (1)", "XA END 'x'", "XA PREPARE 'x'"):
            cursor.execute(statement)
        server.sql(f"SET timestamp = {now - 100}", "INSERT INTO x.t VALUES (2)")
        found = PrimaryReader(replica_config(server), LOG).at_time(now - 200)
        cursor.execute("XA ROLLBACK 'x'")
    assert (str(found.position), str(found.resume)) == ("0-1-3", "0-1-2")
