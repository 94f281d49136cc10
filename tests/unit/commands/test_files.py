"""`mariadb-replica files`: every file of the package is copied out byte for byte, and none is lost under it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from replica.commands.files import PACKAGED, SHIPPED, content, files
from replica.commands.options_page import EXAMPLE, example
from replica.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

NAMES = [one.name for one in SHIPPED]


def called(*arguments: str) -> str:
    done = CliRunner().invoke(files, arguments, catch_exceptions=True)
    if done.exception is not None:
        raise done.exception
    return done.output


def test_the_table_has_every_file_of_the_package() -> None:
    assert sorted(NAMES) == sorted([EXAMPLE.name, *(path.name for path in PACKAGED.iterdir())])


def test_the_list_says_what_each_is_and_where_it_goes() -> None:
    lines = called().splitlines()
    assert len(lines) == len(SHIPPED)
    for line, one in zip(lines, SHIPPED, strict=True):
        assert line.startswith(one.name)
        assert one.place in line


def test_all_are_copied_and_a_second_call_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    for _ in range(2):
        called(str(folder))
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == {name: content(name) for name in NAMES}
    assert (folder / EXAMPLE.name).read_text(encoding="utf-8") == example()


def test_a_file_that_was_changed_is_not_lost(tmp_path: Path) -> None:
    (tmp_path / NAMES[1]).write_text("mine")
    with pytest.raises(ConfigError, match=f"{NAMES[1]} in {tmp_path} differ .* nothing was written"):
        called(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == [NAMES[1]]
    called(str(tmp_path), "--force")
    assert (tmp_path / NAMES[1]).read_bytes() == content(NAMES[1])


def test_a_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file/folder cannot be written: Not a directory"):
        called(str(tmp_path / "file" / "folder"))
