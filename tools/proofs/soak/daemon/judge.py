"""Final judges: the whole relay log is replayed by MariaDB and by this project, and compared with the primary's tables.

In: a copy of every relay file, which retention does not remove, and an idle primary. There are three judges:
* `mariadb-binlog` reads all files with their checksums. It must print the same GTIDs in the same order in each domain,
  also in the domain whose numbers go back.
* A fresh mariadbd uses the files as its own relay log, and its SQL thread applies them, including XA transactions.
* `mariadb-replica dump --sql` writes the changes as statements for another fresh mariadbd.
Both servers must then have the same tables as the primary, by CHECKSUM TABLE EXTENDED, and no other tables.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pymysql

from tests.fixtures.installation import PROJECT
from tests.fixtures.mariadb import MariaDb, wait_until
from tools.proofs.soak.daemon.going_back import DOMAIN
from tools.proofs.soak.daemon.pair import DATABASE, OPTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tools.proofs.soak.daemon.relay_watch import RelayWatch

REPLAY_TIMEOUT_S = 900.0
_GTID = re.compile(rb"GTID (\d+)-(\d+)-(\d+)")


def checksums(server: MariaDb) -> dict[str, Any]:
    """Table -> checksum of its rows, whatever their order."""
    names = server.sql(f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{DATABASE}'")
    tables = ", ".join(f"{DATABASE}.`{name}`" for (name,) in sorted(names))
    return dict(server.sql(f"CHECKSUM TABLE {tables} EXTENDED"))


def difference(wanted: dict[str, Any], found: dict[str, Any]) -> str:
    """Which tables differ; empty if none does."""
    missing, more = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    other = sorted(name for name in wanted.keys() & found.keys() if wanted[name] != found[name])
    return "" if not (missing or more or other) else f"missing {missing}, too many {more}, different {other}"


def read_by_the_tool(server: MariaDb, files: Sequence[Path], watch: RelayWatch) -> None:
    command = [server.binary("mariadb-binlog"), "--no-defaults", "--verify-binlog-checksum"]
    if server.version != "10.5":  # which does not look at the order
        command.append("--skip-gtid-strict-mode")
    command += ["--base64-output=decode-rows", *map(str, files)]
    seen: dict[int, int] = {}
    went_back: list[tuple[int, int]] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            match = _GTID.search(line) if line.startswith(b"#") else None
            if match:
                domain, server_id, sequence = map(int, match.groups())
                if domain == DOMAIN:
                    went_back.append((server_id, sequence))
                    continue
                assert sequence == seen.get(domain, 0) + 1, f"mariadb-binlog: {match[0]!r} follows {seen.get(domain)}"
                assert watch.server_of.get((domain, sequence)) == server_id, f"mariadb-binlog alone shows {match[0]!r}"
                seen[domain] = sequence
        errors = process.stderr.read().decode()
    assert process.returncode == 0, f"mariadb-binlog: {errors[-3000:]}"
    assert went_back == watch.counted, f"mariadb-binlog shows domain {DOMAIN} as {went_back}, found was {watch.counted}"
    count = sum(seen.values()) + len(went_back)
    assert count == watch.groups, f"mariadb-binlog shows {seen}, found were {watch.groups} groups"


def replayed_by_the_server(version: str, files: Sequence[Path]) -> dict[str, Any]:
    """The files as the relay log of a server that has no primary."""
    with MariaDb(version, *OPTIONS, "--relay-log=fed", "--skip-slave-start", server_id=77) as server:
        names = [f"fed.{number:06d}" for number in range(1, len(files) + 1)]
        for file, name in zip(files, names, strict=True):
            shutil.copyfile(file, server.datadir / name)
        (server.datadir / "fed.index").write_text("".join(f"./{name}\n" for name in names))
        server.stop()
        server.start()
        server.sql(
            "CHANGE MASTER TO master_host='127.0.0.1', master_port=1, master_user='nobody', master_use_gtid=no, "
            f"relay_log_file='{names[0]}', relay_log_pos=4",
            "START SLAVE SQL_THREAD",
        )
        wait_until(lambda: _applied(server, names[-1]), "the server replayed the log", timeout_s=REPLAY_TIMEOUT_S)
        return checksums(server)


def _applied(server: MariaDb, last: str) -> bool:
    with server.connect() as connection, connection.cursor(pymysql.cursors.DictCursor) as cursor:
        cursor.execute("SHOW SLAVE STATUS")
        state = cursor.fetchall()[0]
    assert not int(state["Last_SQL_Errno"]), f"the server cannot replay the log: {state['Last_SQL_Error']}"
    # It makes itself a new file behind ours as soon as it has read them all.
    return str(state["Relay_Log_File"]) > last or "has read all relay log" in str(state["Slave_SQL_Running_State"])


def replayed_by_us(version: str, files: Sequence[Path]) -> dict[str, Any]:
    with MariaDb(version, *OPTIONS, server_id=78) as server:
        dump = [sys.executable, "-m", "replica", "dump", "--sql", *map(str, files)]
        environment = os.environ | {"PYTHONPATH": str(PROJECT)}
        client = [server.binary("mariadb"), "--no-defaults", "--host=127.0.0.1", f"--port={server.port}"]
        client += [f"--user={server.user}", f"--password={server.password}", "--max-allowed-packet=256M"]
        client += ["--skip-ssl"] if server.version >= "11" else []
        with (
            subprocess.Popen(
                dump, cwd=PROJECT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            ) as source,
            subprocess.Popen(client, stdin=source.stdout, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as sink,
        ):
            assert source.stdout is not None
            source.stdout.close()
            sink_errors = sink.communicate()[1].decode()
            source_errors = source.communicate()[1].decode()
        assert sink.returncode == 0, f"mariadb: {sink_errors[-3000:]}"
        assert source.returncode == 0, f"dump --sql: exit code {source.returncode}: {source_errors[-3000:]}"
        return checksums(server)
