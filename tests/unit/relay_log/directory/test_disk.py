from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

import pytest

from replica.errors import DiskFullError, RelayError
from replica.relay_log.directory.disk import disk_error, free_bytes, replace_file, write_all

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_and_a_full_quota_are_one_error_that_passes(tmp_path: Path, code: int) -> None:
    error = disk_error(tmp_path, OSError(code, os.strerror(code)))
    assert type(error) is DiskFullError
    assert str(tmp_path) in str(error)
    assert "Receiving then continues" in error.hint


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS, errno.EACCES, errno.ENOENT, errno.EFBIG])
def test_every_other_error_is_for_a_person(tmp_path: Path, code: int) -> None:
    error = disk_error(tmp_path, OSError(code, os.strerror(code)))
    assert type(error) is RelayError
    assert os.strerror(code) in error.message


def test_free_bytes_are_what_statvfs_says_for_our_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = os.statvfs(tmp_path)  # once: others write to this disk meanwhile
    monkeypatch.setattr(os, "statvfs", {tmp_path: status}.get)
    assert free_bytes(tmp_path) == status.f_bavail * status.f_frsize


def test_a_part_of_a_write_is_followed_by_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:3]))
    descriptor = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    write_all(descriptor, b"in pieces of three")
    os.close(descriptor)
    assert (tmp_path / "file").read_bytes() == b"in pieces of three"


def test_replacing_does_not_go_through_a_link_that_somebody_put_there(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "victim").write_text("untouched")
    (tmp_path / "a.json.new").symlink_to(tmp_path / "victim")
    (tmp_path / "a.json").symlink_to(tmp_path / "victim")
    before = os.umask(0o077)
    try:
        replace_file(tmp_path / "a.json", b"{}")
    finally:
        os.umask(before)
    assert (tmp_path / "victim").read_text() == "untouched"
    assert not (tmp_path / "a.json").is_symlink()
    assert (tmp_path / "a.json").read_bytes() == b"{}"
    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == 0o600, "as its folder says, not the umask"
    replace_file(tmp_path / "a.json", b"{}", mode=0o644)
    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == 0o644
