"""Encrypted binlogs of real servers: every version, both algorithms, read as the server itself sends them."""

from __future__ import annotations

import gzip
import subprocess
from typing import TYPE_CHECKING

import pymysql.cursors
import pytest

from replica.errors import ConfigError
from replica.protocol.constants import BINLOG_MAGIC, EventType
from replica.protocol.events.binlog_file import walk
from replica.readers.files.binlog import open_binlog
from replica.readers.files.encryption import KeyRing
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.vectors.load import VERSIONS
from tests.vectors.make_encrypted import ALGORITHMS, KEYS, options, sent, write

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.server


def plain(path: Path, keys: KeyRing) -> bytes:
    with open_binlog(path, keys) as file:
        return BINLOG_MAGIC + b"".join(part.data for part in file.ranges(max_bytes=10_000))


@pytest.mark.edge(65)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("version", VERSIONS)
def test_files_are_what_the_server_sends(tmp_path: Path, version: str, algorithm: str) -> None:
    """Lengths of every remainder modulo 16, events larger than a batch, with and without checksums.

    The key file is encrypted too, and the server reads the same one.
    """
    key_file, phrase = tmp_path / "keys.enc", tmp_path / "phrase"
    phrase.write_text("a pass phrase")
    command = [
        "openssl",
        "enc",
        "-aes-256-cbc",
        "-md",
        "sha1",
        "-pass",
        f"file:{phrase}",
        "-in",
        KEYS,
        "-out",
        key_file,
    ]
    subprocess.run(command, check=True, capture_output=True)
    filekey = f"FILE:{phrase}"
    with MariaDb(version, *options(algorithm, key_file), f"--file-key-management-filekey={filekey}") as server:
        write(server)
        server.sql("ALTER TABLE e.t MODIFY b LONGBLOB", "INSERT INTO e.t VALUES (100, REPEAT('y', 1200000))")
        server.sql("SET GLOBAL binlog_checksum = NONE")
        for length in range(16):
            server.sql(f"INSERT INTO e.t VALUES ({200 + length}, REPEAT('z', {length}))")
        server.sql("INSERT INTO e.t VALUES (300, REPEAT('y', 1100000))", "FLUSH BINARY LOGS")
        names = server.binlogs()[:-1]
        keys = KeyRing.from_file(key_file, filekey=filekey)
        lengths = set()
        for name in names:
            path = server.datadir / name
            expected = sent(server, name)
            assert plain(path, keys) == expected
            lengths |= {(event.description.checksum, len(event.event) % 16) for event in walk(expected)}
            compressed = tmp_path / "compressed"
            compressed.write_bytes(gzip.compress(path.read_bytes(), 1))
            assert plain(compressed, keys) == expected
            with pytest.raises(ConfigError, match="cannot be decrypted"):
                open_binlog(path, KeyRing({(1, 1): bytes(16)}))
        assert lengths == {(checksum, length) for checksum in (0, 1) for length in range(16)}


def test_a_crash_leaves_everything_readable_up_to_the_last_commit(tmp_path: Path) -> None:
    """The file is open (its flag says so) and simply ends."""
    with MariaDb("11.8", *options("cbc")) as server:
        write(server)
        server.kill()
        path = server.datadir / "bin.000001"
        keys = KeyRing.from_file(KEYS)
        with open_binlog(path, keys) as file:
            parts = list(file.ranges(max_bytes=1))
        assert all(part.whole for part in parts)
        assert sum(part.data[4] == 162 for part in parts) == 16


def groups(path: Path, keys: KeyRing) -> int:
    with open_binlog(path, keys) as file:
        return sum(part.data[4] == EventType.GTID for part in file.ranges(max_bytes=1))


def received(replica: MariaDb) -> str:
    with replica.connect(cursorclass=pymysql.cursors.DictCursor) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW SLAVE STATUS")
        return str(cursor.fetchone()["Gtid_IO_Pos"])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_relay_logs_of_a_real_replica(algorithm: str) -> None:
    """Positions in them are the primary's, and so is the use of checksums, which changes here."""
    keys = KeyRing.from_file(KEYS)
    with (
        MariaDb("10.11", "--binlog-checksum=NONE") as primary,
        MariaDb("10.11", *options(algorithm), "--relay-log=relay", server_id=2) as replica,
    ):
        user, password = primary.add_user()
        replica.sql(
            f"CHANGE MASTER TO MASTER_HOST='{primary.host}', MASTER_PORT={primary.port}, MASTER_USER='{user}', "
            f"MASTER_PASSWORD='{password}', MASTER_USE_GTID=slave_pos",
            "START SLAVE IO_THREAD",
        )
        primary.sql("CREATE DATABASE e", "CREATE TABLE e.t (a INT)")
        for checksum in ("NONE", "CRC32"):
            primary.sql(f"SET GLOBAL binlog_checksum = {checksum}")
            for number in range(10):
                primary.sql(f"INSERT INTO e.t VALUES ({number})")
        wait_until(lambda: received(replica) == primary.gtid_binlog_pos(), "the replica received everything")
        replica.sql("STOP SLAVE IO_THREAD")
        files = sorted(replica.datadir.glob("relay.0*"))
        assert sum(groups(path, keys) for path in files) == 22
        for path in files:
            assert len(plain(path, keys)) == path.stat().st_size
