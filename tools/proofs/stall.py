"""Run a command as on a busy, shared machine: `python -m tools.proofs.stall [--max S] [--hogs N] COMMAND...`.

At random moments, one or all of the command's processes are paused for up to `--max` seconds. `--hogs` busy loops
compete with them for the CPU. A test that fails only here depends on the machine's speed, and will also fail on some
other machine. The exit code is the command's.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import subprocess
import sys
import time

import psutil

SELDOM_S = (0.1, 1.5)
"""Between two stalls: often enough that each test of a second meets one."""
ALL_AT_ONCE = 0.3
"""The share of stalls of the whole machine; the others stop one process, and the rest wait for it or overtake it."""


def stall(command: list[str], *, longest_s: float, hogs: int, chance: random.Random) -> int:
    with contextlib.ExitStack() as ending:
        for _ in range(hogs):
            ending.callback(subprocess.Popen([sys.executable, "-c", "while True: pass"]).kill)
        child = subprocess.Popen(command)
        ending.callback(child.kill)
        while child.poll() is None:
            time.sleep(chance.uniform(*SELDOM_S))
            _stop_some(child.pid, chance.uniform(0, longest_s), chance)
        return child.returncode


def _stop_some(root: int, seconds: float, chance: random.Random) -> None:
    with contextlib.suppress(psutil.NoSuchProcess), contextlib.ExitStack() as going_on:
        below = psutil.Process(root).children(recursive=True)
        # Who is stopped already, a test has stopped.
        running = [
            process for process in below if process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
        ]
        if not running:
            return
        for process in running if chance.random() < ALL_AT_ONCE else [chance.choice(running)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
                going_on.callback(_resume, process)
        time.sleep(seconds)


def _resume(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.resume()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--max", type=float, default=1.0, help="seconds (default 1)")
    parser.add_argument("--hogs", type=int, default=0, help="busy loops beside it (default none)")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    print(f"stalls with --seed {given.seed}", file=sys.stderr)
    return stall(given.command, longest_s=given.max, hogs=given.hogs, chance=random.Random(given.seed))


if __name__ == "__main__":
    sys.exit(main())
