"""Upkeep between batches does what is due in turn, removes nothing before its time, and never fails a batch."""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, write_deltalake

from streaming_source.mirroring.writers.native import upkeep
from streaming_source.mirroring.writers.native.upkeep import CHECK_EVERY, FEW_FILES, Upkeep, upkeep_properties

if TYPE_CHECKING:
    from collections.abc import Iterator

HOUR = 3600
LOG, FILES = "delta.logRetentionDuration", "delta.deletedFileRetentionDuration"


class Clock:
    """A clock that a test sets; each look at it takes `step` seconds."""

    def __init__(self, step: float = 0.0) -> None:
        self.now = 1000.0
        self.step = step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def made(folder: Path, versions: int, **properties: str) -> str:
    """Make a table of which each version replaces the one file of the version before."""
    DeltaTable.create(
        str(folder), pa.schema([("id", pa.int64())]), configuration={"delta.checkpointInterval": "10", **properties}
    )
    for number in range(versions):
        replace(str(folder), number)
    return str(folder)


def replace(folder: str, number: int, mode: Any = "overwrite", *, checkpoint: bool = True) -> None:
    write_deltalake(
        folder,
        pa.table({"id": pa.array([number], pa.int64())}),
        mode=mode,
        post_commithook_properties=PostCommitHookProperties(create_checkpoint=checkpoint, cleanup_expired_logs=False),
    )


def age(folder: str, seconds: float, versions: int | None = None) -> None:
    """Let all files, and the removals in the log's versions, be so much older: in all, or in the oldest versions."""
    log, ages = Path(folder, "_delta_log"), set()
    for path in sorted(log.glob("*.json"))[:versions]:
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        for action in actions:
            if "remove" in action:
                action["remove"]["deletionTimestamp"] -= int(seconds * 1000)
            if "add" in action:
                ages.add(Path(folder, action["add"]["path"]))
        path.write_text("\n".join(map(json.dumps, actions)))
        ages |= {path, *log.glob(f"{path.stem}.*")}
    for path in ages:
        if path.exists():
            at = path.stat().st_mtime - seconds
            os.utime(path, (at, at))
    for path in log.glob("*.checkpoint.parquet"):  # removals are in them too, and they are made again by the test
        path.unlink()
    (log / "_last_checkpoint").unlink(missing_ok=True)


def data_files(folder: str) -> set[str]:
    return {path.name for path in Path(folder).glob("*.parquet")}


def oldest(folder: str) -> int:
    return min(int(path.stem) for path in Path(folder, "_delta_log").glob("*.json"))


def checkpoints(folder: str) -> list[int]:
    return sorted(int(path.name[:20]) for path in Path(folder, "_delta_log").glob("*.checkpoint.parquet"))


def test_what_is_older_than_the_retention_goes_and_all_later_versions_stay(tmp_path: Path) -> None:
    folder = made(tmp_path / "t", 30, **{LOG: "interval 1 hours", FILES: "interval 1 hours"})
    age(folder, 2 * HOUR, 20)  # versions 0 to 19
    for version in (19, 29):
        DeltaTable(folder, version=version).create_checkpoint()
    os.utime(Path(folder, f"_delta_log/{19:020}.checkpoint.parquet"), (time.time() - 2 * HOUR,) * 2)
    Upkeep().after_batch([folder])
    assert oldest(folder) == 19, "the checkpoint that later versions begin with"
    for version in range(19, 31):
        assert pa.table(DeltaTable(folder, version=version).to_pyarrow_table()).to_pylist() == [{"id": version - 1}]
    assert len(data_files(folder)) == 12, "those of the versions 19 to 30"


def test_nothing_goes_before_deltas_own_retention(tmp_path: Path) -> None:
    folder = made(tmp_path / "t", 25)
    age(folder, 6 * 24 * HOUR)
    DeltaTable(folder).create_checkpoint()
    (Path(folder) / "of-a-running-write.parquet").write_bytes(b"x")
    before = data_files(folder)
    Upkeep().after_batch([folder])
    assert data_files(folder) == before
    assert oldest(folder) == 0
    age(folder, 2 * 24 * HOUR)
    Upkeep().after_batch([folder])
    assert len(data_files(folder)) == 2, "the file in use, and the one that is young"
    assert oldest(folder) == 0, "logs are kept for 30 days"


