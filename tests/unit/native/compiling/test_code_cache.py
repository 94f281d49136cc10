"""What is changed is compiled again: every module that a kernel takes names from is a kernel source."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import Any

import pytest

from replica.native.compiling import code_cache
from replica.native.compiling.code_cache import KERNEL_SOURCES, kernel_file
from tests.kit.tree import files

ROOT = Path(__file__).resolve().parents[4]
COVERED = {path for pattern in KERNEL_SOURCES for path in files(ROOT, pattern)}


def imported(path: Path) -> set[Path]:
    """Our modules that a module imports when it runs, not only for its annotations."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("replica.", "streaming_source.")):
            module = ROOT / str(node.module).replace(".", "/")
            inside = [module / f"{alias.name}.py" for alias in node.names]
            found |= {path for path in (*inside, module.with_suffix(".py")) if path.exists()}
    return found


@pytest.mark.parametrize(
    "kernel",
    [*files(ROOT, "replica/**/kernel*.py"), *files(ROOT, "streaming_source/**/kernel*.py")],
    ids=lambda path: path.stem,
)
def test_every_module_a_kernel_imports_is_a_kernel_source(kernel: Path) -> None:
    assert kernel in COVERED
    assert imported(kernel) <= COVERED


def test_a_changed_function_has_another_file(tmp_path: Path) -> None:
    """A kernel outside of our packages, as a test has it, is in no digest of ours."""
    found = set()
    for text in ("return a + 1", "return a + 2", "return a + 1"):
        source = tmp_path / "module.py"
        source.write_text(f"def one(a):\n    {text}\n")
        names: dict[str, Any] = {"__name__": "module"}
        exec(compile(source.read_text(), str(source), "exec"), names)  # noqa: S102
        found.add(kernel_file(names["one"], str(tmp_path)))
    assert len(found) == 2
    assert {path.parent for path in found} == {tmp_path}


def test_another_processor_has_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = kernel_file(imported, str(tmp_path))  # type: ignore[arg-type]
    monkeypatch.setattr(code_cache, "machine", lambda: "another")
    assert kernel_file(imported, str(tmp_path)) != here  # type: ignore[arg-type]


def test_no_folder_that_can_be_written_to_is_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a file"
    file.touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "first"))
    assert code_cache.choose_cache() == str(tmp_path / "first" / code_cache.source_digest())
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(file))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "second"))
    assert str(code_cache.choose_cache()).startswith(str(tmp_path / "second"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    monkeypatch.setattr(code_cache.tempfile, "gettempdir", lambda: str(file))
    assert code_cache.choose_cache() is None


@pytest.mark.parametrize("made", ["absent", "own", "of all", "a link", "a file"])
def test_a_temporary_folder_that_others_can_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str
) -> None:
    """Kernels are machine code: another user who can put a file there has it run by us."""
    monkeypatch.setattr(code_cache.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = tmp_path / f"spark-mariadb-binlog-{os.getuid()}"
    if made in ("own", "of all"):
        folder.mkdir()
        folder.chmod(0o700 if made == "own" else 0o777)
    elif made == "a link":
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to(tmp_path / "elsewhere")
    elif made == "a file":
        folder.touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "given"))
    assert str(code_cache.choose_cache()).startswith(str(tmp_path / "given"))
    assert folder.exists() is (made != "absent"), "a folder that is not needed is not made"
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/proc/none")
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    assert (code_cache.choose_cache() is not None) is (made in ("absent", "own"))


def test_a_folder_of_another_user_will_do_if_it_has_all_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image's builder compiles them, and who runs it cannot write there."""
    given = tmp_path / "built"
    folder = given / code_cache.source_digest()
    folder.mkdir(parents=True)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(given))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    writable = code_cache._writable
    monkeypatch.setattr(code_cache, "_writable", lambda one: one != folder and writable(one))
    assert str(code_cache.choose_cache()).startswith(str(tmp_path / "home"))
    (folder / "complete-elsewhere").touch()
    assert str(code_cache.choose_cache()).startswith(str(tmp_path / "home"))
    code_cache.stamp(folder).touch()
    assert code_cache.choose_cache() == str(folder)
