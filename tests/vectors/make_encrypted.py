"""Re-creates the encrypted binlogs of this folder, on every server version installed.

    python -m tests.vectors.make_encrypted

Per version and algorithm: `encryption.cbc.encrypted`, the file as the server wrote it, and `encryption.cbc.sent`, the
same file as `mariadb-binlog --raw --read-from-remote-server` gets it, decrypted by the server. Its events have every
length modulo 16. The keys are in `encryption.keys`: ours alone, they protect nothing.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.fixtures.installation import installations
from tests.fixtures.mariadb import MariaDb

HERE = Path(__file__).resolve().parent
KEYS = HERE / "encryption.keys"
ALGORITHMS = {"cbc": "AES_CBC", "ctr": "AES_CTR"}


def options(algorithm: str, keys: Path = KEYS) -> list[str]:
    """Of a server that encrypts its binlogs."""
    return [
        "--plugin-load-add=file_key_management",
        f"--file-key-management-filename={keys}",
        f"--file-key-management-encryption-algorithm={ALGORITHMS[algorithm]}",
        "--encrypt-binlog=ON",
    ]


def sent(server: MariaDb, name: str) -> bytes:
    """A binlog as the server sends it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [server.binary("mariadb-binlog"), "--no-defaults", "--raw", "--read-from-remote-server"]
        account = [f"--host={server.host}", f"--port={server.port}", f"--user={server.user}"]
        result = [f"--password={server.password}", "--skip-ssl", f"--result-file={folder}/", name]
        subprocess.run([*command, *account, *result], check=True, capture_output=True)
        return (Path(folder) / name).read_bytes()


def write(server: MariaDb) -> None:
    """Events of every length modulo 16."""
    server.sql("CREATE DATABASE e", "CREATE TABLE e.t (id INT PRIMARY KEY, b BLOB)")
    server.reset_master()
    for length in range(16):
        server.sql(f"INSERT INTO e.t VALUES ({length}, REPEAT('x', {length}))")


def make(version: str, algorithm: str) -> None:
    target = HERE / version / f"encryption.{algorithm}.encrypted"
    with MariaDb(version, *options(algorithm)) as server:
        write(server)
        server.sql("FLUSH BINARY LOGS")
        name = server.binlogs()[0]
        target.with_suffix(".sent").write_bytes(sent(server, name))
        shutil.copy(server.datadir / name, target)
    target.chmod(0o644)


def main() -> None:
    for version in installations():
        for algorithm in ALGORITHMS:
            make(version, algorithm)
            print(version, algorithm)


if __name__ == "__main__":
    main()
