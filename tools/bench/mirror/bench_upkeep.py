"""What commits cost a table: `scripts/bench upkeep [--versions N ...] [--commits N] [--only NAME] [--json]`.

sizes     five changes brought into tables of so many rows, in turn: by a MERGE of delta-rs, by the same in a process
          that kept the table open, by writing all rows again as one file. Measured are means of SIZE_PASSES, in CPU ms
versions  a table of 1 000 rows with so many versions in its log, and as many removed files in its last checkpoint. The
          older commits are written by hand. Measured are medians of PASSES: DeltaTable(), a MERGE of five rows, and the
          same MERGE with what delta-rs does after a commit by default
run       a real loop of 50,000 commits (--commits) as a mirror makes them, with upkeep after each. A retention of 200
          seconds instead of an hour stands for one commit a second, if the loop makes 18. Measured are commit and
          upkeep along the way, files, and bytes of the log; `--inserts` inserts five rows instead of changing them

No Spark and no server. The tables are in .cache/bench/upkeep, or below --folder.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import sys
import time
import uuid
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction

from streaming_source.mirroring.writers.native import delta_rows, upkeep
from streaming_source.mirroring.writers.native.data_files import files_of
from streaming_source.mirroring.writers.native.delta_rows import TargetShape, after_commit, merge_rows
from streaming_source.mirroring.writers.target_format import Commit
from tools.bench.kit.workloads import CACHE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from deltalake import PostCommitHookProperties

PASSES = 9
ROWS = 1000
CHANGED = 5
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64()), pa.field("t", pa.string())])
TARGET = TargetShape("current", tuple(SCHEMA.names), ("id",), ())
SIZES = (10, 1000, 10_000, 50_000)
SIZE_PASSES = 40
WAYS = {"MERGE": (True, False), "MERGE, kept open": (True, True), "written again": (False, True)}
"""Whether changes are merged by a query, and whether tables are kept open."""
RUN_KEPT_S = 200
LAST = 100


def create(folder: Path, properties: Mapping[str, str], rows: int = ROWS) -> str:
    """Make a table of so many rows."""
    shutil.rmtree(folder, ignore_errors=True)
    DeltaTable.create(str(folder), SCHEMA, configuration=dict(properties), raise_if_key_not_exists=False)
    merge(str(folder), range(rows), 0)
    return str(folder)


def merge(folder: str, ids: Sequence[int], number: int, after: PostCommitHookProperties | None = None) -> None:
    """Change or insert these rows by a MERGE alone."""
    rows = changed(ids)
    table = DeltaTable(folder)
    assert (table.transaction_version("m/changes") or 0) <= number
    table.merge(
        rows,
        predicate="target.id = source.id",
        source_alias="source",
        target_alias="target",
        commit_properties=CommitProperties(
            app_transactions=[Transaction("m/changes", number)],
            custom_metadata={"userMetadata": json.dumps({"mirror": "m", "batch": number, "position": "0-1-1"})},
        ),
        post_commithook_properties=after,
    ).when_matched_update_all().when_not_matched_insert_all().execute()


def changed(ids: Sequence[int]) -> pa.Table:
    values = [random.randrange(1 << 40) for _ in ids]
    return pa.table([ids, values, [f"text {one}" for one in ids]], schema=SCHEMA)


def bring_in(folder: str, ids: Sequence[int], number: int) -> None:
    """Change or insert these rows, as the task of a mirror does."""
    rows = changed(ids)
    numbered = pa.Table.from_arrays([*rows.columns, pa.array([False] * len(ids))], names=["0", "1", "2", "3"])
    assert merge_rows(folder, numbered, TARGET, Commit("m", number, "0-1-1"))


def add_versions(folder: str, versions: int) -> None:
    """Write commits until the table has so many versions, each with one file in the place of another."""
    log = Path(folder, "_delta_log")
    merge(folder, [1], 0)
    version = DeltaTable(folder).version()
    actions: dict[str, Any] = {}
    for line in (log / f"{version:020}.json").read_text().splitlines():
        actions |= json.loads(line)
    real = there = actions["add"]["path"]
    for number in range(version + 1, versions):
        name = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
        os.link(Path(folder, real), Path(folder, name))
        written: tuple[dict[str, Any], ...] = (
            {"commitInfo": actions["commitInfo"]},
            {"add": {**actions["add"], "path": name}},
            {"remove": {**actions["remove"], "path": there, "deletionTimestamp": int(time.time() * 1000)}},
            {"txn": {**actions["txn"], "version": number}},
        )
        lines = [json.dumps(action, separators=(",", ":")) for action in written]
        (log / f"{number:020}.json").write_text("\n".join(lines))
        there = name
    DeltaTable(folder).create_checkpoint()


def timed(call: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU milliseconds."""
    began, cpu = time.perf_counter(), time.process_time()
    call()
    return (time.perf_counter() - began) * 1e3, (time.process_time() - cpu) * 1e3


