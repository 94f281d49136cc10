"""`mariadb-replica fleet` refuses what names no daemons, or two of one name, before it starts any."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from replica.commands.fleet import fleet
from replica.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def refused(*files: Path) -> str:
    done = CliRunner().invoke(fleet, [str(file) for file in files])
    assert isinstance(done.exception, ConfigError)
    return str(done.exception)


def test_a_folder_without_configurations(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    assert "has no file *.toml" in refused(tmp_path)


def test_two_files_of_one_name(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for file in (tmp_path / "one.toml", tmp_path / "a" / "one.toml"):
        file.write_text("")
    assert "have the same name" in refused(tmp_path, tmp_path / "a")


@pytest.mark.parametrize("name", ["two.toml", "folder/two.toml"])
def test_a_file_that_is_not_there(tmp_path: Path, name: str) -> None:
    assert "is not a file" in refused(tmp_path / name)
