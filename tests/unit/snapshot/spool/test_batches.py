"""Files of batches: durable before they are told, found again after a restart, and never believed when damaged."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import struct
from typing import TYPE_CHECKING, Any

import pytest

from replica.errors import DiskFullError
from replica.protocol.gtid import Gtid, GtidPosition
from replica.rows.scan.scan import scan
from replica.snapshot.frontier import Frontier
from replica.snapshot.spool import batches
from replica.snapshot.spool.batches import BatchName, BatchWriter, find_batch, remove_up_to
from replica.snapshot.spool.events import LastTransaction
from replica.snapshot.spool.spool import Spool, StoredBlock
from tests.unit.snapshot.blocks import block_of, ids_of, int_map

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from replica.snapshot.spool.batches import SpoolPart

T, U = ("d", "t"), ("d", "u")
BEFORE = Frontier()
AFTER = BEFORE.begin([T, U]).advance(T, None, 5).advance(U, None, 1)
POSITION = GtidPosition.parse("0-1-7")
LAST_STEP = 6
"""The fsync of the folder: those of the own file, two taken ones and the manifest, and two renames come before."""
FILES = (".json", ".rows", ".1.rows", ".2.rows")
NAME = BatchName(BEFORE, AFTER, POSITION)
LAST = LastTransaction(Gtid(0, 1, 7), 1_700_000_000)


def open_spool(folder: Path, most_bytes: int = 1 << 30) -> Spool:
    spool = Spool(folder, most_bytes=most_bytes, min_free_bytes=0)
    spool.open()
    return spool


def written(spool: Spool, name: BatchName = NAME) -> list[SpoolPart]:
    writer = BatchWriter(spool, name.before.rows, LAST)
    writer.write(T, [block_of([1, 2]), block_of([3], table_map=int_map(99) + b"\x04\x01a"), block_of([4, 5])])
    writer.write(U, [block_of([6])])
    return writer.finish(name)


def stored_block(spool: Spool, ids: Iterable[int]) -> StoredBlock:
    """A block that waits in a file of its own."""
    stored = spool.store(block_of(ids))
    assert stored.images is not None
    return stored


def file_of(stored: StoredBlock) -> StoredBlock:
    """The same, taken for a batch."""
    assert stored.take()
    return stored


@pytest.fixture
def own_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block waits in a file of its own, of stretches of two rows."""
    monkeypatch.setattr("replica.snapshot.spool.spool.IN_MEMORY_BYTES", 0)
    monkeypatch.setattr("replica.snapshot.spool.spool.OWN_FILE_BYTES", 1)
    monkeypatch.setattr("replica.snapshot.spool.spool.STRETCH_BYTES", 12)


def taken(spool: Spool, *more: StoredBlock) -> list[SpoolPart]:
    """A batch of a file that is taken, a block in memory, and another file."""
    writer = BatchWriter(spool, 0, LAST)
    first, last = more or (stored_block(spool, [1, 2, 3]), stored_block(spool, [5]))
    writer.write(T, [file_of(first), block_of([4]), file_of(last)])
    writer.write(U, [block_of([6])])
    assert writer.rows == 6
    return writer.finish(NAME)


@contextlib.contextmanager
def failing_at(monkeypatch: pytest.MonkeyPatch, step: int) -> Iterator[None]:
    """The disk is full from the step of this number on: an fsync, a rename of a taken file, the folder's fsync."""
    left = itertools.count(step, -1)

    def failing(call: Callable[..., Any]) -> Callable[..., Any]:
        def one(*args: object) -> Any:
            if next(left) <= 0:
                raise OSError(errno.ENOSPC, "full")
            return call(*args)

        return one

    owners = (batches.os, "fsync"), (StoredBlock, "move"), (batches, "sync_directory")
    with monkeypatch.context() as patched:
        for owner, name in owners:
            patched.setattr(owner, name, failing(getattr(owner, name)))
        yield


