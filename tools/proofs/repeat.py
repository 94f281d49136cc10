"""Command that repeats a run of a proof or a soak.

In: a program, and the values of the run. Out: a shell command that the program's parser reads as the same values.
Numbers are written with all of their digits.
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
