"""Names that are imported when they are asked for: what they cost, and what is said where they cannot be had."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import pyspark_mariadb_binlog
import replica
import streaming_source
from tests.fixtures.installation import PROJECT

if TYPE_CHECKING:
    from pathlib import Path


def run(code: str) -> str:
    """What a new interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip()


@pytest.mark.parametrize("package", [replica, streaming_source], ids=lambda package: package.__name__)
def test_what_is_listed_can_be_had_and_nothing_else(package: object) -> None:
    assert dir(package) == sorted(package.__all__)  # type: ignore[attr-defined]
    for name in dir(package):
        assert getattr(package, name).__module__.startswith(f"{package.__name__}.")  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="has no attribute 'RelayLog'"):
        package.RelayLog  # type: ignore[attr-defined]  # noqa: B018


def test_the_public_package_has_the_names_of_both() -> None:
    public = pyspark_mariadb_binlog
    assert dir(public) == sorted(public.__all__) == sorted([*replica.__all__, *streaming_source.__all__])
    for package in (replica, streaming_source):
        assert all(getattr(public, name) is getattr(package, name) for name in package.__all__)
    assert public.__version__ == replica.__version__
    with pytest.raises(AttributeError, match="'pyspark_mariadb_binlog' has no attribute 'RelayLog'"):
        public.RelayLog  # noqa: B018
    assert run("from pyspark_mariadb_binlog.errors import DataLossError; print(DataLossError.exit_code)") == "80"


@pytest.mark.parametrize("package", [pyspark_mariadb_binlog, streaming_source], ids=lambda package: package.__name__)
def test_a_former_name_works_and_names_the_new_one(package: object) -> None:
    with pytest.warns(FutureWarning, match="mirror_resync is called mirror_resnapshot now"):
        assert package.mirror_resync is package.mirror_resnapshot  # type: ignore[attr-defined]


def test_a_public_name_that_another_package_hides_says_so(tmp_path: Path) -> None:
    (tmp_path / "replica.py").touch()
    place = f"import sys; sys.path[:0] = [{str(tmp_path)!r}]"
    said = run(f"{place}; from pyspark_mariadb_binlog import mirror").splitlines()[-1]
    assert said.startswith("ImportError: mirror cannot be loaded: its package replica (")
    assert f"is hidden: Python finds {tmp_path}" in said


def test_a_package_that_is_missing_for_a_name_is_named() -> None:
    said = run("import sys; sys.modules['pyarrow'] = None; from replica import decode_files")
    assert said.splitlines()[-1].startswith("replica.errors.InstallationError: pyarrow is missing in ")
