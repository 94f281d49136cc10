"""Sequence numbers that go back (gtid_strict_mode=OFF): stopped before them, or every transaction once and in order."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, NoReturn

import pymysql
import pytest

from replica.errors import AmbiguousPositionError, OutOfOrderGtidError
from replica.handshake.start.resume import Stored
from replica.live.embedded import EmbeddedReplica
from replica.protocol.gtid import GtidPosition
from replica.relay_log.log import RelayLog
from tests.fixtures.logs.listing import relay_files
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.fixtures.replicas import replica_config
from tests.integration.daemon.test_failover import replicate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.server, pytest.mark.quick_on("newest")]

WAIT_S = 60.0


@pytest.fixture
def primary(server_version: str) -> Iterator[MariaDb]:
    with MariaDb(server_version) as started:
        started.sql("CREATE DATABASE o", "CREATE TABLE o.t (a INT)")  # 0-1-1, 0-1-2
        yield started


def write(server: MariaDb, *numbers: int) -> list[str]:
    """A transaction under each of the numbers."""
    for number in numbers:
        server.sql(f"SET gtid_seq_no = {number}", f"INSERT INTO o.t VALUES ({number})")
    return [f"0-{server.server_id}-{number}" for number in numbers]


def listed(server: MariaDb, folder: Path) -> list[str]:
    """The GTIDs of the relay log in their order, by MariaDB's own tool."""
    command = [server.binary("mariadb-binlog"), "--no-defaults", "--verify-binlog-checksum"]
    if server.version != "10.5":  # which does not look at the order
        command.append("--skip-gtid-strict-mode")
    done = subprocess.run([*command, *map(str, relay_files(folder))], capture_output=True, text=True, check=True)
    return re.findall(r"^#.*\bGTID (\d+-\d+-\d+)", done.stdout, re.MULTILINE)


def numbers_of(gtids: list[str]) -> list[int]:
    return [int(gtid.rsplit("-", 1)[1]) for gtid in gtids]


def read_to_the_end(replica: EmbeddedReplica) -> NoReturn:
    while True:
        replica.wait_beyond(replica.head().location, WAIT_S)


def goes_on(server: MariaDb, folder: Path, groups: int, start: GtidPosition | None = None) -> None:
    """A replica that takes what comes has so many groups, and then nothing else; it is ended."""
    with EmbeddedReplica(replica_config(server, gtid_strict_mode=False), folder) as replica:
        replica.start(start)
        wait_until(lambda: replica.head() and replica.progress.groups >= groups, f"{groups} groups have come")
        wait_until(lambda: replica.progress.connections, "it is connected")
        replica.wait_beyond(replica.head().location, 0.3)
        assert replica.progress.groups == groups


def test_stops_before_the_transaction_and_names_both(primary: MariaDb, tmp_path: Path) -> None:
    want = write(primary, 3, 9)
    with EmbeddedReplica(replica_config(primary), tmp_path) as replica:
        replica.start(GtidPosition())
        wait_until(lambda: str(replica.head().position) == want[-1], "all is there")
        write(primary, 2)
        with pytest.raises(OutOfOrderGtidError, match=r"0-\d+-2 at .* comes after 0-\d+-9"):
            read_to_the_end(replica)
    assert listed(primary, tmp_path)[-1] == want[-1]
    with EmbeddedReplica(replica_config(primary), tmp_path) as replica:  # a restart says the same
        replica.start(None)
        with pytest.raises(OutOfOrderGtidError, match="gtid_strict_mode=false"):
            read_to_the_end(replica)
    with EmbeddedReplica(replica_config(primary, gtid_strict_mode=False), tmp_path) as replica:
        replica.start(None)
        wait_until(lambda: str(replica.head().position).endswith("-2"), "it goes on")
    assert numbers_of(listed(primary, tmp_path)) == [1, 2, 3, 9, 2]


STEPS = ((3, 4), (9,), (2,), (3,), (), (4, 9), (9,), (2,), (10,), (11, 5))


@pytest.mark.parametrize("rotate", [False, True])
def test_every_restart_goes_on_at_its_place(primary: MariaDb, tmp_path: Path, *, rotate: bool) -> None:
    # Ended and begun anew after each step; the server rotates before or after it was read, or never.
    want = [1, 2]
    for at, numbers in enumerate(STEPS):
        write(primary, *numbers)
        want += numbers
        if rotate and at % 2:
            primary.sql("FLUSH BINARY LOGS")
        goes_on(primary, tmp_path, len(numbers) + (0 if at else 2), None if at else GtidPosition())
        if rotate and not at % 2:
            primary.sql("FLUSH BINARY LOGS")
        assert numbers_of(listed(primary, tmp_path)) == want


def has(server: MariaDb, gtid: str) -> bool:
    return bool(server.value("SELECT @@gtid_binlog_pos") == gtid)