def rows_of(part: SpoolPart) -> list[tuple[str, int]]:
    """What a decoder finds: the table's name in the map, and the id."""
    data = part.head + part.path.read_bytes()[part.start : part.end] + part.tail
    found = scan(data, checksum=False)
    rows = []
    for event in found.events:
        body = bytes(found.table_map_body(int(event["slot"])))
        images = data[int(event["images"]) : int(event["end"])]
        rows += [
            (body[9 + body[8] + 2 :][:1].decode(), struct.unpack_from("<i", images, at + 1)[0])
            for at in range(0, len(images), 5)
        ]
    assert len(found.groups) == 1
    assert found.cut_groups == 0
    return rows


def test_parts_are_whole_transactions_that_a_scan_understands(tmp_path: Path) -> None:
    first, second = written(open_spool(tmp_path))
    assert rows_of(first) == [("t", number) for number in (1, 2, 3, 4, 5)]
    assert rows_of(second) == [("t", 6)]
    assert (first.first_row, first.rows, first.table) == (0, 5, T)
    assert (second.first_row, second.rows, second.table) == (5, 1, U)


def test_tables_are_cut_into_parts_of_some_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "PART_BYTES", 1)
    monkeypatch.setattr("replica.snapshot.spool.events.EVENT_BYTES", 12)
    parts = written(open_spool(tmp_path))
    assert [row for part in parts for row in rows_of(part)] == [("t", number) for number in range(1, 7)]
    assert [part.rows for part in parts] == [2, 1, 2, 1]
    assert [part.first_row for part in parts] == [0, 2, 3, 5]


def test_a_part_of_many_maps_ends_before_its_head_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "PART_MAPS", 2)
    spool = open_spool(tmp_path)
    writer = BatchWriter(spool, 0, LAST)
    writer.write(T, [block_of([n], table_map=int_map(n) + bytes((4, 1, n))) for n in range(1, 6)])
    parts = writer.finish(NAME)
    assert [row for part in parts for row in rows_of(part)] == [("t", number) for number in range(1, 6)]
    assert [part.rows for part in parts] == [2, 2, 1]


def test_a_restart_finds_the_parts_of_the_batch_and_of_no_other(tmp_path: Path) -> None:
    parts = written(open_spool(tmp_path))
    assert find_batch(tmp_path, NAME) == parts
    assert find_batch(tmp_path, NAME._replace(position=GtidPosition.parse("0-1-8"))) is None
    assert find_batch(tmp_path, NAME._replace(after=AFTER.finish())) is None
    assert find_batch(tmp_path / "elsewhere", NAME) is None


def test_a_batch_without_some_tables_is_not_found_after_a_restart(tmp_path: Path) -> None:
    writer = BatchWriter(open_spool(tmp_path), 0, LAST)
    writer.write(T, [block_of([1], table_map=int_map(1) + bytes((4, 1, 1)))])
    parts = writer.finish(NAME, complete=False)
    assert [row for part in parts for row in rows_of(part)] == [("t", 1)]
    assert find_batch(tmp_path, NAME) is None


def test_what_is_damaged_or_lost_is_no_batch(tmp_path: Path) -> None:
    written(open_spool(tmp_path))
    rows, manifest = tmp_path / f"{NAME.stem}.rows", tmp_path / f"{NAME.stem}.json"
    content, told = rows.read_bytes(), manifest.read_bytes()
    other = json.loads(told)
    other["batch"]["files"][0][0] += 1
    for damaged in (
        b"",
        b"{",
        told[:-9],
        told.replace(b'"files"', b'"Files"'),
        json.dumps(other).encode(),
        b"[]",
        b"7",
    ):
        manifest.write_bytes(damaged)
        assert find_batch(tmp_path, NAME) is None
    manifest.write_bytes(told)
    for lost in (b"", content[:-1], content + b"?", content[:-1] + bytes((content[-1] ^ 1,))):
        rows.write_bytes(lost)
        assert find_batch(tmp_path, NAME) is None
    rows.write_bytes(content)
    assert find_batch(tmp_path, NAME) is not None
    rows.unlink()
    assert find_batch(tmp_path, NAME) is None


