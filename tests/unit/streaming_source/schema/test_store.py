"""States of tables in offsets and in files: what is written is read, what is not there or another is refused."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from replica.errors import ConfigError
from streaming_source.schema import table_state as schema_store
from streaming_source.schema.table_state import SchemaStore

if TYPE_CHECKING:
    from pathlib import Path


def test_without_a_folder_the_offset_has_the_text() -> None:
    store = SchemaStore(None)
    assert store.read(store.write("abc")) == "abc"
    store.release("abc")
    with pytest.raises(ConfigError, match=r"take 64 KB.*Set schemaLocation"):
        store.write("a" * (schema_store.MAX_INLINE + 1))
    with pytest.raises(ConfigError, match="schemaLocation is not set"):
        store.read("file:0123")


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "tables"
    stored = SchemaStore(folder).write("abc")
    assert SchemaStore(folder).write("abc") == stored
    assert SchemaStore(folder).read(stored) == "abc"
    (file,) = folder.iterdir()
    file.write_text("ab", encoding="ascii")
    with pytest.raises(ConfigError, match=r"its content has changed.*Restore the folder"):
        SchemaStore(folder).read(stored)
    file.unlink()
    with pytest.raises(ConfigError, match=r"cannot be read from .*No such file"):
        SchemaStore(folder).read(stored)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"schemaLocation .*file.* cannot be written"):
        SchemaStore(tmp_path / "file" / "tables").write("abc")


def test_the_files_do_not_grow_without_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_store, "FILES_KEPT", 3)
    store = SchemaStore(tmp_path)
    names = []
    for number in range(10):
        names.append(store.write(f"state {number}"))
        path = tmp_path / f"{names[-1].removeprefix('file:')}.tables"
        os.utime(path, (number, number))
    store.release(names[2])
    assert [n for n in names if (tmp_path / f"{n.removeprefix('file:')}.tables").exists()] == names[2:]
    store.release(names[9])
    assert [n for n in names if (tmp_path / f"{n.removeprefix('file:')}.tables").exists()] == names[7:]
    assert store.read(names[9]) == "state 9"