def test_a_log_that_is_to_be_kept_is_kept(tmp_path: Path) -> None:
    properties = {LOG: "interval 1 hours", FILES: "interval 1 hours", "delta.enableExpiredLogCleanup": "false"}
    folder = made(tmp_path / "t", 12, **properties)
    age(folder, 2 * HOUR)
    DeltaTable(folder).create_checkpoint()
    os.utime(Path(folder, f"_delta_log/{12:020}.checkpoint.parquet"), (time.time() - 2 * HOUR,) * 2)
    Upkeep().after_batch([folder])
    assert oldest(folder) == 0


def test_removals_are_an_hour_apart_at_most_and_ten_minutes_at_least(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def noted(what: str) -> Any:
        def step(_: str) -> Iterator[None]:
            done.append(what)
            yield

        return step

    monkeypatch.setattr(upkeep, "_clean_log", noted("log"))
    monkeypatch.setattr(upkeep, "_remove_files", noted("files"))
    folder = made(tmp_path / "t", 1, **{LOG: "interval 1 week", FILES: "interval 1 hour"})
    clock = Clock()
    tables = Upkeep(clock)

    def after(seconds: float) -> list[str]:
        clock.now += seconds
        done.clear()
        for _ in range(CHECK_EVERY):
            tables.after_batch([folder])
        return sorted(done)

    assert after(0) == ["files", "log"], "at the first batch after a start"
    assert after(599) == []
    assert after(1) == ["files"]
    assert after(3000) == ["files", "log"]


def test_a_checkpoint_is_written_where_two_writers_in_turn_write_none(tmp_path: Path) -> None:
    folder = made(tmp_path / "t", 5)
    tables = Upkeep()
    tables.after_batch([folder])
    assert checkpoints(folder) == [], "none is due"
    for number in range(CHECK_EVERY):
        replace(folder, number, checkpoint=False)
        tables.after_batch([folder])
    (version,) = checkpoints(folder)
    assert version > 10
    assert json.loads(Path(folder, "_delta_log/_last_checkpoint").read_text())["version"] == version


def test_small_files_are_joined_as_they_come(tmp_path: Path) -> None:
    folder = made(tmp_path / "t", 0)
    tables, most = Upkeep(), 0
    for number in range(3 * CHECK_EVERY):
        replace(folder, number, mode="append")
        tables.after_batch([folder])
        most = max(most, len(DeltaTable(folder).file_uris()))
    assert most <= FEW_FILES + CHECK_EVERY
    ids = pa.table(DeltaTable(folder).to_pyarrow_table()).column("id").to_pylist()
    assert sorted(ids) == list(range(3 * CHECK_EVERY))


def test_a_table_is_looked_at_once_in_many_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    monkeypatch.setattr(Upkeep, "_due", lambda _, folder, __: iter(looks.append(folder) or ()))
    tables = Upkeep()
    for _ in range(CHECK_EVERY):
        tables.after_batch(["a"])
    tables.after_batch(["b"])
    assert looks == ["a", "b"], "at first sight"
    for _ in range(CHECK_EVERY):
        tables.after_batch(["b"])
    tables.after_batch(["a"])
    assert looks == ["a", "b", "b", "a"]


def test_tables_take_turns_and_a_batch_waits_for_one_piece_beyond_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, done = Clock(), []

    def step(folder: str) -> Iterator[None]:
        for number in range(3):
            clock.now += 0.6
            done.append(f"{folder}{number}")
            yield

    monkeypatch.setattr(Upkeep, "_due", lambda *_: iter([("step", step)]))
    tables = Upkeep(clock)
    tables.after_batch(["a", "b"])
    assert done == ["a0", "b0"]
    tables.after_batch([])
    assert done == ["a0", "b0", "a1", "b1"]
    for _ in range(3):
        tables.after_batch(["a"])
    assert done == ["a0", "b0", "a1", "b1", "a2", "b2"], "and then nothing is due"


class PanicError(BaseException):
    """What a panic of delta-rs is in Python: no Exception."""


def test_an_error_is_logged_once_and_the_step_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[str] = []

    def broken(folder: str) -> int:
        tries.append(folder)
        raise PanicError("no rows today")

    monkeypatch.setattr(upkeep, "compact", broken)
    folder = made(tmp_path / "t", 0)
    for number in range(FEW_FILES):
        replace(folder, number, mode="append")
    tables = Upkeep()
    with caplog.at_level(logging.DEBUG, logger=upkeep.__name__):
        for _ in range(3 * CHECK_EVERY):
            tables.after_batch([folder, str(tmp_path / "gone")])
    assert len(tries) >= 2
    records = [record for record in caplog.records if record.name == upkeep.__name__]
    of_others, *warned = [record.getMessage() for record in records if record.levelno >= logging.WARNING]
    assert of_others.startswith("Another writer changed rows"), "the test, which is no mirror"
    assert warned == [f"The compaction of {folder} failed, and is tried again later: PanicError: no rows today"]


def test_a_program_that_is_to_end_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Upkeep, "_due", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Upkeep().after_batch(["a"])


def test_a_file_that_is_in_use_again_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made(tmp_path / "t", 5, **{LOG: "interval 1 hours", FILES: "interval 1 hours"})
    age(folder, 2 * HOUR)
    whole = upkeep._expired_files

    def and_restored(*arguments: Any) -> list[str]:
        found = whole(*arguments)
        DeltaTable(folder).restore(2)
        return found

    monkeypatch.setattr(upkeep, "_expired_files", and_restored)
    Upkeep().after_batch([folder])
    assert pa.table(DeltaTable(folder).to_pyarrow_table()).to_pylist() == [{"id": 1}]


def test_checksums_go_with_their_versions(tmp_path: Path) -> None:
    folder = made(tmp_path / "t", 12, **{LOG: "interval 1 hours", FILES: "interval 1 hours"})
    log = Path(folder, "_delta_log")
    age(folder, 2 * HOUR)
    DeltaTable(folder, version=11).create_checkpoint()
    os.utime(log / f"{11:020}.checkpoint.parquet", (time.time() - 2 * HOUR,) * 2)
    replace(folder, 12)
    for version in (3, 11, 12):
        for name in (f"{version:020}.crc", f".{version:020}.json.crc", f".{version:020}.crc.crc"):
            (log / name).touch()
    Upkeep().after_batch([folder])
    kept = {int(path.name.lstrip(".")[:20]) for path in log.iterdir() if path.name.endswith(".crc")}
    assert (oldest(folder), kept) == (11, {11, 12})


@pytest.mark.parametrize(
    ("given", "own"),
    [
        ({}, {LOG: "interval 1 hours", FILES: "interval 1 hours", "delta.checkpointInterval": "20"}),
        ({"delta.checkpointInterval": "10"}, {LOG: "interval 1 hours", FILES: "interval 1 hours"}),
        ({FILES: "interval 1 days"}, {LOG: "interval 1 days", "delta.checkpointInterval": "20"}),
        (
            {"DELTA.logretentionduration": "interval 2 days"},
            {FILES: "interval 2 days", "delta.checkpointInterval": "20"},
        ),
        ({LOG: "interval 2 days", FILES: "interval 1 days"}, {"delta.checkpointInterval": "20"}),
    ],
)
def test_properties_of_the_user_win(given: dict[str, str], own: dict[str, str]) -> None:
    assert upkeep_properties(given) == own


@pytest.mark.parametrize(
    ("interval", "seconds"),
    [
        ("interval 1 hours", 3600),
        ("interval 1 day 2 Hours", 93_600),
        ("interval 2 weeks", 1_209_600),
        ("some time", 5),
        (None, 5),
    ],
)
def test_lengths_of_intervals(interval: str | None, seconds: int) -> None:
    assert upkeep._seconds(interval, 5) == seconds


def test_changes_of_others_are_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    about = {"userMetadata": json.dumps({"mirror": "m", "batch": 1})}
    folder = made(tmp_path, 0)
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
    write_deltalake(folder, rows, mode="append", commit_properties=CommitProperties(custom_metadata=about))
    DeltaTable(folder).delete("id = 2")
    DeltaTable(folder).alter.set_table_properties({"delta.checkpointInterval": "30"})
    keeper = Upkeep(Clock())
    for _ in range(2 * CHECK_EVERY):
        keeper.after_batch([folder])
    (told,) = [line for line in caplog.messages if "Another writer" in line]
    assert f"rows of {folder}: DELETE in version 2, and 0 more since. " in told
    assert "mirror_resnapshot" in told

    replace(folder, 7)
    for _ in range(CHECK_EVERY):
        keeper.after_batch([folder])
    assert [line for line in caplog.messages if ": WRITE in version 4, and 0 more since. " in line]
