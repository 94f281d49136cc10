"""An installation in which an import fails: which package, which interpreter, and the file that stands before it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from replica.errors import InstallationError
from replica.installation import installation_error

if TYPE_CHECKING:
    from collections.abc import Mapping

PROJECT = Path(__file__).resolve().parents[2]


def _run(statement: str, folder: Path) -> str:
    """The last line that an interpreter says, started in the folder of a user's project."""
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        [sys.executable, "-c", statement], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return (done.stdout + done.stderr).strip().splitlines()[-1]


def _project(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


LOOKED_UP = "import pyspark_mariadb_binlog as m; from pyspark.sql.datasource import DataSource"
HIDING = {
    "a script that ends itself": ("replica", "replica.py", "raise SystemExit(3)"),
    "a package": ("replica", "replica/__init__.py", ""),
    "a package with errors of its own": ("replica", "replica/__init__.py", "class ConfigError: pass"),
    "a folder of streams": ("streaming_source", "streaming_source/__init__.py", "x = 1"),
    "a file with a slip": ("streaming_source", "streaming_source.py", "def ("),
}


@pytest.mark.parametrize(("name", "path", "text"), HIDING.values(), ids=HIDING.keys())
def test_a_project_with_a_module_of_our_name_is_told_its_path(tmp_path: Path, name: str, path: str, text: str) -> None:
    """Spark only says DATA_SOURCE_NOT_FOUND where no source is found, so one must be: it says why."""
    _project(tmp_path, {path: text})
    assert _run(f"{LOOKED_UP}; print(issubclass(m.DefaultSource, DataSource), m.DefaultSource.name())", tmp_path) == (
        "True mariadb-binlog"
    )
    said = _run(f"{LOOKED_UP}; m.DefaultSource(options={{}})", tmp_path)
    assert said.startswith(f"ImportError: mariadb-binlog cannot be loaded: its package {name} (")
    assert f"is hidden: Python finds {tmp_path / path} first. Give that file or folder another name" in said


def test_a_folder_without_python_in_it_hides_nothing(tmp_path: Path) -> None:
    _project(tmp_path, {"replica/notes.txt": "", "queries.py": "raise SystemExit", "streaming_source/a.sql": ""})
    said = _run(f"{LOOKED_UP}; print(m.DefaultSource.__module__)", tmp_path)
    assert said == "streaming_source.source.data_source"


def test_whatever_breaks_our_import_is_said(tmp_path: Path) -> None:
    broken = "import sys; sys.modules['replica.errors'] = None"
    said = _run(f"{broken}; {LOOKED_UP}; m.DefaultSource(options={{}})", tmp_path)
    assert said.startswith("ImportError: mariadb-binlog cannot be loaded: ModuleNotFoundError: ")


@pytest.mark.parametrize("text", ["", "import no_such_thing", "njit = None"], ids=["empty", "broken", "alike"])
def test_a_file_with_the_name_of_a_dependency_is_named(tmp_path: Path, text: str) -> None:
    _project(tmp_path, {"numba.py": text})
    said = _run(
        "from streaming_source.driver.spark_border import spark_border\n"
        "with spark_border():\n    import replica.native.compiling.lower",
        tmp_path,
    )
    assert said.startswith("replica.errors.InstallationError: the package numba is hidden: "), said
    assert f"finds {tmp_path / 'numba.py'} first. Give that file another name" in said


def test_a_broken_dependency_is_named_with_what_it_says() -> None:
    def importing() -> None:
        # As numba does where numpy is too new for it.
        exec(compile('raise ImportError("Numba needs NumPy 2.2 or less.")', "x", "exec"), {"__name__": "numba.core"})  # noqa: S102

    with pytest.raises(ImportError) as caught:
        importing()
    error = installation_error(caught.value)
    assert isinstance(error, InstallationError)
    assert str(error).startswith(
        f"numba in {sys.executable} cannot be imported: Numba needs NumPy 2.2 or less. Install"
    )


def test_the_command_line_says_it_in_one_line(tmp_path: Path) -> None:
    missing = "import sys; sys.modules['structlog'] = None; sys.argv = ['mariadb-replica', 'run']"
    said = _run(f"{missing}; from replica.commands.cli import main; main()", tmp_path)
    assert said.startswith("mariadb-replica: structlog"), said
