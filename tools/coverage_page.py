"""Write docs/dev/coverage.md from a report of coverage.py: `python -m tools.coverage_page REPORT.json [--write]`.

Without a report it only removes the lines of modules that no longer exist, and makes the table of kernels again. The
exit code is 1 if a module below the limit has no reason in tests/coverage.toml.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

from tests.kit.places import PROJECT, is_kernel, read_places

LIMIT = 95
"""Per cent of statements and branches; a module below it needs a reason."""
PAGE = PROJECT / "docs" / "dev" / "coverage.md"
REASONS = PROJECT / "tests" / "coverage.toml"
HEAD = """\
# What the tests run

`scripts/coverage` runs the tests of `scripts/test` under coverage.py, with every process that they start (daemons,
commands, Spark's workers), and writes this page (`python -m tools.coverage_page`). A figure is the share of
statements and branches that ran. Modules below {limit} % are listed with their reason, from `tests/coverage.toml`.

{ran} ran. Together: {percent:.1f} % of {of} statements and branches, in {count} modules.
"""
KERNELS = """
## Kernels

Kernels are compiled, so coverage.py sees none of their lines. A kernel counts as covered if a test gives the same
bytes to the kernel and to a twin that shares no kernel with it (`tests/places.toml`, checked by
`tests/unit/house/test_places.py`). If twin and test are one file, the twin is a line of Python or numpy in it.

| kernel | twin | test |
| --- | --- | --- |
"""
ALL = "All tests but the slow ones"
LEFT_OUT = "its other tests were left out of this run"


class Figure(NamedTuple):
    """Statements and branches of a module or folder, and how many of them ran."""

    module: str
    covered: int
    of: int

    @property
    def percent(self) -> float:
        return 100 * self.covered / self.of if self.of else 100.0


def figures(report: dict[str, object]) -> list[Figure]:
    """Return the figures of modules that have statements and are not compiled."""
    files: dict[str, dict[str, dict[str, int]]] = report["files"]  # type: ignore[assignment]
    found = []
    for name, file in files.items():
        if is_kernel(name):
            continue
        summary = file["summary"]
        covered = summary["covered_lines"] + summary["covered_branches"]
        found.append(Figure(name, covered, summary["num_statements"] + summary["num_branches"]))
    return sorted(figure for figure in found if figure.of)


def folders(modules: list[Figure]) -> list[Figure]:
    """The sum of each folder's own modules."""
    sums: dict[str, tuple[int, int]] = {}
    for name, covered, of in modules:
        folder = str(Path(name).parent)
        before = sums.get(folder, (0, 0))
        sums[folder] = (before[0] + covered, before[1] + of)
    return [Figure(folder, *both) for folder, both in sorted(sums.items())]


def kernels() -> str:
    """The table of kernels and twins."""
    rows = (f"| `{kernel}` | `{twin}` | `{test}` |\n" for kernel, (twin, test) in read_places().kernels.items())
    return KERNELS + "".join(rows)


def reasons() -> dict[str, str]:
    found: dict[str, str] = tomllib.loads(REASONS.read_text(encoding="utf-8"))
    return found


def page(modules: list[Figure], known: dict[str, str], ran: str = ALL) -> str:
    """All of docs/dev/coverage.md."""
    covered, of = sum(one.covered for one in modules), sum(one.of for one in modules)
    text = HEAD.format(limit=LIMIT, ran=ran, percent=100 * covered / of, of=of, count=len(modules))
    text += "\n| folder | statements and branches | ran |\n| --- | ---: | ---: |\n"
    text += "".join(f"| `{one.module}` | {one.of} | {one.percent:.1f} % |\n" for one in folders(modules))
    text += f"\n## Modules below {LIMIT} %\n\n| module | ran | did not run | reason |\n| --- | ---: | ---: | --- |\n"
    for one in modules:
        if one.percent < LIMIT:
            reason = known.get(one.module, "" if ran == ALL else LEFT_OUT)
            text += f"| `{one.module}` | {one.percent:.1f} % | {one.of - one.covered} | {reason} |\n"
    return text + kernels()


def without_what_is_gone(text: str) -> str:
    """Return the page without lines of modules that no longer exist."""
    run, _, _ = text.partition(KERNELS[:12])
    kept = (
        line
        for line in run.splitlines(keepends=True)
        if not line.startswith("| `") or (PROJECT / line.split("`")[1]).exists()
    )
    return "".join(kept) + kernels()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path, nargs="?", help="without it the page keeps its figures")
    parser.add_argument("--write", action="store_true", help="write the page, and remove reasons that no module needs")
    parser.add_argument("--ran", default=ALL, help="what ran, if not all tests; no reasons are asked for")
    given = parser.parse_args(arguments)
    if given.report is None:
        PAGE.write_text(without_what_is_gone(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    modules, known = figures(json.loads(given.report.read_text(encoding="utf-8"))), reasons()
    text = page(modules, known, given.ran)
    if not given.write:
        print(text)  # if only some tests ran, modules are below the limit for that reason alone
        return 0
    PAGE.write_text(text, encoding="utf-8")
    if given.ran != ALL:
        return 0
    below = {one.module for one in modules if one.percent < LIMIT}
    kept = {module: reason for module, reason in known.items() if module in below}
    REASONS.write_text(
        "".join(f"{json.dumps(module)} = {json.dumps(reason)}\n" for module, reason in kept.items()), encoding="utf-8"
    )
    missing = sorted(below - kept.keys())
    for module in missing:
        print(f"{module} is below {LIMIT} %: test it, or say in tests/coverage.toml why not", file=sys.stderr)
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
