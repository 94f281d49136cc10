"""A task's read of a range: from an empty cache of kernels, and what it leaves behind."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from streaming_source.rows.partition import ChangePartition, MappedRange
from streaming_source.rows.read_plan import ReadPlan
from streaming_source.rows.reader import read_changes
from streaming_source.selection.resolver import SelectedTables

PROJECT = Path(__file__).resolve().parents[4]
FILE = PROJECT / "tests" / "vectors" / "11.8" / "metadata_full.binlog"

READ = """
import sys
from pathlib import Path

from replica.native.compiling.ahead import COMPILING
from streaming_source.rows.partition import ChangePartition, MappedRange
from streaming_source.rows.read_plan import ReadPlan
from streaming_source.rows.reader import read_changes
from streaming_source.selection.resolver import SelectedTables

path = Path(sys.argv[1])
part = MappedRange(str(path), 4, path.stat().st_size, checksum=True, file=path.name)
plan = ReadPlan("variant", SelectedTables(("*.*",), {}), None, "127.0.0.1:3306")
for batch in read_changes(ChangePartition((part,)), plan):
    print(batch.to_pylist())
print(COMPILING.interprets, file=sys.stderr)
"""


def read(**environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", READ, str(FILE)]
    return subprocess.run(
        command, cwd=PROJECT, env=os.environ | environment, capture_output=True, text=True, check=True
    )


@pytest.mark.slow
def test_a_small_partition_does_not_wait_for_the_compiler(tmp_path: Path) -> None:
    first = read(NUMBA_CACHE_DIR=str(tmp_path))
    assert first.stderr.splitlines()[-1] == "True", first.stderr
    compiled = read()
    assert compiled.stderr.splitlines()[-1] == "False", compiled.stderr
    assert "'op': 'insert'" in first.stdout
    assert first.stdout == compiled.stdout


def test_a_range_is_let_go_when_its_rows_are_read_without_waiting_for_the_collector() -> None:
    def mapped() -> int:
        return Path("/proc/self/maps").read_text(encoding="utf-8").count(str(FILE))

    part = MappedRange(str(FILE), 4, FILE.stat().st_size, checksum=True, file=FILE.name)
    plan = ReadPlan("variant", SelectedTables(("*.*",), {}), None, "127.0.0.1:3306")
    for _ in read_changes(ChangePartition((part,)), plan):
        pass  # the first task of a process collects at its end
    gc.disable()
    try:
        batches = read_changes(ChangePartition((part,)), plan)
        assert next(batches).num_rows
        assert mapped() == 1
        assert all(batch.num_rows for batch in batches)
        assert mapped() == 0
    finally:
        gc.enable()
