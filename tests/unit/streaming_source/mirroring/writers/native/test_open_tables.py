"""Tables that are kept open are as those that are opened anew, whatever was done to their folders meanwhile."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_source.mirroring.writers.native import delta_rows, log_files
from streaming_source.mirroring.writers.native.delta_rows import keep, opened

if TYPE_CHECKING:
    from pathlib import Path

ROW = pa.table({"id": [1]})
DEEDS = ("ours", "foreign", "made again", "backup", "restored", "checkpoint", "log cleaned", "optimized")


def append(table: DeltaTable | str) -> None:
    write_deltalake(table, ROW, mode="append")


def do(deed: str, folder: Path, backup: Path) -> None:
    if deed == "ours":
        table = opened(str(folder))
        append(table)
        keep(str(folder), table)
    elif deed == "foreign":
        append(str(folder))
    elif deed == "made again":
        shutil.rmtree(folder)
        DeltaTable.create(str(folder), ROW.schema)
    elif deed == "backup":
        shutil.rmtree(backup, ignore_errors=True)
        shutil.copytree(folder, backup)
    elif deed == "restored" and backup.exists():
        shutil.rmtree(folder)
        shutil.copytree(backup, folder)
    elif deed == "checkpoint":
        DeltaTable(str(folder)).create_checkpoint()
    elif deed == "log cleaned":  # as after an hour without a commit
        table = DeltaTable(str(folder))
        table.create_checkpoint()
        for number in range(table.version()):
            (folder / "_delta_log" / f"{number:020d}.json").unlink(missing_ok=True)
    elif deed == "optimized":
        DeltaTable(str(folder)).optimize.compact()


@settings(max_examples=40, deadline=None)
@given(deeds=st.lists(st.sampled_from(DEEDS), max_size=12))
def test_a_kept_table_is_as_one_that_is_opened_anew(tmp_path_factory: pytest.TempPathFactory, deeds: list[str]) -> None:
    place = tmp_path_factory.mktemp("tables")
    folder = place / "t"
    DeltaTable.create(str(folder), ROW.schema)
    for deed in deeds:
        do(deed, folder, place / "backup")
        kept, anew = opened(str(folder)), DeltaTable(str(folder))
        assert kept.version() == anew.version(), deed
        assert sorted(kept.file_uris()) == sorted(anew.file_uris()), deed
        assert kept.metadata().id == anew.metadata().id, deed
        keep(str(folder), kept)


def test_a_table_is_given_out_once_until_it_is_kept_again(tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path), ROW.schema)
    keep(str(tmp_path), opened(str(tmp_path)))
    first, second = opened(str(tmp_path)), opened(str(tmp_path))
    assert first is not second
    keep(str(tmp_path), first)
    assert opened(str(tmp_path)) is first


def test_a_folder_that_is_gone_has_no_table(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    DeltaTable.create(str(folder), ROW.schema)
    keep(str(folder), opened(str(folder)))
    shutil.rmtree(folder)
    with pytest.raises(TableNotFoundError):
        opened(str(folder))


def test_few_tables_are_kept_and_none_of_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "MOST_TABLES", 2)
    monkeypatch.setattr(log_files, "MOST_FILES", 1)
    monkeypatch.setattr(delta_rows, "_kept", type(delta_rows._kept)())
    folders = [str(tmp_path / str(number)) for number in range(4)]
    for folder in folders:
        DeltaTable.create(folder, ROW.schema)
    append(folders[3])
    append(folders[3])
    for folder in folders:
        keep(folder, DeltaTable(folder))
    assert list(delta_rows._kept) == folders[1:3]
