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

from replica.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).resolve().parents[2]
HEAVY = {"pyarrow", "numba", "numpy", "pandas", "aiomysql", "pymysql", "asyncio", "pydantic"}


PUBLIC = {
    "replica": {
        "ChangeReader",
        "EmbeddedReplica",
        "GtidPosition",
        "ReplicaConfig",
        "decode_files",
        "read_relay_log",
    },
    "streaming_source": {
        *("AuditResult", "Difference", "TableAudit", "audit"),
        *("Lag", "MariaDbBinlogSource", "lag", "latest_per_key", "mirror", "mirror_status", "started", "upsert_into"),
    },
    "replica.errors": {
        "AmbiguousPositionError",
        "AuthenticationError",
        "ChecksumError",
        "ColumnsAddedError",
        "ConfigError",
        "DataLossError",
        "DisconnectedError",
        "DiskFullError",
        "DuplicateServerIdError",
        "InstallationError",
        "OutOfOrderGtidError",
        "PositionLostError",
        "PositionPurgedError",
        "PrerequisiteError",
        "ProtocolError",
        "RelayError",
        "ReplicaError",
        "SchemaError",
        "ServerError",
        "StatementDmlError",
        "TruncatedError",
        "UnsupportedColumnError",
        "UnsupportedEventError",
    },
}
"""All that users may import. A name that goes from here breaks their programs."""


@pytest.fixture(scope="module")
def wheel_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    # hatchling alone, without pip: no network, no build environment.
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)],
        cwd=PROJECT,
        check=True,
        capture_output=True,
    )
    return next(target.glob("*.whl"))


@pytest.fixture(scope="module")
def wheel(wheel_file: Path) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(wheel_file) as built:
        yield built


@pytest.fixture(scope="module")
def installed(wheel_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's packages, as pip installs them; what they need is taken from this interpreter's."""
    target = tmp_path_factory.mktemp("installed")
    install = ["install", "--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check", "--target"]
    subprocess.run(
        [sys.executable, "-m", "pip", *install, str(target), str(wheel_file)], check=True, capture_output=True
    )
    return target


def run_installed(installed: Path, code: str) -> str:
    """What a new interpreter prints that sees the installed wheel and not this repository."""
    code = f"import sys; sys.path.insert(0, {str(installed)!r})\n{code}"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], cwd=installed.parent, check=True, capture_output=True, text=True
    )
    return done.stdout


@pytest.mark.parametrize("module", PUBLIC)
def test_an_installed_wheel_gives_the_public_names_and_nothing_else(installed: Path, module: str) -> None:
    code = f"""
import importlib, json
names = dict.fromkeys(globals())
from {module} import *
given = sorted(set(globals()) - set(names) - {{"names"}})
files = {{sys.modules[getattr(importlib.import_module({module!r}), name).__module__].__file__ for name in given}}
print(json.dumps([given, sorted(files)]))
"""
    given, files = json.loads(run_installed(installed, code))
    assert set(given) == PUBLIC[module]
    assert all(file.startswith(f"{installed}/") for file in files), files


@pytest.mark.parametrize("module", ["replica", "streaming_source"])
def test_a_private_name_cannot_be_imported_from_an_installed_package(installed: Path, module: str) -> None:
    refused = f"""
try:
    from {module} import RelayLog
except ImportError as error:
    print(error.name)
"""
    assert run_installed(installed, refused) == f"{module}\n"


def test_all_packages_say_that_they_have_types(wheel: zipfile.ZipFile) -> None:
    assert {"replica/py.typed", "streaming_source/py.typed"} <= set(wheel.namelist())


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
    assert f"\nVersion: {__version__}\n" in text
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
    assert first[1] in (__version__, "Unreleased")


def test_pins_are_exact_and_hashed() -> None:
    for path in (PROJECT / "constraints").glob("*.txt"):
        text = path.read_text(encoding="utf-8")
        for requirement in re.split(r"\n(?=\S)", text.strip()):
            assert re.match(r"[\w.-]+==\S+", requirement), requirement
            assert "--hash=sha256:" in requirement, requirement
        assert "://" not in text, f"{path.name} names an address"