def test_a_batch_of_this_process_is_known_by_its_size_until_it_is_removed(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    parts = written(spool)
    assert spool.finished == {NAME.stem}
    rows = tmp_path / f"{NAME.stem}.rows"
    content = rows.read_bytes()
    rows.write_bytes(content[:-1] + b"?")
    assert find_batch(tmp_path, NAME, ours=True) == parts
    rows.write_bytes(content[:-1])
    assert find_batch(tmp_path, NAME, ours=True) is None
    remove_up_to(spool, AFTER.rows)
    assert spool.finished == set()
    assert find_batch(tmp_path, NAME, ours=True) is None


@pytest.mark.usefixtures("own_files")
def test_files_of_blocks_are_taken_as_they_are(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    parts = taken(spool)
    assert [row for part in parts for row in rows_of(part)] == [("t", number) for number in range(1, 7)]
    assert [(part.first_row, part.rows) for part in parts] == [(0, 2), (2, 1), (3, 1), (4, 1), (5, 1)]
    assert {path.name for path in tmp_path.iterdir()} == {f"{NAME.stem}{end}" for end in FILES}
    assert spool.used == sum(path.stat().st_size for path in tmp_path.iterdir())
    assert find_batch(tmp_path, NAME) == parts
    remove_up_to(spool, AFTER.rows)
    assert list(tmp_path.iterdir()) == []
    assert spool.used == 0


@pytest.mark.usefixtures("own_files")
@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize("end", [".rows", ".1.rows", ".2.rows", ".json"])
def test_a_batch_lacks_no_file_that_it_took(tmp_path: Path, end: str, *, ours: bool) -> None:
    taken(open_spool(tmp_path))
    path = tmp_path / f"{NAME.stem}{end}"
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    assert find_batch(tmp_path, NAME, ours=ours) is None
    path.unlink()
    assert find_batch(tmp_path, NAME, ours=ours) is None


@pytest.mark.usefixtures("own_files")
def test_rows_of_a_file_that_was_taken_are_not_believed_when_damaged(tmp_path: Path) -> None:
    first, *_ = taken(open_spool(tmp_path))
    content = bytearray(first.path.read_bytes())
    content[first.start] ^= 1
    first.path.write_bytes(content)
    assert find_batch(tmp_path, NAME) is None
    content[first.start] ^= 1
    content[0] ^= 1  # what only a reader of the block looks at
    first.path.write_bytes(content)
    assert find_batch(tmp_path, NAME) is not None


@pytest.mark.usefixtures("own_files")
@pytest.mark.parametrize("calls", range(LAST_STEP + 1))
def test_a_file_stays_with_its_block_until_the_batch_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """Whatever step of finishing fails, the next try takes the same files."""
    spool = open_spool(tmp_path)
    blocks = stored_block(spool, [1, 2, 3]), stored_block(spool, [5])
    with failing_at(monkeypatch, calls):
        writer = BatchWriter(spool, 0, LAST)
        writer.write(T, [file_of(blocks[0]), block_of([4]), file_of(blocks[1])])
        writer.write(U, [block_of([6])])
        with pytest.raises(DiskFullError):
            writer.finish(NAME)
        writer.abandon()
    assert not any(block.lost for block in blocks)
    parts = taken(spool, *blocks)
    assert [row for part in parts for row in rows_of(part)] == [("t", number) for number in range(1, 7)]
    for block in blocks:
        block.drop()
    assert find_batch(tmp_path, NAME) == parts
    assert spool.used == sum(path.stat().st_size for path in tmp_path.iterdir())


@pytest.mark.usefixtures("own_files")
@pytest.mark.parametrize("calls", range(LAST_STEP + 1))
def test_a_crash_at_any_step_leaves_no_batch_and_nothing_behind_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    with failing_at(monkeypatch, calls), pytest.raises(DiskFullError):
        taken(open_spool(tmp_path))  # and no one abandons it
    there = find_batch(tmp_path, NAME)
    assert (there is not None) == (calls == LAST_STEP)
    again = open_spool(tmp_path)
    assert not list(tmp_path.glob("*.new"))
    assert not list(tmp_path.glob("chunk-*"))
    parts = taken(again)
    assert find_batch(tmp_path, NAME) == parts
    remove_up_to(again, AFTER.rows)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("own_files")
def test_an_abandoned_batch_gives_files_back_to_their_blocks(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    stored = stored_block(spool, [1, 2, 3])
    writer = BatchWriter(spool, 0, LAST)
    writer.write(T, [file_of(stored)])
    writer.abandon()
    assert [path.name for path in tmp_path.iterdir()] == ["chunk-000001.rows"]
    loaded = stored.load()
    assert loaded is not None
    assert ids_of(loaded) == [1, 2, 3]
    stored.drop()
    assert spool.used == 0


@pytest.mark.usefixtures("own_files")
@pytest.mark.parametrize("finished", [True, False])
def test_a_block_that_is_dropped_meanwhile_leaves_its_file_to_the_batch(tmp_path: Path, *, finished: bool) -> None:
    """Its table is read again, in another thread, while the batch with the rows that were read before is written."""
    spool = open_spool(tmp_path)
    stored = stored_block(spool, [1, 2, 3])
    writer = BatchWriter(spool, 0, LAST)
    writer.write(T, [file_of(stored)])
    stored.drop()
    if finished:
        parts = writer.finish(NAME)
        assert [row for part in parts for row in rows_of(part)] == [("t", 1), ("t", 2), ("t", 3)]
    else:
        writer.abandon()
        assert list(tmp_path.iterdir()) == []
        assert spool.used == 0
    assert not stored.take()


def test_what_was_not_finished_leaves_nothing(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    writer = BatchWriter(spool, 0, LAST)
    writer.write(T, [block_of(range(100))])
    writer.abandon()
    writer.abandon()
    assert list(tmp_path.iterdir()) == []
    assert spool.used == 0


def test_a_crash_before_the_last_rename_leaves_no_batch(tmp_path: Path) -> None:
    written(open_spool(tmp_path))
    manifest = tmp_path / f"{NAME.stem}.json"
    manifest.rename(tmp_path / f"{NAME.stem}.json.new")
    assert find_batch(tmp_path, NAME) is None
    open_spool(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [f"{NAME.stem}.rows"]
    assert written(open_spool(tmp_path)) == find_batch(tmp_path, NAME)


def test_committed_batches_are_removed_and_others_stay(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    written(spool)
    later = BatchName(AFTER, AFTER.begin([("e", "t")]).advance(("e", "t"), None, 6), POSITION)
    written(spool, later)
    (tmp_path / "batch-notes.txt").write_bytes(b"")
    (tmp_path / "batch-a-b-c-d.json").write_bytes(b"")
    remove_up_to(spool, AFTER.rows)
    assert find_batch(tmp_path, NAME) is None
    assert find_batch(tmp_path, later) is not None
    remove_up_to(spool, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["batch-a-b-c-d.json", "batch-notes.txt"]
    assert spool.used == 0
    remove_up_to(open_spool(tmp_path / "gone"), None)


def test_rows_that_do_not_fit_are_refused_before_they_are_written(tmp_path: Path) -> None:
    spool = open_spool(tmp_path, most_bytes=100)
    writer = BatchWriter(spool, 0, LAST)
    with pytest.raises(DiskFullError):
        writer.write(T, [block_of(range(1000))])
    assert writer.size == 0
    writer.abandon()
    assert spool.used == 0
