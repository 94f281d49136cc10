"""Whether speed went back since it was recorded: small versions of the ratios, against tools/bench/guard/guard.toml.

A ratio is CPU time of a peer divided by ours, in the same run, so that machine and load count for little
(guard_ratios.py). One below half of what was recorded (three quarters of it where both sides are ours) is measured
again, and ends this with exit code 1 where it is too low three times: less is the noise of a small binlog. A peer that
cannot be had here is told and not judged. `--record` writes the table anew, after a change that is meant. Left out:
what takes minutes, `bench snapshot` and most of `bench mirror`, and what is measured in seconds and not in ratios,
`bench start`, `idle`, `latency` and `commit`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from tools.bench.guard.guard_ratios import OF_OURS, measured, measured_again

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from tools.bench.guard.guard_ratios import Table

    Low = dict[str, set[str]]

RECORDED = Path(__file__).with_name("guard.toml")
LOWEST_SHARE, LOWEST_SHARE_OF_OURS = 0.5, 0.75
AGAIN = 2
"""A tool's CPU time for 40 MB of tiny transactions was 8 to 14 times ours within ten minutes on a machine at rest."""


def too_low(found: Table, recorded: Table) -> Low:
    """Return the ratios that do not hold, by section."""
    low: Low = {}
    for section, ratios in recorded.items():
        for peer, before in ratios.items():
            now = found.get(section, {}).get(peer)
            if now is not None and now < before * (LOWEST_SHARE_OF_OURS if peer in OF_OURS else LOWEST_SHARE):
                low.setdefault(section, set()).add(peer)
    return low


def looked_at_again(found: Table, recorded: Table, again: Callable[[str, Collection[str]], dict[str, float]]) -> Low:
    """Measure what is too low anew, put the best of it into `found`, and return what is too low all the same."""
    for _ in range(AGAIN):
        for section, peers in too_low(found, recorded).items():
            now = again(section, peers)
            found[section] |= {peer: max(found[section][peer], now.get(peer, 0.0)) for peer in peers}
    return too_low(found, recorded)


def lines_of(found: Table, recorded: Table, low: Low) -> list[str]:
    """Return a line for each recorded ratio."""
    lines = []
    for section, ratios in recorded.items():
        for peer, before in ratios.items():
            now = found.get(section, {}).get(peer)
            mark = "  TOO LOW" if peer in low.get(section, ()) else ""
            told = "not measured here" if now is None else f"{now:8.2f}{mark}"
            lines.append(f"{section:7}{peer:62}recorded {before:8.2f}  now {told}")
    return lines


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench guard", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--record", action="store_true", help="write the table that later runs are compared with")
    options = parser.parse_args(argv)
    begun = time.monotonic()
    found = measured()
    if options.record:
        lines = []
        for section, ratios in found.items():
            lines += [f"[{section}]", *(f'"{peer}" = {ratio:.3g}' for peer, ratio in ratios.items()), ""]
        RECORDED.write_text("\n".join(lines), encoding="utf-8")
    recorded = tomllib.loads(RECORDED.read_text(encoding="utf-8"))
    low = looked_at_again(found, recorded, measured_again)
    print(*lines_of(found, recorded, low), sep="\n")
    held = not low
    print(f"{'all held' if held else 'NOT all held'}; {time.monotonic() - begun:.0f} s")
    if options.json:
        print(json.dumps({"benchmark": "guard", "ratio": found, "held": held}))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
