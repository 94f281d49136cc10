"""From an empty cache: who calls a kernel waits for one child that compiles, or has it interpreted meanwhile."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[4]
FILE = PROJECT / "tests" / "vectors" / "11.8" / "transactions.binlog"

CALL = """
from replica.native.compile import COMPILING, interpret_meanwhile
from replica.relay_log.kernels.kernel_deframe import advance
{before}
print(advance(100, 50, 150), COMPILING.interprets)
while COMPILING.at_work:
    pass
print(advance(100, 50, 150), COMPILING.interprets, advance.is_loaded)
"""


def run(tmp_path: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = (sys.executable, *command)
    return subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("interpreted", [False, True])
def test_a_kernel_is_waited_for_or_interpreted(tmp_path: Path, interpreted: bool) -> None:  # noqa: FBT001
    before = "interpret_meanwhile()" if interpreted else ""
    done = run(tmp_path, "-c", CALL.format(before=before))
    assert done.stdout.splitlines() == [f"150 {interpreted}", "150 False True"], done.stderr
    said = "the first rows are slow" if interpreted else "this takes up to half a minute"
    assert re.search("^compiling the kernels of (1 module|([2-9]|[0-9]{2,}) modules) once ", done.stderr)
    assert f"once ({said}); they are cached in {tmp_path}" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_the_first_rows_do_not_wait_for_the_compiler(tmp_path: Path) -> None:
    done = run(tmp_path, "-m", "replica", "dump", "--json", str(FILE))
    assert done.returncode == 0
    assert "compiling the kernels of" in done.stderr
    compiled = done
    while "compiling" in compiled.stderr:  # each waits for the one before, and does not begin what is there
        compiled = run(tmp_path, "-m", "replica", "dump", "--json", str(FILE))
        warmed = run(tmp_path, "-m", "replica.native.warm", "--only", "replica.commands.dump.rows.kernel_rows")
        assert warmed.returncode == 0, warmed.stderr
    assert '"op":"insert"' in done.stdout
    assert compiled.stdout == done.stdout
