"""Blocks that wait on disk: kept, lost, limited, and cleaned up after an earlier life."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from replica.errors import DiskFullError, RelayError
from replica.snapshot.spool.spool import IN_MEMORY_BYTES, Spool, spool_error
from tests.unit.snapshot.blocks import block_of, ids_of

if TYPE_CHECKING:
    from pathlib import Path

LARGE = range(IN_MEMORY_BYTES)


def open_spool(folder: Path, *, most_bytes: int = 1 << 30, min_free_bytes: int = 0, held_bytes: int = 0) -> Spool:
    spool = Spool(folder, most_bytes=most_bytes, min_free_bytes=min_free_bytes, held_bytes=held_bytes)
    spool.open()
    return spool


@pytest.mark.parametrize("ids", [range(0), range(3), LARGE], ids=["none", "few", "many"])
def test_a_block_comes_back_as_it_was(tmp_path: Path, ids: range) -> None:
    spool = open_spool(tmp_path / "spool")
    block = block_of(ids)
    stored = spool.store(block)
    loaded = stored.load()
    assert loaded is not None
    assert ids_of(loaded) == list(ids)
    assert (loaded.table_map, loaded.width, loaded.key_ends.tolist()) == (block.table_map, 1, block.key_ends.tolist())
    assert loaded.keys.tobytes() == block.keys.tobytes()


def test_small_blocks_take_no_file_and_large_ones_give_theirs_back(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    small, large = spool.store(block_of(range(3))), spool.store(block_of(LARGE))
    assert len(list(tmp_path.iterdir())) == 1
    assert spool.used == large.size
    assert not large.lost
    for stored in (small, large, large):
        stored.drop()
    assert list(tmp_path.iterdir()) == []
    assert spool.used == 0
    assert large.load() is None


def test_what_fits_is_held_in_memory_and_the_rest_is_in_files(tmp_path: Path) -> None:
    size = open_spool(tmp_path / "size").store(block_of(LARGE)).size
    folder = tmp_path / "spool"
    spool = open_spool(folder, held_bytes=2 * size)
    one, other, third = (spool.store(block_of(LARGE)) for _ in range(3))
    assert len(list(folder.iterdir())) == 1
    assert spool.used == size
    assert not one.lost
    held = one.load()
    assert held is not None
    assert ids_of(held) == list(LARGE)
    one.drop()
    one.drop()
    assert one.load() is None
    fourth = spool.store(block_of(LARGE))
    assert spool.used == size
    for stored in (other, third, fourth):
        stored.drop()
    assert list(folder.iterdir()) == []


def test_a_file_that_is_gone_or_damaged_is_no_block(tmp_path: Path) -> None:
    spool = open_spool(tmp_path)
    one, other, third = (spool.store(block_of(LARGE)) for _ in range(3))
    first, second, last = sorted(tmp_path.iterdir())
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    last.write_bytes(b"?" + last.read_bytes()[1:])
    assert one.lost
    assert (one.load(), other.load(), third.load()) == (None, None, None)
    last.write_bytes(b"")
    assert third.load() is None


def test_the_limit_and_the_disk_are_asked_before_anything_is_written(tmp_path: Path) -> None:
    size = open_spool(tmp_path / "size").store(block_of(LARGE)).size
    limited = open_spool(tmp_path / "limited", most_bytes=size)
    kept = limited.store(block_of(LARGE))
    with pytest.raises(DiskFullError, match=r"limit is .* relayMaxBytes"):
        limited.store(block_of(LARGE))
    assert len(list((tmp_path / "limited").iterdir())) == 1
    assert not limited.has_room(1)
    kept.drop()
    assert limited.has_room(size // 2)
    assert not limited.has_room(size // 2 + 1)
    full = open_spool(tmp_path / "full", min_free_bytes=1 << 60)
    assert not full.has_room(1)
    with pytest.raises(DiskFullError, match="stay free"):
        full.store(block_of(LARGE))


def test_an_earlier_life_leaves_nothing_and_files_of_others_stay(tmp_path: Path) -> None:
    for name in ("chunk-000007.rows", "batch-000000000000.rows.new", "batch-1-2-ab.json.new"):
        (tmp_path / name).write_bytes(b"left")
    for name in ("batch-000000000000-000000000001-0badcafe.rows", "notes.txt", "chunk-7.rows.old"):
        (tmp_path / name).write_bytes(b"kept")
    spool = open_spool(tmp_path)
    assert {path.read_bytes() for path in tmp_path.iterdir()} == {b"kept"}
    assert spool.used == 3 * len(b"kept")


def test_a_folder_that_cannot_be_made_or_was_removed_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(RelayError, match="cannot be stored"):
        open_spool(tmp_path / "file" / "spool")
    spool = open_spool(tmp_path / "spool")
    (tmp_path / "spool").rmdir()
    with pytest.raises(RelayError, match="cannot be stored"):
        spool.store(block_of(LARGE))
    assert spool.used == 0


def test_a_full_disk_is_told_from_other_errors(tmp_path: Path) -> None:
    assert isinstance(spool_error(tmp_path, OSError(errno.ENOSPC, "full")), DiskFullError)
    assert not isinstance(spool_error(tmp_path, OSError(errno.EIO, "broken")), DiskFullError)
