"""Peak memory of a replica while one huge transaction passes: a real server, a session, a relay log on disk.

A server writes one transaction of `--megabytes` (2000 by default) with large and small rows; a process of its own
receives it and says at the end how much memory it ever held. Wanted: below 300 MB, kernels and Python included.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replica.errors import ReplicaError
from replica.options.config import ReplicaConfig
from replica.protocol.gtid import GtidPosition
from tests.fixtures.mariadb import MariaDb
from tools.bench.kit.process_times import peak_bytes
from tools.bench.kit.workloads import CACHE
from tools.bench.replica.receiving import receive_relay

if TYPE_CHECKING:
    from collections.abc import Sequence

WANTED_PEAK_MB = 300
ROW_BYTES = (20_000_000, 100, 1_000_000, 250_000, 300_000)


def write_transaction(server: MariaDb, megabytes: int) -> None:
    """One transaction of so many 10^6 bytes: blobs from 100 bytes to 20 MB."""
    server.sql("CREATE DATABASE memory", "CREATE TABLE memory.t (id INT AUTO_INCREMENT PRIMARY KEY, b LONGBLOB)")
    with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
        written = turn = 0
        while written < megabytes * 1_000_000:
            length = ROW_BYTES[turn % len(ROW_BYTES)]
            cursor.execute(f"INSERT INTO memory.t (b) VALUES (REPEAT('{turn % 10}', {length}))")
            written += length
            turn += 1
        connection.commit()


def child(argv: Sequence[str]) -> int:
    """The replica's process: connects, receives up to the target position, prints its peak."""
    host, port, user, password, folder, target = argv
    config = ReplicaConfig.parse({"host": host, "port": int(port), "user": user, "password": password})
    received = receive_relay(config, GtidPosition(), GtidPosition.parse(target), Path(folder)).received_bytes
    print(json.dumps({"received_bytes": received, "peak_bytes": peak_bytes()}))
    return 0


def measure(megabytes: int, version: str | None = None) -> dict[str, Any]:
    """Run it; bytes received and the process's peak resident size."""
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="memory-", dir=CACHE))
    options = (
        "--max-binlog-size=1G",
        "--max-allowed-packet=1G",
        "--innodb-log-file-size=512M",
        "--binlog-cache-size=1M",
    )
    try:
        with MariaDb(version, *options, f"--tmpdir={folder}") as server:
            write_transaction(server, megabytes)
            user, password = server.add_user()
            arguments = [server.host, str(server.port), user, password, str(folder / "relay"), server.gtid_binlog_pos()]
            command = [sys.executable, "-m", "tools.bench.replica.bench_memory", "--child", *arguments]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            return {**json.loads(done.stdout), "server": server.version}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["--child"]:
        return child(argv[1:])
    parser = argparse.ArgumentParser(prog="bench memory", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--megabytes", type=int, default=2000, help="size of the transaction (10^6 bytes)")
    parser.add_argument("--server", default=None, help="MariaDB version, for example 10.11")
    options = parser.parse_args(argv)
    try:
        result = measure(options.megabytes, options.server)
    except ReplicaError as error:
        raise SystemExit(str(error)) from error
    peak = result["peak_bytes"] / 1e6
    met = peak < WANTED_PEAK_MB
    print(
        f"MariaDB {result['server']}: {result['received_bytes'] / 1e6:.0f} MB in one transaction, "
        f"peak {peak:.0f} MB (wanted below {WANTED_PEAK_MB})"
    )
    if options.json:
        print(json.dumps({"benchmark": "memory", "met": met, "wanted_peak_mb": WANTED_PEAK_MB, **result}))
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
