"""The workload's model against the server: same tables, and the same row changes as the server's own tool prints."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.load.workload import TABLES, Workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server

GTID = re.compile(r"^#.*\tGTID (\d+-\d+-\d+)")
ROW = re.compile(r"^### (INSERT INTO|UPDATE|DELETE FROM) `workload`\.`(\w+)`")
KEY = re.compile(r"^###   @1=(\d+)")
OPERATIONS = {"INSERT INTO": "insert", "UPDATE": "update", "DELETE FROM": "delete"}


def logged(server: MariaDb) -> dict[str, list[tuple[str, str, int]]]:
    """GTID -> (operation, table, key) of each row change, from `mariadb-binlog -v`."""
    files = [str(server.datadir / name) for name in server.binlogs()]
    text = subprocess.run(
        [server.binary("mariadb-binlog"), "--base64-output=decode-rows", "-v", *files], capture_output=True, check=True
    ).stdout.decode(errors="replace")
    found: dict[str, list[tuple[str, str, int]]] = {}
    gtid, pending, kept = "", ("", ""), 0
    for line in text.splitlines():
        if match := GTID.match(line):
            gtid = match[1]
        elif line.startswith("SAVEPOINT `here`"):
            kept = len(found.get(gtid, []))
        elif line.startswith("ROLLBACK TO `here`"):
            del found[gtid][kept:]
        elif match := ROW.match(line):
            pending = (OPERATIONS[match[1]], match[2])
        elif (match := KEY.match(line)) and pending[
            0
        ]:  # an update prints its keys twice: the first is the before image
            found.setdefault(gtid, []).append((*pending, int(match[1])))
            pending = ("", "")
    return found


def test_the_model_is_what_the_server_did(server_version: str, make_server: Callable[..., MariaDb]) -> None:
    server = make_server(server_version)
    work = Workload(server, seed=7)
    work.create()
    work.run(1500)
    for table in TABLES:
        assert work.server_rows(table.name) == work.rows(table.name)
    expected = {
        gtid: [(c.op, c.table, (c.before or c.after or ())[0]) for c in changes]
        for gtid, changes in work.transactions.items()
    }
    assert logged(server) == expected
    assert {op for changes in expected.values() for op, _, _ in changes} == {"insert", "update", "delete"}
    assert server.gtid_binlog_pos() == work.gtid_position


def test_the_same_seed_writes_the_same(make_server: Callable[..., MariaDb]) -> None:
    made = []
    for _ in range(2):
        work = Workload(make_server(), seed=3, domains=(5,))
        work.create()
        work.run(150)
        made.append(work.transactions)
    assert made[0] == made[1]


def test_a_foreign_writer_is_noticed(make_server: Callable[..., MariaDb]) -> None:
    work = Workload(make_server(), seed=3)
    work.create()
    work.server.sql("INSERT INTO workload.position (id, version) VALUES (-1, 0)")
    with pytest.raises(AssertionError, match="someone else wrote"):
        work.run(10)
