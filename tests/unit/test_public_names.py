"""Names that are imported when they are asked for: what they cost, and what is said where they cannot be had."""

from __future__ import annotations

import subprocess
import sys

import pytest

import replica
import streaming_source
from tests.fixtures.installation import PROJECT


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


@pytest.mark.parametrize("package", ["replica", "streaming_source"])
def test_importing_the_package_brings_nothing_of_ours_but_itself(package: str) -> None:
    brought = set(run(f"import sys, {package}; print(*sys.modules)").split())
    ours = {name for name in brought if name.startswith(("replica", "streaming_source"))}
    assert ours == {"replica", "replica.public_names", "replica.version", package}
    assert not brought & {"numpy", "pyarrow", "numba", "asyncio", "pyspark", "pydantic"}


def test_a_package_that_is_missing_for_a_name_is_named() -> None:
    said = run("import sys; sys.modules['pyarrow'] = None; from replica import decode_files")
    assert said.splitlines()[-1].startswith("replica.errors.InstallationError: pyarrow is missing in ")
