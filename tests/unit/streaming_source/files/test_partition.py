"""Which files a path means, and in what order: by number, else by what stands in them, never by the time on disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from replica.errors import ConfigError
from streaming_source.files.partition import FileProbes, find_binlogs, primary_name

AGES = {"old.binlog": (5, 100), "new.binlog": (9, 50), "empty.binlog": (9, 60)}
LOOKS = FileProbes(lambda path: path.read_bytes()[:1] == b"B", lambda path: AGES[path.name])


def _make(folder: Path, *names: str, content: bytes = b"B") -> None:
    folder.mkdir(exist_ok=True)
    for number, name in enumerate(names):
        (folder / name).write_bytes(content)
        os.utime(folder / name, (number, number))


def _names(*paths: object) -> list[str]:
    return [Path(name).name for name in find_binlogs(map(str, paths), LOOKS)]


def test_numbers_order_a_folder_and_everything_else_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _make(tmp_path, "bin.1000000", "bin.000010.gz", "bin.000002", "bin.000001.zst")
    _make(tmp_path, "dump.sql.gz", "readme", content=b"-")
    _make(tmp_path, "bin.index", "relay.idx")
    (tmp_path / "bin.000003").mkdir()
    expected = ["bin.000001.zst", "bin.000002", "bin.000010.gz", "bin.1000000"]
    assert _names(tmp_path) == expected
    assert "binlogs are missing between bin.000002 and bin.000010.gz" in caplog.text
    assert "between bin.000001.zst" not in caplog.text
    assert _names(tmp_path / "bin.*") == expected
    assert _names(tmp_path / "bin.*0") == ["bin.1000000"]


def test_without_numbers_the_position_and_then_the_second_in_the_files_order_them(tmp_path: Path) -> None:
    _make(tmp_path, "empty.binlog", "new.binlog", "old.binlog")
    assert _names(tmp_path) == ["old.binlog", "new.binlog", "empty.binlog"]


def test_several_paths_keep_their_order_and_no_file_comes_twice(tmp_path: Path) -> None:
    _make(tmp_path / "a", "bin.000001", "bin.000002")
    _make(tmp_path / "b", "bin.000001")
    (tmp_path / "link").symlink_to(tmp_path / "a" / "bin.000002")
    found = find_binlogs([str(tmp_path / "b"), str(tmp_path / "link"), str(tmp_path / "a" / "*")], LOOKS)
    assert [str(Path(name).relative_to(tmp_path.resolve())) for name in found] == [
        "b/bin.000001",
        "a/bin.000002",
        "a/bin.000001",
    ]


@pytest.mark.parametrize(
    ("names", "path", "message"),
    [
        ([], "", "directory .* holds no binlog file, but nothing at all"),
        (["bin.index"], "", "holds no binlog file, but 1 other entries"),
        (["bin.index"], "x*", "path .* holds no binlog file, but nothing at all"),
        (["bin.000001"], "bin.000002", "there is no file .*bin.000002 on this machine"),
        (["bin.000001", "relay.000001"], "", r"holds 2 series of binlogs: bin\.\*, relay\.\*.*Name one of them"),
        (["bin.000001", "bin.000001.gz"], "", "holds one binlog twice: bin.000001 and bin.000001.gz"),
        (["old.binlog", "old.binlog.xz"], "", "holds one binlog twice: old.binlog and old.binlog.xz"),
    ],
)
def test_what_cannot_be_read_or_ordered_is_refused(tmp_path: Path, names: list[str], path: str, message: str) -> None:
    _make(tmp_path, *names)
    with pytest.raises(ConfigError, match=message):
        find_binlogs([str(tmp_path / path)], LOOKS)


def test_a_file_that_is_named_is_taken_whatever_it_is(tmp_path: Path) -> None:
    """Whoever opens it knows better words for what it is."""
    _make(tmp_path, "bin.index", content=b"-")
    assert _names(tmp_path / "bin.index") == ["bin.index"]


@pytest.mark.parametrize(
    ("path", "name"), [("/a/bin.000001.gz", "bin.000001"), ("bin.000001", "bin.000001"), ("x/y.xz", "y")]
)
def test_the_primarys_name_lacks_the_suffix_of_a_compression(path: str, name: str) -> None:
    assert primary_name(path) == name
