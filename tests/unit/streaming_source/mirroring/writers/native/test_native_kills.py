"""A process that writes a table is killed at any moment, and its batch comes again: each row is there once."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from streaming_source.mirroring.writers.native import rewritten_files
from streaming_source.mirroring.writers.native.data_files import write_file
from streaming_source.mirroring.writers.native.deletion_vectors import deleted_rows
from streaming_source.mirroring.writers.native.delta_rows import TargetShape, append_files, merge_rows
from streaming_source.mirroring.writers.native.table_commits import create
from streaming_source.mirroring.writers.target_format import READS, Commit
from streaming_source.transforms.transformed_images import TargetColumn

if TYPE_CHECKING:
    from collections.abc import Sequence

PROJECT = Path(__file__).resolve().parents[6]
BATCHES = 40
KILLS = 5
OLD_ROWS = 500
TARGET = TargetShape("current", ("id", "v"), ("id",), ())


def append(folder: str, keys: Sequence[int], commit: Commit) -> None:
    schema = pa.schema(DeltaTable(folder).schema().to_arrow())
    rows = pa.RecordBatch.from_arrays([pa.array(keys), pa.array([0] * len(keys))], names=["0", "1"])
    file = write_file(folder, schema, ["id", "v"], [rows])
    assert file is not None
    append_files(folder, [file], TARGET, commit, once=True)


def write_batches(folder: str, done: Path, *, marks: bool) -> None:
    """Bring in all batches after the last that is noted: one new row, and changes of two others."""
    if marks:
        rewritten_files.SMALL_BYTES, rewritten_files.MARKED_BYTES, rewritten_files.MOST_MARKED = -1, 0, 0.99  # type: ignore[misc]
    first = len(done.read_text(encoding="utf-8")) if done.exists() else 0
    for batch in range(first, BATCHES):
        changed = pa.table({"0": [batch, -1 - batch], "1": [1, 1], "2": [False, False]})
        merge_rows(folder, changed, TARGET, Commit("m", batch, ""))
        append(folder, [batch + 1], Commit("m", batch, "", READS))
        with done.open("a", encoding="utf-8") as note:
            note.write(".")


@pytest.mark.parametrize("marks", [False, True])
def test_each_row_is_there_once(tmp_path: Path, *, marks: bool) -> None:
    folder, done = tmp_path / "t", tmp_path / "done"
    columns = [TargetColumn(name, "BIGINT", nullable=True, comment="") for name in ("id", "v")]
    create(str(folder), columns, "", {"delta.enableDeletionVectors": str(marks).lower()}, "{}")
    append(str(folder), range(-OLD_ROWS, 0), Commit("m", 0, "", "first"))
    script = f"from {__name__} import write_batches; from pathlib import Path; "
    command = [sys.executable, "-c", f"{script}write_batches({str(folder)!r}, Path({str(done)!r}), marks={marks})"]
    chosen, kills = random.Random(20261129), 0
    while True:
        before = len(done.read_text(encoding="utf-8")) if done.exists() else 0
        process = subprocess.Popen(command, cwd=PROJECT)
        while kills < KILLS and process.poll() is None:
            if done.exists() and len(done.read_text(encoding="utf-8")) > before:
                time.sleep(chosen.random() / 20)
                process.send_signal(signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.005)
        if process.wait() == 0:
            break
    assert kills == KILLS
    assert bool(deleted_rows(DeltaTable(str(folder)))) == marks
    found = QueryBuilder().register("t", DeltaTable(str(folder))).execute("SELECT id, v FROM t")
    rows = sorted((row["id"], row["v"]) for row in pa.table(found.read_all()).to_pylist())
    assert rows == [(number, int(-BATCHES <= number < BATCHES)) for number in range(-OLD_ROWS, BATCHES + 1)]
