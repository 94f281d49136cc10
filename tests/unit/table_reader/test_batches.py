"""Files of batches: durable before they are told, found again after a restart, and never believed when damaged."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

import pytest

from replica.errors import DiskFullError
from replica.protocol.gtid import Gtid, GtidPosition
from replica.rows.scan.scan import scan
from replica.table_reader import batches
from replica.table_reader.batches import BatchName, BatchWriter, find_batch, remove_up_to
from replica.table_reader.frontier import Frontier
from replica.table_reader.rows_events import LastTransaction
from replica.table_reader.spool import Spool
from tests.unit.table_reader.blocks import block_of, int_map

if TYPE_CHECKING:
    from pathlib import Path

    from replica.table_reader.batches import SpoolPart

T, U = ("d", "t"), ("d", "u")
BEFORE = Frontier()
AFTER = BEFORE.begin([T, U]).advance(T, None, 5).advance(U, None, 1)
POSITION = GtidPosition.parse("0-1-7")
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
    monkeypatch.setattr("replica.table_reader.rows_events.EVENT_BYTES", 12)
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


def test_what_is_damaged_or_lost_is_no_batch(tmp_path: Path) -> None:
    written(open_spool(tmp_path))
    rows, manifest = tmp_path / f"{NAME.stem}.rows", tmp_path / f"{NAME.stem}.json"
    content, told = rows.read_bytes(), manifest.read_bytes()
    other = json.loads(told)
    other["batch"]["size"] += 1
    for damaged in (b"", b"{", told[:-9], told.replace(b'"sum"', b'"Sum"'), json.dumps(other).encode(), b"[]", b"7"):
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