def test_another_server_is_refused_as_long_as_numbers_may_come_twice(primary: MariaDb, tmp_path: Path) -> None:
    write(primary, 9, 2, 3)
    with MariaDb(primary.version, "--log-slave-updates", server_id=2) as other:
        replicate(primary, other)
        with EmbeddedReplica(replica_config(primary, gtid_strict_mode=False), tmp_path) as replica:
            replica.start(GtidPosition())
            wait_until(lambda: replica.progress.groups >= 5, "all of it")
        wait_until(lambda: has(other, "0-1-3"), "the other server has it too")
        with EmbeddedReplica(replica_config(other, gtid_strict_mode=False), tmp_path) as replica:
            replica.start(None)
            with pytest.raises(AmbiguousPositionError, match=r"0-1-3 matches more than one place"):
                read_to_the_end(replica)
        with EmbeddedReplica(replica_config(primary, gtid_strict_mode=False), tmp_path) as replica:
            replica.start(None)
            write(primary, 10)
            wait_until(lambda: str(replica.head().position) == "0-1-10", "it is above all")
        wait_until(lambda: has(other, "0-1-10"), "the other server has it too")
        with EmbeddedReplica(replica_config(other, gtid_strict_mode=False), tmp_path) as replica:
            replica.start(None)
            write(primary, 11)
            wait_until(lambda: str(replica.head().position) == "0-1-11", "the other server has taken over")
        assert numbers_of(listed(primary, tmp_path)) == [1, 2, 9, 2, 3, 10, 11]


def test_two_primaries_of_one_domain_are_out_of_order_as_for_mariadbd(primary: MariaDb, tmp_path: Path) -> None:
    # 0-1-9, then 0-2-5: error 1950 of a strict mariadbd, whichever server wrote the number.
    write(primary, 9)
    primary.sql("SET server_id = 2", "SET gtid_seq_no = 5", "INSERT INTO o.t VALUES (5)")
    with EmbeddedReplica(replica_config(primary), tmp_path) as replica:
        replica.start(GtidPosition())
        with pytest.raises(OutOfOrderGtidError, match=r"0-2-5 at .* comes after 0-1-9"):
            read_to_the_end(replica)
    primary.sql("SET GLOBAL gtid_strict_mode = ON")
    with pytest.raises(pymysql.err.MySQLError, match="1950"):
        primary.sql("SET server_id = 3", "SET gtid_seq_no = 4", "INSERT INTO o.t VALUES (4)")


def test_numbers_that_went_back_while_nobody_read(primary: MariaDb, tmp_path: Path) -> None:
    # Asked for 0-1-5 the server would begin in its newest file, whose numbers begin below that, and leave out the rest.
    write(primary, 5)
    with EmbeddedReplica(replica_config(primary), tmp_path) as replica:
        replica.start(GtidPosition())
        wait_until(lambda: str(replica.head().position) == "0-1-5", "the last one in order")
    write(primary, 6, 7, 3)
    primary.sql("FLUSH BINARY LOGS")
    write(primary, 4, 5, 6, 20)
    with EmbeddedReplica(replica_config(primary), tmp_path) as replica:
        replica.start(None)
        with pytest.raises(OutOfOrderGtidError, match=r"0-1-3 at .* comes after 0-1-7"):
            read_to_the_end(replica)
    with EmbeddedReplica(replica_config(primary, gtid_strict_mode=False), tmp_path) as replica:
        replica.start(None)
        wait_until(lambda: str(replica.head().position) == "0-1-20", "all of it")
    assert numbers_of(listed(primary, tmp_path)) == [1, 2, 5, 6, 7, 3, 4, 5, 6, 20]


def test_the_log_is_lost_and_begun_anew_at_a_place(primary: MariaDb, tmp_path: Path) -> None:
    # As Spark does: the checkpoint knows the position, its place and the server; there the position names two places.
    write(primary, 9, 2)
    folder = tmp_path / "first"
    with EmbeddedReplica(replica_config(primary, gtid_strict_mode=False), folder) as replica:
        replica.start(GtidPosition())
        wait_until(lambda: replica.progress.groups >= 4, "up to the second 2")
        head = replica.head()
    primary.sql("FLUSH BINARY LOGS")
    write(primary, 3, 9, 10)
    anew = tmp_path / "anew"
    with EmbeddedReplica(replica_config(primary, gtid_strict_mode=False), anew) as replica:
        highest = RelayLog(folder).order().highest
        replica.start(Stored(head.position, head.primary, primary.server_id, highest=highest))
        wait_until(lambda: str(replica.head().position) == "0-1-10", "what follows")
        assert replica.log.locate(head.position, head.primary) is not None, "its place is the beginning"
    assert numbers_of(listed(primary, anew)) == [3, 9, 10]


def test_the_latest_position_is_a_place_where_it_names_two(primary: MariaDb, tmp_path: Path) -> None:
    # The server ends with a second 0-1-3: asked for that position it would send what stands behind the first.
    write(primary, 3, 9, 3)
    with EmbeddedReplica(replica_config(primary, start="latest"), tmp_path) as replica:
        replica.start(None)
        wait_until(lambda: replica.progress.connections, "it is connected")
        write(primary, 20)
        wait_until(lambda: str(replica.head().position) == "0-1-20", "the next one")
    assert numbers_of(listed(primary, tmp_path)) == [20]
