"""Steps of a full run: every proof, every soak, and every test that scripts/test leaves out.

A step has a command and a short form of the command, which shows within minutes whether the step's harness works. If
this machine cannot run the step, the step also has the reason. Every new proof, soak, test folder or test mark needs a
step here. A test compares the steps with the existing proofs, soaks, folders and marks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.fixtures.other_servers.mysql import mysql_programs
from tools.cluster.hosts import why_no_hosts

if TYPE_CHECKING:
    from collections.abc import Callable

SEED: Final = "{seed}"
"""Stands in a command for a number that each run draws."""
LEFT_OUT_BY_THE_QUICK_TESTS: Final = ("slow", "container", "room", "mysql")
"""The marks that scripts/test leaves out."""
_PYTEST: Final = "pytest -n 2 --dist loadfile --no-loadscope-reorder --timeout 900 --durations 10"
_SLOW: Final = '-m "slow and not container and not room and not mysql"'


class Step(NamedTuple):
    """`command` and `short` are for a shell in the project's folder; `hours` is when the step counts as hung."""

    name: str
    command: str
    short: str
    hours: float
    lacking: Callable[[], str] = str
    """Returns why this machine cannot run the step; empty if it can."""


def _no_container_engine() -> str:
    try:
        done = subprocess.run(["docker", "info"], capture_output=True, check=False)
    except FileNotFoundError:
        return "no docker"
    return "no container engine answers" if done.returncode else ""


def _no_rooms() -> str:
    if os.geteuid():
        return "not root"
    return "" if shutil.which("debootstrap") else "no debootstrap"


def _no_mysql() -> str:
    program = mysql_programs() / "mysqld"
    return "" if program.exists() else f"no {program.name} in $MARIADB_SERVERS/mysql/bin"


def _slow(folder: str, short: str, hours: float, more: str = "") -> Step:
    command = f"{_PYTEST} {_SLOW}{more} tests/{folder}"
    return Step(f"slow-{folder}", command, f"pytest {_SLOW}{more} tests/{folder}/{short}", hours)


STEPS: Final = (
    Step("test", "scripts/test", "scripts/test tests/unit/house/test_scripts.py", 1),
    _slow("unit", "protocol", 1),
    _slow("integration", "commands/test_tail.py", 3),
    _slow("spark", "offsets/test_statement_dml.py", 4),
    # On all servers they take so many hours that nobody ran them: each runs on one, and on another one another time.
    _slow("mirroring", "faults/test_hidden.py", 5, f" --turn {SEED}"),
    _slow("recipes", "test_audit.py", 2),
    _slow("system", "soak/test_soak_daemon.py", 3),
    Step("containers", "pytest -m container tests", "pytest -m container tests", 1, _no_container_engine),
    Step("mysql", "pytest -m mysql tests", "pytest -m mysql tests", 1, _no_mysql),
    Step("rooms", "scripts/test-rooms", "scripts/test-rooms -k network", 3, _no_rooms),
    Step(
        "prove-exactly-once",
        f"scripts/prove exactly-once --seed {SEED}",
        f"scripts/prove exactly-once --transactions 3000 --kills 2 --version 10.11 --seed {SEED}",
        2,
    ),
    Step("prove-fuzz", f"scripts/prove fuzz --seed {SEED}", f"scripts/prove fuzz --events 5000 --seed {SEED}", 2),
    Step("prove-truncations", "scripts/prove fuzz --truncations", "scripts/prove fuzz --truncations --step 500", 2),
    Step(
        "prove-snapshot",
        f"scripts/prove snapshot --version 11.8 --seed {SEED}",
        f"scripts/prove snapshot --version 11.8 --rows 20000 --kills 3 --seed {SEED}",
        4,
    ),
    Step("prove-audit", f"scripts/prove audit --seed {SEED}", f"scripts/prove audit --rows 20000 --seed {SEED}", 2),
    Step(
        "prove-cluster",
        f"scripts/prove cluster --minutes 30 --seed {SEED}",
        f"scripts/prove cluster --minutes 2 --seed {SEED}",
        3,
        why_no_hosts,
    ),
    Step(
        "soak-daemon",
        f"scripts/soak daemon --faults 100 --galera-faults 0 --seed {SEED}",
        f"scripts/soak daemon --faults 8 --galera-faults 0 --seed {SEED}",
        3,
    ),
    Step("soak-galera", f"scripts/soak galera --seed {SEED}", f"scripts/soak galera --faults 2 --seed {SEED}", 1),
    Step(
        "soak-spark",
        f"scripts/soak spark --kills 20 --seed {SEED}",
        f"scripts/soak spark --kills 5 --sink parquet --seed {SEED}",
        3,
    ),
    Step(
        "soak-mirror",
        f"scripts/soak mirror --minutes 15 --kills 8 --seed {SEED}",
        f"scripts/soak mirror --minutes 1 --kills 1 --warehouses 0 --seed {SEED}",
        4,
    ),
)
