"""Full run: all steps one after the other, each with its own log, even if earlier steps failed.

In: steps, and a working tree without changes. Out: the record (record.py), written after each step. An interrupted run
therefore continues with the steps that have not passed yet, as long as the code is that of the record's commit. A step
counts only if the code did not change while the step ran.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import random
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Final

from tools.proofs.full_run.record import FAILED, LEFT_OUT, PASSED, Outcome, Record, changed, head, read, write
from tools.proofs.full_run.steps import SEED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tools.proofs.full_run.steps import Step

LOGS: Final = ".cache/full-run"
_HOUR_S: Final = 3600.0
_TERM_S: Final = 30.0
"""For the processes of a step to end by themselves after SIGTERM."""


class ChangedCodeError(Exception):
    """The code is not that of a commit, so that no result would count for it."""


class FullRun:
    """Runs steps in a working tree, and keeps the record. `short`: their short forms, without a record."""

    def __init__(self, project: Path, *, short: bool, say: Callable[[str], object]) -> None:
        self._project = project
        self._short = short
        self._say = say
        self._logs = project / LOGS
        self.record = Record(head(project)) if short else self._continued()

    def _continued(self) -> Record:
        """Return the record if it is of the code as it is, else an empty one.

        Raises:
            ChangedCodeError: the working tree has changes that are in no commit.
        """
        now = head(self._project)
        if uncommitted := changed(self._project, now):
            raise ChangedCodeError(f"commit first, or take away: {', '.join(uncommitted)}")
        found = read(self._project)
        if found is not None and changed(self._project, found.commit) == []:
            return found
        return Record(now)

    def due(self, steps: Sequence[Step]) -> list[Step]:
        """Return the steps that have not passed on this code."""
        return [step for step in steps if (one := self.record.steps.get(step.name)) is None or one.result != PASSED]

    def run(self, steps: Sequence[Step]) -> bool:
        """Run steps one after the other; return whether none failed.

        Raises:
            ChangedCodeError: the code was changed while a step ran.
        """
        self._logs.mkdir(parents=True, exist_ok=True)
        good = True
        for step in steps:
            outcome = self._outcome(step)
            good &= outcome.result != FAILED
            self._say(f"-- {step.name}: {outcome.result}, {outcome.minutes:.1f} min {outcome.why}".rstrip())
            if not self._short:
                if changed(self._project, self.record.commit) != []:
                    raise ChangedCodeError(f"the code was changed while {step.name} ran: its result counts for nothing")
                self.record.steps[step.name] = outcome
                write(self._project, self.record)
        return good

    def _outcome(self, step: Step) -> Outcome:
        command = (step.short if self._short else step.command).replace(SEED, str(random.randrange(10**6)))
        today = dt.datetime.now(dt.UTC).date().isoformat()
        before = self.record.steps.get(step.name)
        failures = 0 if before is None else before.failures + (before.result == FAILED)
        if why := step.lacking():
            return Outcome(LEFT_OUT, today, 0.0, command, why, failures)
        log = self._logs / f"{step.name}.log"
        self._say(f"== {step.name}: {command} (log: {log.relative_to(self._project)})")
        began = time.monotonic()
        code = self._code(command, log, step.hours * _HOUR_S)
        why = {0: "", None: f"(longer than {step.hours:g} h)"}.get(code, f"(exit code {code})")
        result = FAILED if code != 0 else PASSED
        return Outcome(result, today, round((time.monotonic() - began) / 60, 1), command, why, failures)

    def _code(self, command: str, log: Path, limit_s: float) -> int | None:
        """Run a command; return its exit code, None if it was ended because it took too long."""
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", f". scripts/environment && {command}"],
                cwd=self._project,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                return process.wait(limit_s)
            except subprocess.TimeoutExpired:
                return None
            finally:
                _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a step with all processes of its session."""
    for number, patience_s in ((signal.SIGTERM, _TERM_S), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
            if number == signal.SIGKILL:
                return


def table(record: Record, steps: Sequence[Step]) -> str:
    """Return the results as lines: step, result, minutes, day."""
    lines = []
    for step in steps:
        one = record.steps.get(step.name)
        said = "not run" if one is None else f"{one.result:9} {one.minutes:7.1f} min  {one.date}  {one.why}"
        lines.append(f"{step.name:20} {said}".rstrip())
    return "\n".join(lines)
