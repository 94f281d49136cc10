"""The command that repeats a run of a proof or a soak.

In: a program and the values that the run had. Out: a command for a shell, which that program's parser reads as the same
values: numbers are written with all of their digits.
"""

from __future__ import annotations

import shlex


def command(program: str, **values: object) -> str:
    """Return `program` with `--name value` for each value that is not None."""
    words = program.split()
    for name, value in values.items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)
