"""`scripts/test-all`: run every test, proof and soak once, and write the record that a release requires."""

from __future__ import annotations

import argparse
import signal
import sys

from tests.fixtures.installation import PROJECT
from tools.proofs.full_run.record import LEFT_OUT, RECORD, gaps, read
from tools.proofs.full_run.run import ChangedCodeError, FullRun, table
from tools.proofs.full_run.steps import STEPS


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="scripts/test-all", description=__doc__)
    names = [step.name for step in STEPS]
    found.add_argument("--only", action="append", choices=names, metavar="NAME", help="this step, even if it passed")
    found.add_argument("--short", action="store_true", help="the short form of each step; nothing is recorded")
    found.add_argument("--list", action="store_true", help="show the steps and what the record says of them")
    found.add_argument("--check", action="store_true", help="say why the record does not cover the code; 1 if so")
    return found


def check() -> int:
    """Print what the record lacks; return 0 if nothing."""
    found = gaps(PROJECT, [step.name for step in STEPS])
    for gap in found:
        print(f"{RECORD}: {gap}")
    record = read(PROJECT)
    if not found and record is not None:
        for name, one in record.steps.items():
            if one.result == LEFT_OUT:
                print(f"{RECORD}: {name} was left out: {one.why}")
    return 1 if found else 0


def main(argv: list[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    if arguments.check:
        return check()
    if arguments.list:
        record = read(PROJECT)
        for step in STEPS:
            print(f"{step.name:20} {step.command}\n{'':20} short: {step.short}")
        print("" if record is None else f"\nat {record.commit[:12]}:\n{table(record, STEPS)}")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run = FullRun(PROJECT, short=arguments.short, say=lambda text: print(text, flush=True))
        wanted = [step for step in STEPS if arguments.only is None or step.name in arguments.only]
        steps = wanted if arguments.short or arguments.only else run.due(wanted)
        good = run.run(steps)
    except ChangedCodeError as error:
        print(f"test-all: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("test-all: interrupted; call it again to go on with the steps that did not pass", file=sys.stderr)
        return 130
    if not arguments.short:
        print(f"\n{table(run.record, STEPS)}")
        check()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
