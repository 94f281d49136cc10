"""`check --spark` with real interpreters: the right one, one without the package, none, one Spark cannot start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from replica.commands.check.command import check_command
from replica.commands.check.machine import DRIVER_VARIABLE, VARIABLE, spark_report
from replica.commands.check.report import lines
from replica.errors import InstallationError
from replica.version import __version__

if TYPE_CHECKING:
    from replica.commands.check.report import Report, Result

PROJECT = Path(__file__).resolve().parents[4]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python that is started here would find the tree under test."""
    monkeypatch.chdir(tmp_path)


def report(**changed: str | None) -> Report:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), VARIABLE: sys.executable, DRIVER_VARIABLE: None, **changed}
    return spark_report({name: value for name, value in environment.items() if value is not None})


def of_python(found: Report) -> Result:
    return next(result for result in found.results if result.check == VARIABLE)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with nothing in it."""
    folder = tmp_path_factory.mktemp("python")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (folder / "venv" / "bin" / "python3").exists()
    return folder / "venv" / "bin" / "python3"


def test_the_right_interpreter() -> None:
    found = report()
    assert {result.check: result.state for result in found.results} == {VARIABLE: "ok", "spark": "ok", "java": "ok"}
    assert of_python(found).what.endswith(f"this package {__version__}")
    assert found.error is None


def test_one_without_the_package_is_named_in_one_sentence(empty: Path) -> None:
    found = report(PYSPARK_PYTHON=str(empty), PYTHONPATH=None, SPARK_HOME=None)
    assert isinstance(found.error, InstallationError)
    assert of_python(found).what == f"{VARIABLE} is {empty}, which lacks pyspark"


def test_one_that_has_spark_and_lacks_the_package(empty: Path, tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("__version__ = '4.2.1'\n")
    found = report(PYSPARK_PYTHON=str(empty), PYTHONPATH=str(tmp_path), SPARK_HOME=None)
    assert of_python(found).what == (
        f"{VARIABLE} is {empty}, which lacks this package: Spark would report DATA_SOURCE_NOT_FOUND"
    )
    assert of_python(found).fix == f"export {VARIABLE}={sys.executable}"


def test_the_drivers_variable_goes_first() -> None:
    found = report(PYSPARK_DRIVER_PYTHON="/bin/echo")
    judged = next(result for result in found.results if result.check == DRIVER_VARIABLE)
    assert judged.state == "missing"
    assert f"{DRIVER_VARIABLE} is /bin/echo, which Spark takes before {VARIABLE}" in judged.what
    assert judged.fix == f"unset {DRIVER_VARIABLE}; export {VARIABLE}={sys.executable}"


def test_a_python_without_spark_is_not_the_fix(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    fix = of_python(report(PYSPARK_PYTHON=str(empty), PYTHONPATH=None, SPARK_HOME=None)).fix
    assert f"{sys.executable} -m pip install" in fix
    assert fix.endswith(f"; then export {VARIABLE}={sys.executable}")


def test_none_set_is_the_python_of_the_path(empty: Path) -> None:
    found = report(PYSPARK_PYTHON=None, PYTHONPATH=None, SPARK_HOME=None, PATH=f"{empty.parent}:/usr/bin")
    assert of_python(found).what.startswith(
        f"{VARIABLE} is not set, so Spark starts the python3 on the PATH, {empty}, which lacks"
    )
    assert of_python(found).state == "missing"


def test_none_set_and_the_path_happens_to_be_right() -> None:
    found = report(PYSPARK_PYTHON=None, PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert of_python(found).state == "note"
    assert found.error is None


@pytest.mark.parametrize(
    ("name", "said"),
    [("/nowhere/python3", "and there is no such program"), ("/bin/echo", "which does not run as a Python")],
)
def test_what_is_no_python(name: str, said: str) -> None:
    found = report(PYSPARK_PYTHON=name)
    assert said in of_python(found).what
    assert isinstance(found.error, InstallationError)


def test_a_path_that_spark_cannot_start(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "python3").symlink_to(sys.executable)
    assert "a path with a space" in of_python(report(PYSPARK_PYTHON=str(folder / "python3"))).what


def test_another_version_of_the_package_is_told(tmp_path: Path) -> None:
    for package in ("replica", "streaming_source"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "replica" / "version.py").write_text("__version__ = '0.0.9'\n")
    (tmp_path / "streaming_source" / "driver").mkdir()
    (tmp_path / "streaming_source" / "driver" / "spark_border.py").write_text(
        "from types import SimpleNamespace as S\nSPARK_VERSIONS = [S(name='4.3')]\ndef require_spark(version): pass\n"
    )
    (tmp_path / "pyspark_mariadb_binlog.py").write_text("DefaultSource = object\n")
    found = of_python(report(PYTHONPATH=str(tmp_path)))
    assert found.state == "warning"
    assert f"version 0.0.9 of this package, and this program is {__version__}" in found.what


def test_an_older_and_a_newer_spark(tmp_path: Path) -> None:
    for version, state in (("4.1.0", "missing"), ("4.9.0", "warning")):
        stand_in = tmp_path / version / "sitecustomize.py"
        stand_in.parent.mkdir()
        stand_in.write_text(f"import pyspark\npyspark.__version__ = {version!r}\n")
        found = report(PYTHONPATH=f"{stand_in.parent}:{PROJECT}")
        assert {result.check: result.state for result in found.results}["spark"] == state


def test_without_java(tmp_path: Path) -> None:
    for changed in ({"JAVA_HOME": str(tmp_path)}, {"JAVA_HOME": None, "PATH": str(tmp_path)}):
        assert [one.check for one in report(**changed).missing] == ["java"]


def test_the_command_says_it_beside_the_servers_and_judges_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    monkeypatch.delenv(DRIVER_VARIABLE, raising=False)
    monkeypatch.setenv(VARIABLE, sys.executable)
    done = CliRunner().invoke(check_command, ["--user", "repl", "--host", "127.0.0.1:1", "--spark"])
    assert done.stdout.endswith("NOT ready to replicate (127.0.0.1:1: exit code 40); ready to run in Spark\n")
    monkeypatch.setenv(VARIABLE, "/nowhere/python3")
    done = CliRunner().invoke(check_command, ["--user", "repl", "--host", "127.0.0.1:1", "--spark"])
    assert done.stdout.endswith("; NOT ready to run in Spark (Spark on this machine: exit code 22)\n")


def test_a_report_reads_as_others_do() -> None:
    text = list(lines([report(PYSPARK_PYTHON="/nowhere/python3")], encoding="utf-8"))
    assert "fix: export" in text[2]
