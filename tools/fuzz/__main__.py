"""Fuzzing: a million damaged events cause only our own errors, no crash, no hang, and no memory beyond the bound.

    python -m tools.fuzz [--events N] [--seed N] [--first N] [--step N] [--show N]
    python -m tools.fuzz --truncations [--step N]

The second form cuts every event of every vector at every length. The cases run in a separate process under a memory
limit. A case fails if it raises any other error, ends the process, or takes longer than STALL_S. The output names its
seed and number: `--first NUMBER --events 1` runs it again, `--show NUMBER` prints its events.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tools.fuzz.corpus import corpus
from tools.fuzz.worker import NOTES, TRUNCATIONS, case
from tools.proofs import repeat

if TYPE_CHECKING:
    from collections.abc import Callable

WORKER = "tools.fuzz.worker"
STALL_S = 60.0
"""A case takes milliseconds; on a busy machine, a hundred times that."""
WARM_S = 300.0
"""Before the first case kernels may have to be compiled."""
_NOT_YET = (1 << 64) - 1


@dataclass(frozen=True)
class Outcome:
    """How a run ended; `failure` is empty when every case went as it should."""

    failure: str
    cases: int
    peak_kib: int
    output: str


def run(
    seed: int,
    first: int,
    count: int,
    step: int = 1,
    *,
    progress: bool = False,
    worker: str = WORKER,
    stall: float = STALL_S,
) -> Outcome:
    """Run `count` cases from `first` on in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        notes, log = Path(folder) / "notes", Path(folder) / "log"
        notes.write_bytes(NOTES.pack(_NOT_YET, 0))
        numbers = map(str, (seed, first, count, step))
        command = [sys.executable, "-X", "faulthandler", "-m", worker, *numbers, str(notes)]
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output)
            stalled = _watch(process, notes, lambda number: (number - first) // step, count if progress else 0, stall)
        number, peak = NOTES.unpack(notes.read_bytes())
        text = log.read_text(encoding="utf-8", errors="replace")
        begun = number != _NOT_YET
        done, name = ((number - first) // step, f"case {seed}:{number}") if begun else (0, "the start")
        if stalled:
            return Outcome(f"{name} hangs", done, peak, text)
        if process.returncode:
            return Outcome(f"{name} ended the process with {process.returncode}", done, peak, text)
        return Outcome("", count, peak, text)


def _watch(process: subprocess.Popen[bytes], notes: Path, done: Callable[[int], int], count: int, stall: float) -> bool:
    """Wait for the end; True if the same case has been at hand for too long, and the process was killed for it.

    `count`: how many there are, to be shown now and then; 0 for silence.
    """
    last, since, shown = _NOT_YET, time.monotonic(), time.monotonic()
    while process.poll() is None:
        time.sleep(0.05)
        number, peak = NOTES.unpack(notes.read_bytes())
        now = time.monotonic()
        if number != last:
            last, since = number, now
        elif now - since > (WARM_S if number == _NOT_YET else stall):
            process.kill()
            process.wait()
            return True
        if count and now - shown > 10 and number != _NOT_YET:
            shown = now
            print(f"{done(number):,} of {count:,} damaged events, {peak >> 10} MiB at most", flush=True)
    return False


@click.command()
@click.option("--events", default=1_000_000, help="How many damaged events.")
@click.option("--seed", default=1)
@click.option("--first", default=0, help="Number of the first case.")
@click.option("--step", default=1, help="Run every so many.")
@click.option("--truncations", is_flag=True, help="Cut every event at every length instead.")
@click.option("--show", type=int, help="Print the events of this case and do nothing else.")
def main(events: int, seed: int, first: int, step: int, *, truncations: bool, show: int | None) -> None:
    """Run damaged events through everything that reads binlogs."""
    if truncations:
        seed, first, events = TRUNCATIONS, 0, -(-corpus().truncations // step)
    if show is not None:
        group, found, _ = case(corpus(), seed, show)
        print(group.name)
        for event, whole in zip(found, group.events, strict=False):
            print(event.hex(), "" if event == whole else f"<- {whole.hex()}")
        return
    started = time.monotonic()
    outcome = run(seed, first, events, step, progress=True)
    print(outcome.output, end="")
    print(f"seed {seed}: {outcome.cases:,} damaged events, {outcome.peak_kib >> 10} MiB at most, "
          f"{time.monotonic() - started:.0f} s")  # fmt: skip
    if outcome.failure:
        print(outcome.failure)
        number = first + outcome.cases * step
        print(f"repeat: {repeat.command('scripts/prove fuzz', seed=seed, first=number, events=1)}")
        sys.exit(1)


if __name__ == "__main__":
    main()
