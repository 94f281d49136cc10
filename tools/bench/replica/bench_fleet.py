"""Memory of many idle daemons on one machine: by `mariadb-replica fleet`, and each by a `run` of its own.

All follow one server, each into a relay log of its own. Memory is PSS of /proc/PID/smaps_rollup, in which a page that
n processes share counts a n-th for each, so that the sum is what the machine spends. Wanted: 50 daemons in 3 GB.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fixtures.mariadb import MariaDb, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

WANTED_MB = 3000
WANTED_DAEMONS = 50
START_TIMEOUT_S = 300.0
REST_S = 20.0
"""Memory settles after the connection, the first status file and the first turn of retention."""
PROGRAM = (sys.executable, "-m", "replica")


def pss_mb(process: int) -> float:
    """Return what one process takes of the machine's memory."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def children(process: int) -> list[int]:
    """List the processes that one has started."""
    return [int(pid) for pid in Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split()]


def configure(server: MariaDb, folder: Path, daemons: int) -> list[Path]:
    """Write a configuration for each daemon."""
    user, password = server.add_user()
    files = [folder / f"{number:03}.toml" for number in range(daemons)]
    for file in files:
        lines = [f'host = "{server.host}:{server.port}"', f'user = "{user}"', f'password = "{password}"']
        lines += [f'relay_dir = "{folder / file.stem}"', 'start = "earliest"']
        file.write_text("\n".join(lines), encoding="ascii")
        file.chmod(0o600)
    return files


def measure(files: list[Path], folder: Path, *, fleet: bool) -> float:
    """Return the MB of all daemons of these files at rest, and of the program that started them."""
    calls = [["fleet", *map(str, files)]] if fleet else [["run", "--config", str(file)] for file in files]
    log = folder / "log"
    with log.open("wb") as to:
        programs = [subprocess.Popen([*PROGRAM, *call], stderr=to) for call in calls]
    try:
        wait_until(
            lambda: log.read_text().count('"caught up"') == len(files), "all have caught up", timeout_s=START_TIMEOUT_S
        )
        time.sleep(REST_S)
        return sum(pss_mb(pid) for program in programs for pid in (program.pid, *children(program.pid)))
    finally:
        for program in programs:
            program.terminate()
        for program in programs:
            program.wait()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench fleet", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--daemons", type=int, default=WANTED_DAEMONS)
    parser.add_argument("--alone", type=int, default=4, help="of how many with a program of their own the mean is")
    parser.add_argument("--server", default=None, help="MariaDB version, for example 10.11")
    options = parser.parse_args(argv)
    with MariaDb(options.server, "--max-connections=1000") as server, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = configure(server, folder, options.daemons)
        alone = measure(files[: options.alone], folder, fleet=False) / options.alone
        together = measure(files, folder, fleet=True)
    result: dict[str, Any] = {
        "daemons": options.daemons,
        "fleet_mb": round(together),
        "fleet_mb_each": round(together / options.daemons, 1),
        "alone_mb_each": round(alone, 1),
        "ratio": round(alone * options.daemons / together, 1),
    }
    met = together / options.daemons <= WANTED_MB / WANTED_DAEMONS
    print(
        f"{options.daemons} idle daemons take {together:.0f} MB as a fleet, {together / options.daemons:.1f} each; "
        f"with a program of its own each takes {alone:.0f} MB, {result['ratio']} times as much"
    )
    if options.json:
        print(json.dumps({"benchmark": "fleet", "met": met, **result}))
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
