"""GTIDs at the ends of their ranges, as a server writes them: each command prints them as the server does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from replica.live.embedded import EmbeddedReplica
from replica.protocol.gtid import GtidPosition
from tests.fixtures.installation import PROJECT
from tests.fixtures.mariadb import MariaDb
from tests.fixtures.replicas import replica_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.server

WAIT_S = 60.0
LARGE = [f"0-4294967295-{number}" for number in (2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1)]
OTHER = f"4294967295-1-{10**19}"


@pytest.fixture(scope="module")
def primary() -> Iterator[MariaDb]:
    with MariaDb("10.11", "--binlog-row-metadata=FULL") as server:
        server.add_user()
        server.sql("CREATE DATABASE d", "CREATE TABLE d.t (id INT)", "FLUSH BINARY LOGS")
        for number in (2**63 - 1, None, None, 2**64 - 1):  # None: the server counts on by itself
            given = f", gtid_seq_no = {number}" if number else ""
            server.sql(f"SET server_id = 4294967295{given}", "INSERT INTO d.t VALUES (1)")
        server.sql(f"SET gtid_domain_id = 4294967295, gtid_seq_no = {10**19}", "INSERT INTO d.t VALUES (1)")
        yield server


def run(primary: MariaDb, command: str, *arguments: str) -> str:
    connection = ["--host", primary.host, "--port", str(primary.port), "--user", "repl"]
    environment = os.environ | {"MARIADB_REPLICA_PASSWORD": "replica-secret"}
    more = [] if command == "dump" or "--relay-dir" in arguments else connection
    done = subprocess.run(
        [sys.executable, "-m", "replica", command, *more, *arguments],
        env=environment, capture_output=True, text=True, cwd=PROJECT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_dump_prints_them_alike_in_every_form(primary: MariaDb) -> None:
    file = str(primary.datadir / primary.binlogs()[-1])
    assert [json.loads(line)["gtid"] for line in run(primary, "dump", "--json", file).splitlines()] == [*LARGE, OTHER]
    for form in ([], ["--sql"]):
        found = re.findall(r"GTID (\d+-\d+-\S+) ", run(primary, "dump", *form, file))
        assert [gtid for gtid in found if gtid in (*LARGE, OTHER)] == [*LARGE, OTHER], form
        assert not [gtid for gtid in found if "--" in gtid]
    after = run(primary, "dump", "--json", "--start-gtid", LARGE[1], file).splitlines()
    assert [json.loads(line)["gtid"] for line in after] == [*LARGE[2:], OTHER]
    count = json.loads(run(primary, "dump", "--count", "--json", file))
    assert LARGE[-1] in json.dumps(count)


@pytest.mark.slow
def test_a_relay_log_holds_them_and_tail_explain_and_position_find_them(primary: MariaDb, tmp_path: Path) -> None:
    replica = EmbeddedReplica(replica_config(primary), tmp_path)
    try:
        replica.start(GtidPosition())
        end = GtidPosition.parse(primary.gtid_binlog_pos())
        while replica.head().position != end:
            assert replica.wait_beyond(replica.head().location, WAIT_S)
    finally:
        replica.close()
    folder = ["--relay-dir", str(tmp_path)]
    for gtid, before in zip(LARGE[1:], LARGE, strict=False):
        explained = json.loads(run(primary, "explain", gtid, *folder, "--json"))
        assert gtid in json.dumps(explained)
        position = json.loads(run(primary, "position", "--gtid", gtid, *folder, "--json"))
        assert gtid in json.dumps(position)
        rows = run(primary, "tail", "--json", "--no-follow", "--from", before, *folder).splitlines()
        assert json.loads(rows[0])["gtid"] == gtid
