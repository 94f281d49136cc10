"""The commands of `scripts/`: they parse, they can be run, and wrong calls are answered before anything is done."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.kit.tree import files
from tools.bench.kit.peer_programs import PINNED, SOURCES

PROJECT = Path(__file__).resolve().parents[3]
SOURCED = [PROJECT / "scripts" / name for name in ("debian-packages", "environment")]
COMMANDS = sorted(path for path in (PROJECT / "scripts").iterdir() if path not in SOURCED)


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("path", [*COMMANDS, PROJECT / ".ci" / "run"], ids=lambda path: path.name)
def test_a_script_parses_and_has_its_run_bit(path: Path) -> None:
    assert run("bash", "-n", path).stderr == ""
    assert os.access(path, os.X_OK)


@pytest.mark.parametrize("path", SOURCED, ids=lambda path: path.name)
def test_what_scripts_source_parses(path: Path) -> None:
    assert run("bash", "-n", path).stderr == ""


def test_bench_without_a_name_tells_the_names() -> None:
    done = run(PROJECT / "scripts" / "bench")
    assert done.returncode == 2
    for path in files(PROJECT / "tools" / "bench", "*/bench_*.py"):
        assert f"  {path.stem.removeprefix('bench_')}  " in done.stdout


def test_bench_has_the_sources_of_its_peers() -> None:
    assert {path.name for path in SOURCES.iterdir()} == {"debezium", "go", "java"}
    assert PINNED.is_file()


def test_get_server_refuses_unknown_versions(tmp_path: Path) -> None:
    done = run(PROJECT / "scripts" / "get-server", "9.9", tmp_path / "made")
    assert done.returncode == 1
    assert "known are 10.5, 10.11 and 11.8" in done.stderr
    assert not (tmp_path / "made").exists()


def test_every_command_is_documented() -> None:
    text = "".join((PROJECT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md"))
    for path in COMMANDS:
        assert f"scripts/{path.name}" in text, path.name
