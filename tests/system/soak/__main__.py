"""`scripts/soak daemon`: one soak with the faults, seed and server asked for; a JSON summary as the last line."""

from __future__ import annotations

import argparse
import json
import random
import sys
import traceback

from tests.system.soak.daemon import soak


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument("what", choices=["daemon"])
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--version", help="server version; 10.11 or else the newest if not given")
    parser.add_argument("--minutes", type=float, default=0.0, help="stop breaking things after so long")
    arguments = parser.parse_args(argv)
    print(f"seed {arguments.seed}", flush=True)
    try:
        summary = soak(
            arguments.version, faults=arguments.faults, seed=arguments.seed, minutes=arguments.minutes, say=True
        )
    except BaseException:  # noqa: BLE001  (whatever it was, it is the result, with its notes)
        print(f"FAILED\n{traceback.format_exc()}", flush=True)
        return 1
    print(json.dumps(summary), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
