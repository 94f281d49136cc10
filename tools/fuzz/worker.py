"""Worker of the fuzzing: runs cases under a memory limit, and records the number of the running case.

    python -m tools.fuzz.worker SEED FIRST COUNT STEP NOTES

Runs the cases FIRST, FIRST + STEP, ... COUNT of them. NOTES is a file of two numbers: the running case, and the highest
memory so far in KiB. Case n of a seed is always the same damage to the same group; the cases of seed 0 are truncations.
"""

from __future__ import annotations

import mmap
import random
import resource
import struct
import sys
import traceback
from pathlib import Path

from replica.protocol.constants import EventType
from replica.protocol.rows.rows_event import ROWS_EVENTS
from tools.fuzz.corpus import Corpus, Group, corpus
from tools.fuzz.mutate import mutate
from tools.fuzz.targets import Targets

EXTRA_BYTES = 1 << 30
"""Address space that the cases may take beyond what the process has when it is warm."""
FRESH_EVERY = 2000
TRUNCATIONS = 0
"""The seed whose cases are truncations."""
WEIGHTS = {**dict.fromkeys(ROWS_EVENTS, 8), EventType.TRANSACTION_PAYLOAD: 8, EventType.TABLE_MAP: 4}
"""Weights of groups: a group with more content is damaged more often."""
NOTES = struct.Struct("<QQ")


def case(of: Corpus, seed: int, number: int) -> tuple[Group, list[bytes], random.Random]:
    """Group and events of one case; one event is damaged, in a quarter of the cases two."""
    rng = random.Random(f"{seed}:{number}")
    if seed == TRUNCATIONS:
        return *of.truncation(number), rng
    some = of.rich if rng.random() < 0.9 else of.groups
    group = some[int(len(some) * rng.random() ** 1.5)]
    found = list(group.events)
    weights = [WEIGHTS.get(event[4], 1) for event in found]
    for _ in range(rng.choice((1, 1, 1, 2))):
        (at,) = rng.choices(range(len(found)), weights)
        found[at] = mutate(found[at], of.events, rng)
    if rng.random() < 0.05:  # events lost, doubled or in another order
        at = rng.randrange(len(found))
        found[at : at + 1] = rng.choice(([], found[at : at + 1] * 2, found[at + 1 : at + 2] + found[at : at + 1]))
    return group, found, rng


def limit_memory() -> None:
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (used + EXTRA_BYTES, used + EXTRA_BYTES))


def main(seed: int, first: int, count: int, step: int, notes: str) -> int:
    found_in = corpus()
    targets = Targets()
    warm = random.Random(0)
    for group in found_in.groups:  # every kernel compiled and every import done before memory is limited
        for _ in range(8 if group is found_in.groups[-1] else 1):
            targets.run(group.events, group, warm)
    limit_memory()
    with Path(notes).open("r+b") as file, mmap.mmap(file.fileno(), NOTES.size) as shared:
        for done, number in enumerate(range(first, first + count * step, step)):
            shared[:] = NOTES.pack(number, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
            group, found, rng = case(found_in, seed, number)
            try:
                targets.run(found, group, rng)
            except Exception:  # noqa: BLE001  (that is what is looked for)
                print(f"case {seed}:{number} of {group.name}", file=sys.stderr)
                traceback.print_exc()
                return 1
            if done % FRESH_EVERY == FRESH_EVERY - 1:
                targets.fresh()
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:5]), sys.argv[5]))
