"""docs/versions.md against what is pinned, what pip allows, and the numbers in the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from replica.relay_log.directory import head, identity, readers
from replica.relay_log.files import index
from streaming_source.driver.spark_border import SPARK_VERSIONS, SparkVersion
from streaming_source.offsets import offset
from tests.kit.tree import files

PROJECT = Path(__file__).resolve().parents[3]
PAGE = (PROJECT / "docs" / "versions.md").read_text(encoding="utf-8")
RULES = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))


def pinned(file: str, name: str) -> str:
    found = re.search(rf"^{name}==(\S+)", (PROJECT / "constraints" / file).read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return found[1]


def row(name: str) -> list[str]:
    (line,) = re.findall(rf"^\| {name} \| (.*) \|$", PAGE, re.MULTILINE)
    return [cell.strip() for cell in line.split(" | ")]


@pytest.mark.parametrize("version", SPARK_VERSIONS, ids=lambda version: version.name)
def test_the_page_has_the_line(version: SparkVersion) -> None:
    assert version.line() in PAGE.splitlines()


def test_the_page_has_no_other_spark() -> None:
    assert re.findall(r"^\| (\d\.\d) \|", PAGE, re.MULTILINE) == [version.name for version in SPARK_VERSIONS]


@pytest.mark.parametrize("version", SPARK_VERSIONS, ids=lambda version: version.name)
def test_what_is_called_tested_is_what_the_command_runs(version: SparkVersion) -> None:
    others = {path.stem.removeprefix("spark-"): path.name for path in files(PROJECT / "constraints", "spark-*.txt")}
    file = others.get(version.name, "development.txt")
    assert version.tested == pinned(file, "pyspark")
    script, *arguments = version.command.split()
    assert (PROJECT / script).is_file()
    assert arguments == ([] if file == "development.txt" else [version.name])


def test_delta_is_the_pinned_one_for_the_spark_it_is_built_for() -> None:
    jars = (PROJECT / "constraints" / "jars.list").read_text(encoding="utf-8")
    assert {version.name: version.delta for version in SPARK_VERSIONS if version.delta != "none"} == dict(
        re.findall(r"^io\.delta delta-spark_(\d+\.\d+)_2\.13 (\S+)", jars, re.MULTILINE)
    )


def test_other_programs_are_those_of_the_scripts() -> None:
    setup = (PROJECT / "scripts" / "setup").read_text(encoding="utf-8")
    versions = re.search(r"^tested_versions=\((.*)\)$", setup, re.MULTILINE)
    assert versions is not None
    assert row("MariaDB")[0] == ", ".join(versions[1].split())
    lowest, below = re.findall(r"\d\.(\d+)", RULES["project"]["requires-python"])
    assert f"3.{lowest} - 3.{int(below) - 1}; pip refuses 3.{below}" in row("Python")[1]


def test_versions_of_what_is_on_disk_are_those_of_the_code() -> None:
    golden = sorted(path.stem.removeprefix("offsets-v") for path in files(PROJECT / "tests" / "golden", "offsets-v*"))
    assert row("offsets in a checkpoint")[0] == ", ".join(golden)
    assert golden[-1] == str(offset.VERSION)
    assert row("index beside each relay file")[0] == str(index.VERSION)
    assert row("head, and identity, of a relay log")[0] == f"{head.VERSION}, {identity.VERSION}"
    assert row("registration of a reader")[0] == str(readers.VERSION)
