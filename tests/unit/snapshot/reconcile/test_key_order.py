"""Rows in the order of their key bytes, however they came."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from replica.errors import RelayError
from replica.snapshot.reconcile import whole_rows
from replica.snapshot.reconcile.whole_rows import KeyOrder
from replica.snapshot.spool import spool
from replica.snapshot.spool.spool import Spool
from tests.unit.snapshot.blocks import block_of, ids_of, int_map

if TYPE_CHECKING:
    from pathlib import Path


def ordered(folder: Path, blocks: list[list[int]], maps: list[bytes] | None = None) -> list[tuple[bytes, list[int]]]:
    order = KeyOrder(Spool(folder, most_bytes=1 << 30, min_free_bytes=0, held_bytes=0))
    for number, ids in enumerate(blocks):
        order.add(block_of(ids, table_map=maps[number] if maps else None))
    found = [(block.table_map, ids_of(block)) for block in order.blocks()]
    order.drop()
    assert list(folder.iterdir()) == []
    return found


def test_nothing_gives_nothing(tmp_path: Path) -> None:
    assert ordered(tmp_path, []) == []
    assert ordered(tmp_path, [[], []]) == []


def test_rows_of_blocks_are_merged(tmp_path: Path) -> None:
    assert ordered(tmp_path, [[5, -3, 9], [4], [], [8, 1]]) == [(int_map(), [-3, 1, 4, 5, 8, 9])]


def test_rows_under_other_table_maps_stand_in_blocks_of_their_own(tmp_path: Path) -> None:
    one, other = int_map(1), int_map(1, "u")
    found = ordered(tmp_path, [[1, 2, 5], [3], [6, 4]], [one, other, one])
    assert found == [(one, [1, 2]), (other, [3]), (one, [4, 5, 6])]


def test_many_rows_come_in_stretches_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_rows, "SAMPLE_ROWS", 16)
    monkeypatch.setattr(whole_rows, "STRETCH_SAMPLES", 4)
    monkeypatch.setattr(spool, "IN_MEMORY_BYTES", 100)
    ids = random.Random(1).sample(range(-100_000, 100_000), 5_000)
    found = ordered(tmp_path, [ids[at : at + 700] for at in range(0, 5_000, 700)])
    assert [one for _, stretch in found for one in stretch] == sorted(ids)
    assert len(found) > 50
    assert max(len(stretch) for _, stretch in found) < 500


def test_a_file_that_someone_removed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "IN_MEMORY_BYTES", 10)
    order = KeyOrder(Spool(tmp_path, most_bytes=1 << 30, min_free_bytes=0, held_bytes=0))
    order.add(block_of([3, 1]))
    (file,) = tmp_path.iterdir()
    file.write_bytes(b"")
    with pytest.raises(RelayError, match="cannot be read"):
        list(order.blocks())
    file.write_bytes(b"?" * 100)
    with pytest.raises(RelayError, match="damaged"):
        list(order.blocks())
    file.unlink()
    with pytest.raises(RelayError, match="cannot be read"):
        list(order.blocks())
