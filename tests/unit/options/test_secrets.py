from __future__ import annotations

from typing import TYPE_CHECKING

from replica.options.file import exposed

if TYPE_CHECKING:
    from pathlib import Path


def test_only_files_that_everybody_may_read_are_named(tmp_path: Path) -> None:
    modes = {"mine": 0o600, "group": 0o640, "all": 0o644}
    for name, mode in modes.items():
        (tmp_path / name).write_text("secret")
        (tmp_path / name).chmod(mode)
    (found,) = exposed([*(tmp_path / name for name in modes), tmp_path / "gone", None])
    assert found.startswith(f"{tmp_path}/all ")
    assert f"chmod 600 {tmp_path}/all" in found
    assert "secret and" in found
