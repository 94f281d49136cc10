"""Record of the last full run: the result of each step, and the commit on which it ran.

In: `tests/last-full-run.toml` and the repository. Out: the reasons why the record does not cover the current code. The
record covers the code if two conditions hold. Every step passed or could not run on the machine, and only documents
changed after the record's commit.
"""

from __future__ import annotations

import json
import subprocess
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

RECORD: Final = "tests/last-full-run.toml"
PASSED, FAILED, LEFT_OUT = "passed", "failed", "left out"
_SHOWN: Final = 5
_HEADING: Final = """\
# The last full run of all tests, proofs and soaks. scripts/test-all writes this file, scripts/release reads it.

"""


@dataclass(frozen=True)
class Outcome:
    """What a step gave. `why`: the reason of a step that was left out. `failures`: its earlier runs that failed."""

    result: str
    date: str
    minutes: float
    command: str
    why: str = ""
    failures: int = 0


@dataclass
class Record:
    """The outcomes of steps by name, all of them of the code of one commit."""

    commit: str
    steps: dict[str, Outcome] = field(default_factory=dict)

    def text(self) -> str:
        lines = [f"{_HEADING}commit = {json.dumps(self.commit)}"]
        for name, one in self.steps.items():
            values = {key: value for key, value in vars(one).items() if value or key == "minutes"}
            lines += ["", f"[steps.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
        return "\n".join(lines) + "\n"


def read(project: Path) -> Record | None:
    """Return the record of a working tree, None if it has none."""
    try:
        values = tomllib.loads((project / RECORD).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return Record(values["commit"], {name: Outcome(**one) for name, one in values.get("steps", {}).items()})


def write(project: Path, record: Record) -> None:
    (project / RECORD).write_text(record.text(), encoding="utf-8")


def is_document(path: str) -> bool:
    """Tell whether a file may change after a full run: text for readers, and the record itself."""
    return path.endswith(".md") or path.startswith("docs/") or path == RECORD


def head(project: Path) -> str:
    return _git(project, "rev-parse", "HEAD").strip()


def changed(project: Path, commit: str) -> list[str] | None:
    """Return the files of the working tree that differ from those of a commit, without documents; None if the
    repository does not have the commit.
    """
    try:
        _git(project, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    except subprocess.CalledProcessError:
        return None
    differing = _git(project, "diff", "--name-only", "--no-renames", "-z", commit)
    unknown = _git(project, "ls-files", "--others", "--exclude-standard", "-z")
    paths = {path for path in (differing + unknown).split("\0") if path}
    return sorted(path for path in paths if not is_document(path))


def gaps(project: Path, names: Iterable[str]) -> list[str]:
    """Return why the record does not cover the code as it is now with all of these steps; nothing if it does."""
    record = read(project)
    if record is None:
        return [f"there is no {RECORD}"]
    files = changed(project, record.commit)
    if files is None:
        return [f"its commit {record.commit} is not in this repository"]
    found = []
    if files:
        more = f" and {len(files) - _SHOWN} more" if len(files) > _SHOWN else ""
        found.append(f"changed since its commit {record.commit[:12]}: {', '.join(files[:_SHOWN])}{more}")
    for name in names:
        outcome = record.steps.get(name)
        if outcome is None:
            found.append(f"{name} was not run")
        elif outcome.result not in {PASSED, LEFT_OUT}:
            found.append(f"{name} {outcome.result}")
    return found


def _git(project: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", project, *arguments], capture_output=True, text=True, check=True)
    return done.stdout
