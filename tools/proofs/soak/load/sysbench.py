"""Commands of sysbench, an external load program that scripts/get-sysbench downloads.

In: a server, one of its databases, a script and its sizes. Out: the command, to which the caller adds `prepare` or
`run`.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from tests.fixtures.installation import CACHE, PROJECT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb

PROGRAM = CACHE / "sysbench" / "sysbench"
WITHOUT_END = ("--time=0", "--events=0")


def fetch_sysbench() -> None:
    """Fetch it as scripts/soak does, for tests that are not called by that."""
    subprocess.run([PROJECT / "scripts" / "get-sysbench", PROGRAM.parent], check=True, stdout=subprocess.DEVNULL)


def check_sysbench() -> None:
    assert PROGRAM.exists(), f"{PROGRAM} is missing: scripts/soak fetches it (scripts/get-sysbench)"


def sysbench(server: MariaDb, database: str, script: str | Path, *options: str) -> list[str]:
    account = [f"--mysql-user={server.user}", f"--mysql-password={server.password}", f"--mysql-db={database}"]
    place = [f"--mysql-host={server.host}", f"--mysql-port={server.port}"]
    return [str(PROGRAM), str(script), "--db-driver=mysql", *place, *account, *options]
