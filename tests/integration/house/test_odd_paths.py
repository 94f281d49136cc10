"""A clone in a path with a space, an umlaut and a quote in it: servers, and the home that Spark gets there."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.fixtures import installation, spark_home
from tests.fixtures.installation import PROJECT, Installation, installations

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.server

ODD = "it's a clöne"


def test_a_server_that_was_copied_there_runs_once_get_server_has_looked_at_it(tmp_path: Path) -> None:
    fetched = [one for one in installations().values() if one.folder and (one.folder / "root").is_dir()]
    assert fetched, "none of the servers here was fetched by scripts/get-server, which scripts/setup does"
    source = fetched[-1]
    assert source.folder is not None
    folder = tmp_path / ODD / source.version
    subprocess.run(["cp", "-a", "--reflink=auto", str(source.folder), str(tmp_path / "copy")], check=True)
    folder.parent.mkdir()
    (tmp_path / "copy").rename(folder)
    done = subprocess.run(
        [PROJECT / "scripts" / "get-server", source.version, folder], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    copied = Installation(source.version, folder)
    assert copied.full_version == source.full_version
    assert copied.share.is_relative_to(folder)
    installation._bootstrap(copied, tmp_path / ODD / "data", "root")  # a start with every option of the wrapper
    assert list((tmp_path / ODD / "data" / "mysql").glob("global_priv.*"))
    for name in ("mariadb", "mariadb-binlog", "mariadb-dump"):
        shown = subprocess.run([copied.binary(name), "--version"], capture_output=True, text=True, check=True).stdout
        assert "MariaDB" in shown


def test_spark_gets_a_home_and_an_interpreter_whose_paths_need_no_quotes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = tmp_path / "temporary"
    plain.mkdir()
    python = tmp_path / ODD / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "ran $0 with $1"\n', encoding="utf-8")
    python.chmod(0o755)
    monkeypatch.setattr(spark_home, "CACHE", tmp_path / ODD / ".cache")
    monkeypatch.setattr("tempfile.tempdir", str(plain))
    monkeypatch.setattr("sys.executable", str(python))
    home = spark_home.unpacked_spark_home()
    assert home.is_relative_to(plain)
    (core,) = (home / "jars").glob("spark-core_*.jar")
    assert core.resolve().is_relative_to(plain.resolve())  # as Java sees it: an URL of this path needs no escapes
    said = subprocess.run(
        ["sh", "-c", f"command -v {spark_home.spark_python()} && {spark_home.spark_python()} -V"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said.splitlines()[1] == f"ran {python} with -V"
    shutil.rmtree(home)
