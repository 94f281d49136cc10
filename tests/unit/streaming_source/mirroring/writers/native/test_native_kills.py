"""A process that writes a table is killed at any moment, and its batch comes again: each row is there once."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from streaming_source.mirroring.writers.native.data_files import write_file
from streaming_source.mirroring.writers.native.delta_rows import TargetShape, append_files, merge_rows
from streaming_source.mirroring.writers.target_format import READS, Commit

PROJECT = Path(__file__).resolve().parents[6]
BATCHES = 40
KILLS = 5
TARGET = TargetShape("current", ("id", "v"), ("id",), ())


def write_batches(folder: str, done: Path) -> None:
    """Bring in all batches after the last that is noted: one new row each, and a change of the row before."""
    first = len(done.read_text(encoding="utf-8")) if done.exists() else 0
    for batch in range(first, BATCHES):
        schema = pa.schema(DeltaTable(folder).schema().to_arrow())
        changed = pa.table({"0": pa.array([batch]), "1": pa.array([1]), "2": pa.array([False])})
        merge_rows(folder, changed, TARGET, Commit("m", batch, ""))
        rows = pa.RecordBatch.from_arrays([pa.array([batch + 1]), pa.array([0])], names=["0", "1"])
        file = write_file(folder, schema, ["id", "v"], [rows])
        assert file is not None
        append_files(folder, [file], TARGET, Commit("m", batch, "", READS), once=True)
        with done.open("a", encoding="utf-8") as note:
            note.write(".")


def test_each_row_is_there_once(tmp_path: Path) -> None:
    folder, done = tmp_path / "t", tmp_path / "done"
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])
    DeltaTable.create(str(folder), schema)
    script = f"from {__name__} import write_batches; from pathlib import Path; "
    command = [sys.executable, "-c", f"{script}write_batches({str(folder)!r}, Path({str(done)!r}))"]
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
    rows = sorted((row["id"], row["v"]) for row in pa.table(DeltaTable(str(folder)).to_pyarrow_table()).to_pylist())
    assert rows == [*((number, 1) for number in range(BATCHES)), (BATCHES, 0)]
