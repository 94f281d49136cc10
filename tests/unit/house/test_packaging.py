"""What is shipped: the wheel holds the packages and no tests, and discovery by Spark costs next to nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hatch_build import LINK, index_readme
from replica.commands.files import SHIPPED
from replica.version import __version__
from tests.kit.tree import files

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).resolve().parents[3]
PACKAGES = ("pyspark_mariadb_binlog", "replica", "streaming_source")
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
        *("Lag", "MariaDbBinlogSource", "lag", "latest_per_key", "started", "upsert_into"),
        *("mirror", "mirror_report", "mirror_resnapshot", "mirror_status", "mirror_tables"),
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
        "KeyChangedError",
        "OutOfOrderGtidError",
        "PositionLostError",
        "PositionPurgedError",
        "PrerequisiteError",
        "ProtocolError",
        "RelayError",
        "RelayFileRemovedError",
        "ReplicaError",
        "SchemaError",
        "ServerError",
        "StatementDmlError",
        "StorageError",
        "TruncatedError",
        "UnsupportedColumnError",
        "UnsupportedEventError",
    },
}
"""All that users may import. A name that goes from here breaks their programs."""


def built(tree: Path, target: Path, *, umask: int = 0o022, source_url: str = "") -> dict[str, Path]:
    """Build source archive and wheel with hatchling alone: no pip, no network, no build environment."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(target)],
        cwd=tree,
        env=os.environ | {"SOURCE_URL": source_url, "SOURCE_DATE_EPOCH": "1700000000"},
        umask=umask,
        check=True,
        capture_output=True,
    )
    return {"".join(path.suffixes[-1:]): path for path in target.iterdir()}


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return built(PROJECT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def wheel_file(archives: dict[str, Path]) -> Path:
    return archives[".whl"]


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
    assert {f"{name}/py.typed" for name in PACKAGES} <= set(wheel.namelist())


def test_every_module_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    sources = {str(path.relative_to(PROJECT)) for name in PACKAGES for path in files(PROJECT / name, "**/*.py")}
    packed = {name for name in wheel.namelist() if name.endswith(".py")}
    assert packed == sources


def test_metadata(wheel: zipfile.ZipFile) -> None:
    metadata = next(name for name in wheel.namelist() if name.endswith("/METADATA"))
    text = wheel.read(metadata).decode()
    assert "\nName: spark-mariadb-binlog\n" in text
    assert f"\nVersion: {__version__}\n" in text
    assert "\nRequires-Python: <3.14,>=3.11\n" in text
    assert re.search(r"^License-File: .*LICENSE$", text, re.MULTILINE)
    scripts = wheel.read(metadata.replace("METADATA", "entry_points.txt")).decode()
    assert "mariadb-replica = replica.commands.cli:main" in scripts


def test_a_build_from_the_source_archive_has_the_same_bytes(archives: dict[str, Path], tmp_path: Path) -> None:
    """Another folder, another umask, other times of files: what scripts/release does with two copies of the tree."""
    subprocess.run(["tar", "-xzf", str(archives[".gz"]), "-C", str(tmp_path)], check=True)
    (tree,) = tmp_path.iterdir()
    for path in tree.rglob("*"):
        os.utime(path, (1, 1))
    again = built(tree, tmp_path / "again", umask=0o077)
    assert {name: path.read_bytes() for name, path in again.items()} == {
        name: path.read_bytes() for name, path in archives.items()
    }


def test_the_service_files_are_in_the_wheel_and_come_out_of_an_installed_one(
    wheel: zipfile.ZipFile, installed: Path, tmp_path: Path
) -> None:
    run_installed(
        installed, f"from replica.commands.files import files; files([{str(tmp_path)!r}], standalone_mode=False)"
    )
    names = {one.name for one in SHIPPED}
    assert {path.name for path in tmp_path.iterdir()} == names
    packed = {name for name in names if f"replica/packaging/{name}" in wheel.namelist()}
    assert names - packed == {"mariadb-replica.example.toml"}  # made from the table of options
    assert all((tmp_path / name).read_bytes() == wheel.read(f"replica/packaging/{name}") for name in packed)


def test_no_link_of_the_readme_breaks_on_an_index(wheel: zipfile.ZipFile) -> None:
    shown = metadata_of(wheel).partition("\n\n")[2]
    assert shown == index_readme((PROJECT / "README.md").read_text(encoding="utf-8"))
    assert "`docs/spark.md`" in shown
    assert "demo.svg" not in shown, "a picture needs an address"
    assert not LINK.search(shown)


def test_links_are_absolute_where_the_address_is_known(tmp_path: Path) -> None:
    source = tmp_path / "tree"
    for name in ("replica/version.py", "hatch_build.py", "pyproject.toml", "README.md", "LICENSE"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / name, source / name)
    with zipfile.ZipFile(built(source, tmp_path / "out", source_url="https://host/us/it/blob/v1")[".whl"]) as made:
        text = metadata_of(made)
    assert "\nProject-URL: Changelog, https://host/us/it/blob/v1/CHANGELOG.md\n" in text
    assert "[docs/spark.md](https://host/us/it/blob/v1/docs/spark.md)" in text
    assert "](https://host/us/it/raw/v1/docs/demo.svg)\n" in text
    assert not LINK.search(text)


def metadata_of(wheel: zipfile.ZipFile) -> str:
    return wheel.read(next(name for name in wheel.namelist() if name.endswith("/METADATA"))).decode()


def test_an_index_finds_it_by_classifiers_and_keywords(wheel: zipfile.ZipFile) -> None:
    head = metadata_of(wheel).partition("\n\n")[0]
    for minor in (11, 12, 13):  # as requires-python says
        assert f"\nClassifier: Programming Language :: Python :: 3.{minor}\n" in head
    assert re.search(r"^Keywords: .*\bmariadb\b.*\bspark\b", head, re.MULTILINE)


def test_the_spark_extra_installs_what_works_with_delta(wheel: zipfile.ZipFile) -> None:
    """The pinned Delta jar is built for one minor version of Spark: the extra takes no other by itself."""
    jars = (PROJECT / "constraints" / "jars.list").read_text(encoding="utf-8")
    (built_for,) = re.findall(r"delta-spark_(\d+)\.(\d+)_", jars)
    major, minor = (int(part) for part in built_for)
    assert f"\nRequires-Dist: pyspark[sql]<{major}.{minor + 1},>={major}.{minor}; extra == 'spark'\n" in metadata_of(
        wheel
    )


def imported_by(statement: str) -> set[str]:
    """Top-level modules that a new interpreter has loaded after `statement`."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps([m for m in sys.modules if '.' not in m]))"
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, check=True, capture_output=True, text=True)
    return set(json.loads(done.stdout))


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
    for path in files(PROJECT / "constraints", "*.txt"):
        text = path.read_text(encoding="utf-8")
        for requirement in re.split(r"\n(?=\S)", text.strip()):
            assert re.match(r"[\w.-]+==\S+", requirement), requirement
            assert "--hash=sha256:" in requirement, requirement
        assert "://" not in text, f"{path.name} names an address"


def test_every_install_line_of_the_documents_works_today(wheel_file: Path, tmp_path: Path) -> None:
    """None takes the project from an index, where it is not; a wheel is named as it is built; extras are there."""
    lines = [
        (path.name, said)
        for path in [PROJECT / "README.md", *files(PROJECT / "docs", "*.md")]
        for said in re.findall(r"pip install ([^`\n#&]+)", path.read_text(encoding="utf-8"))
        if "mariadb" in said or said.startswith((".", '"'))
    ]
    assert len(lines) > 2
    (tmp_path / wheel_file.name).touch()
    for page, said in lines:
        requirement = said.split()[0].strip('"')
        place, _, extra = requirement.partition("[")
        assert place == "." or list(tmp_path.glob(place.removeprefix("./"))), (page, requirement)
        assert extra in ("", "spark]", "spark,iceberg]"), (page, requirement)


def test_a_clone_can_be_installed(tmp_path: Path) -> None:
    install = ["install", "--dry-run", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    said = subprocess.run(
        [sys.executable, "-m", "pip", *install, "--target", str(tmp_path), ".[spark,iceberg]"],
        cwd=PROJECT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert f"Would install spark-mariadb-binlog-{__version__}" in said