def measure_sizes(root: Path, sizes: Sequence[int]) -> dict[str, Any]:
    print("    rows   MERGE   MERGE, kept open   written again   (CPU ms)   KB")
    result: dict[str, Any] = {}
    for size in sizes:
        folders = {way: create(root / way, upkeep.upkeep_properties({}), size) for way in WAYS}
        spent = dict.fromkeys(WAYS, 0.0)
        for number in range(1, SIZE_PASSES + 1):
            ids = sorted(random.sample(range(size), CHANGED))
            for way, (merges, keeps) in WAYS.items():
                with (
                    patch.object(delta_rows, "is_rewritable", lambda *_: False) if merges else nullcontext(),
                    nullcontext() if keeps else patch.object(delta_rows, "keep", lambda *_: None),
                ):
                    spent[way] += timed(lambda: bring_in(folders[way], ids, number))[1]  # noqa: B023
        found = {way: total / SIZE_PASSES for way, total in spent.items()}
        kilobytes = sum(file.size for file in files_of(DeltaTable(folders["written again"]))) / 1e3
        print(f"{size:8}   {'   '.join(f'{one:6.1f}' for one in found.values())}   {kilobytes:.0f}", flush=True)
        result[str(size)] = found | {"kilobytes": kilobytes}
        for folder in folders.values():
            shutil.rmtree(folder)
    return result


def measure_versions(root: Path, counts: Sequence[int]) -> dict[str, Any]:
    print("versions   DeltaTable()      MERGE             MERGE, defaults of delta-rs   (wall and CPU ms)   log MB")
    result: dict[str, Any] = {}
    for versions in counts:
        folder = create(root / f"versions-{versions}", {"delta.checkpointInterval": "1000000"})
        add_versions(folder, versions)
        number, found = versions, []
        for call in (
            lambda: DeltaTable(folder),  # noqa: B023
            lambda: merge(folder, random.sample(range(ROWS), CHANGED), number, after_commit()),  # noqa: B023
            lambda: merge(folder, random.sample(range(ROWS), CHANGED), number),  # noqa: B023
        ):
            passes = [timed(call) for _ in range(PASSES)]
            found.append([statistics.median(each) for each in zip(*passes, strict=True)])
        _, log = sizes(Path(folder, "_delta_log"))
        print(f"{versions:8}   " + "   ".join(f"{wall:6.1f} {cpu:6.1f}" for wall, cpu in found) + f"   {log / 1e6:.1f}")
        result[str(versions)] = {"open": found[0], "merge": found[1], "merge_defaults": found[2], "log_bytes": log}
        shutil.rmtree(folder)
    return result


def measure_run(root: Path, commits: int, *, inserts: bool) -> list[dict[str, Any]]:
    kept = f"interval {RUN_KEPT_S} seconds"
    properties = upkeep.upkeep_properties({}) | {
        "delta.logRetentionDuration": kept, "delta.deletedFileRetentionDuration": kept,
    }  # fmt: skip
    folder = create(root / "run", properties)
    tables, spent, result = upkeep.Upkeep(), [], []
    print("commits  commit ms: median, mean, p99   upkeep ms a commit, most   log files, MB   data files, MB, in use")
    milestones = {LAST, 1000, *range(10_000, commits, 10_000), commits}
    with patch.object(upkeep, "LEAST_PERIOD_S", RUN_KEPT_S / 6):
        for number in range(1, commits + 1):
            ids = range(number * CHANGED, (number + 1) * CHANGED) if inserts else random.sample(range(ROWS), CHANGED)
            written = timed(lambda: bring_in(folder, ids, number))[0]  # noqa: B023
            spent.append((written, timed(lambda: tables.after_batch([folder]))[0]))
            if number in milestones:
                merges = sorted(each for each, _ in spent[-10 * LAST :][-LAST if number == LAST else -10 * LAST :])
                kept_up = [each for _, each in spent[-10 * LAST :]]
                (files, size), (logs, log) = sizes(Path(folder)), sizes(Path(folder, "_delta_log"))
                figures = {
                    "commits": number,
                    "merge_ms": statistics.median(merges),
                    "merge_mean_ms": statistics.mean(merges),
                    "merge_p99_ms": merges[len(merges) * 99 // 100],
                    "upkeep_ms": statistics.mean(kept_up),
                    "upkeep_most_ms": max(kept_up),
                    "log_files": logs,
                    "log_bytes": log,
                    "files": files,
                    "bytes": size,
                    "in_use": len(DeltaTable(folder).file_uris()),
                }
                result.append(figures)
                print(
                    f"{number:7}  {figures['merge_ms']:.1f}, {figures['merge_mean_ms']:.1f}, "
                    f"{figures['merge_p99_ms']:.1f}   {figures['upkeep_ms']:.2f}, {figures['upkeep_most_ms']:.0f}   "
                    f"{logs}, {log / 1e6:.1f}   {files}, {size / 1e6:.1f}, {figures['in_use']}",
                    flush=True,
                )
    shutil.rmtree(folder)
    return result


def sizes(folder: Path) -> tuple[int, int]:
    """Return how many files a folder has, and their bytes."""
    found = [entry.stat().st_size for entry in os.scandir(folder) if entry.is_file()]
    return len(found), sum(found)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench upkeep", description=__doc__)
    parser.add_argument("--versions", type=int, nargs="+", default=[100, 3600, 10_000, 50_000])
    parser.add_argument("--commits", type=int, default=50_000)
    parser.add_argument("--inserts", action="store_true")
    parser.add_argument("--only", choices=("sizes", "versions", "run"))
    parser.add_argument("--folder", type=Path, default=CACHE / "upkeep")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    result: dict[str, Any] = {}
    if given.only in (None, "sizes"):
        result["sizes"] = measure_sizes(given.folder, SIZES)
    if given.only in (None, "versions"):
        result["versions"] = measure_versions(given.folder, given.versions)
    if given.only in (None, "run"):
        result["run"] = measure_run(given.folder, given.commits, inserts=given.inserts)
    if given.json:
        print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
