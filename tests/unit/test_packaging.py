"""What is shipped: the wheel holds the packages and no tests, and discovery by Spark costs next to nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import replica

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).resolve().parents[2]
HEAVY = {"pyarrow", "numba", "numpy", "pandas", "aiomysql", "pymysql", "asyncio", "pydantic"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    target = tmp_path_factory.mktemp("wheel")
    # hatchling alone, without pip: no network, no build environment.
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)],
        cwd=PROJECT,
        check=True,
        capture_output=True,
    )
    with zipfile.ZipFile(next(target.glob("*.whl"))) as built:
        yield built


def test_every_module_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    sources = {
        str(path.relative_to(PROJECT))
        for name in ("replica", "streaming_source")
        for path in (PROJECT / name).rglob("*.py")
    }
    packed = {name for name in wheel.namelist() if name.endswith(".py")}
    assert packed == sources | {"pyspark_mariadb_binlog.py"}


def test_metadata(wheel: zipfile.ZipFile) -> None:
    metadata = next(name for name in wheel.namelist() if name.endswith("/METADATA"))
    text = wheel.read(metadata).decode()
    assert "\nName: spark-mariadb-binlog\n" in text
    assert f"\nVersion: {replica.__version__}\n" in text
    assert "\nRequires-Python: <3.14,>=3.11\n" in text
    assert re.search(r"^License-File: .*LICENSE$", text, re.MULTILINE)
    scripts = wheel.read(metadata.replace("METADATA", "entry_points.txt")).decode()
    assert "mariadb-replica = replica.cli:main" in scripts


def imported_by(statement: str) -> set[str]:
    """Top-level modules that a new interpreter has loaded after `statement`."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps([m for m in sys.modules if '.' not in m]))"
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, check=True, capture_output=True, text=True)
    return set(json.loads(done.stdout))


def test_discovery_imports_nothing_heavy() -> None:
    """Spark imports every `pyspark_*` module in every session, also of people who never use this source."""
    with_pyspark = imported_by("import pyspark.sql.datasource")
    assert imported_by("import pyspark_mariadb_binlog") & HEAVY <= with_pyspark


def test_the_package_itself_imports_nothing_heavy() -> None:
    assert not imported_by("import replica, replica.errors, streaming_source") & HEAVY


def test_discovery_survives_without_pyspark() -> None:
    """An ImportError here would switch off the discovery of every other Python data source."""
    absent = "import sys; sys.modules['pyspark'] = None"
    assert "pyspark_mariadb_binlog" in imported_by(
        f"{absent}; from pyspark_mariadb_binlog import DefaultSource as found"
    )


def test_the_changelog_knows_this_version() -> None:
    first = re.search(r"^## \[?([^\]\s]+)", (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert first is not None
    assert first[1] in (replica.__version__, "Unreleased")


def test_pins_are_exact_and_hashed() -> None:
    for path in (PROJECT / "constraints").glob("*.txt"):
        text = path.read_text(encoding="utf-8")
        for requirement in re.split(r"\n(?=\S)", text.strip()):
            assert re.match(r"[\w.-]+==\S+", requirement), requirement
            assert "--hash=sha256:" in requirement, requirement
        assert "://" not in text, f"{path.name} names an address"
