"""`scripts/prove snapshot`: the proof on one server version or on all installed ones. The exit code is the verdict."""

from __future__ import annotations

import argparse
import random
import sys
import traceback

from tests.fixtures.installation import installations
from tests.fixtures.jars import JarsMissingError, delta_settings
from tools.proofs.snapshot.app import MUTATIONS
from tools.proofs.snapshot.proof import APPEND, MERGE, Wanted, prove


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="scripts/prove snapshot", description=__doc__)
    found.add_argument("--version", action="append", help="server version; all that are installed if not given")
    found.add_argument("--seed", type=int, default=random.randrange(10**6))
    found.add_argument("--rows", type=int, default=2_000_000, help="of all tables together")
    found.add_argument("--kills", type=int, default=24, help="how often the driver is killed")
    found.add_argument("--sink", choices=[APPEND, MERGE], help="one of both alone")
    found.add_argument(
        "--start", choices=["initial", "earliest"], default="initial", help="earliest: of the harness itself"
    )
    found.add_argument("--mutate", choices=MUTATIONS, help="damage the append sink: the proof has to fail")
    return found


def main(argv: list[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    kinds = (arguments.sink,) if arguments.sink else (APPEND, MERGE)
    if MERGE in kinds:
        try:
            delta_settings()
        except JarsMissingError as error:
            print(f"FAILED: {error}", flush=True)
            return 1
    print(f"seed {arguments.seed}", flush=True)
    for version in arguments.version or installations():
        wanted = Wanted(
            version, arguments.rows, arguments.kills, arguments.seed, kinds, arguments.start, arguments.mutate
        )
        try:
            summary = prove(wanted, say=lambda text: print(text, flush=True))
        except BaseException:  # noqa: BLE001  (whatever it was, it is the result, with its notes)
            print(f"FAILED\n{traceback.format_exc()}", flush=True)
            return 1
        for name, value in summary.items():
            text = ", ".join(f"{key}: {item}" for key, item in value.items()) if isinstance(value, dict) else value
            print(f"  {name}: {text}")
        print(f"MariaDB {version}: nothing lost, nothing doubled.", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
