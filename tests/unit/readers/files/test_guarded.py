"""No kernel reads behind the end of a file, whatever is in it. In a process of its own: it would end that."""

from __future__ import annotations

import random
import subprocess
import sys


def test_damaged_files_at_the_end_of_readable_memory() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    command = [sys.executable, "-m", "tests.unit.readers.files.guarded", str(seed), "2000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"seed {seed}: exit code {done.returncode}\n{done.stderr[-2000:]}"
    assert f"seed {seed}: 2000 files" in done.stdout
