"""Commands of go-tpc, an external implementation of TPC-C that scripts/get-go-tpc builds.

In: a server, warehouses. Out: commands that fill the nine tables, and commands that run the five transactions as
terminals with the keying and thinking times of the specification. `history` has no key, so a mirror reads this table
whole.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from tests.fixtures.installation import CACHE, PROJECT

if TYPE_CHECKING:
    from tests.fixtures.mariadb import MariaDb

PROGRAM = CACHE / "go-tpc" / "go-tpc"
DATABASE = "tpcc"
TABLES = ("customer", "district", "history", "item", "new_order", "order_line", "orders", "stock", "warehouse")
TERMINALS = 40
"""At some 23 seconds a transaction each: two a second."""


def fetch_go_tpc() -> None:
    """Build it as scripts/soak does, for tests that are not called by that."""
    subprocess.run([PROJECT / "scripts" / "get-go-tpc", PROGRAM.parent], check=True, stdout=subprocess.DEVNULL)


def check_go_tpc() -> None:
    assert PROGRAM.exists(), f"{PROGRAM} is missing: scripts/soak builds it (scripts/get-go-tpc)"


def fill_command(server: MariaDb, warehouses: int) -> list[str]:
    return [*_command(server, warehouses), "prepare", "--no-check"]


def run_command(server: MariaDb, warehouses: int) -> list[str]:
    """Return the load; a transaction that the server gives up for a deadlock is passed over."""
    quiet = ("--ignore-error", "--silence", f"--threads={TERMINALS}")
    return [*_command(server, warehouses), *quiet, "run", "--wait"]


def paced_command(server: MariaDb, warehouses: int, terminals: int, minutes: float) -> list[str]:
    """Return a load of so long by terminals that do not wait: the server sets the pace."""
    return [
        *_command(server, warehouses),
        *("--ignore-error", f"--threads={terminals}", f"--time={round(60 * minutes)}s", "run"),
    ]


def check_filled(server: MariaDb) -> None:
    """Raise if a table is empty: the program ends with 0 also where it failed."""
    empty = [table for table in TABLES if not server.sql(f"SELECT EXISTS (SELECT 1 FROM {DATABASE}.{table})")[0][0]]
    assert not empty, f"TPC-C has not filled {empty}"


def _command(server: MariaDb, warehouses: int) -> list[str]:
    place = [f"--host={server.host}", f"--port={server.port}", f"--user={server.user}", f"--password={server.password}"]
    return [str(PROGRAM), "tpcc", *place, f"--db={DATABASE}", f"--warehouses={warehouses}"]
