from __future__ import annotations

import random
import subprocess
import sys

from tools.proofs.stall import stall

WATCH = """
import os, sys, time
if os.fork():  # only what is below the command is stopped
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
last = time.monotonic()
while (now := time.monotonic()) - last < 0.1:
    last = now
sys.exit(7)
"""


def test_a_process_below_the_command_is_stopped_goes_on_and_its_exit_code_is_kept() -> None:
    # It ends only when it has missed 0.1 s, as each stall of up to half a second makes it sooner or later.
    assert stall([sys.executable, "-c", WATCH], longest_s=0.5, hogs=1, chance=random.Random(1)) == 7


def test_as_a_command() -> None:
    command = [sys.executable, "-m", "tools.proofs.stall", "--seed", "5", sys.executable, "-c", "raise SystemExit(3)"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, "stalls with --seed 5\n")
