"""The peers of benchmarks that are in no environment, programs and packages: made once, kept in .cache/bench.

Each is kept under a name with the digest of what it is made from, so that a new pin makes it again. Where its registry
cannot be reached, or its language is not installed, None is returned and a line says so.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.bench.kit.workloads import CACHE

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCES = Path(__file__).resolve().parents[1] / "peers"
PINNED = Path(__file__).resolve().parents[3] / "constraints" / "bench.txt"
BUILD_TIMEOUT_S = 600


def python_packages() -> Path | None:
    """The folder with the Python packages that constraints/bench.txt pins."""

    def install(folder: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:"]
        _run([*pip, "--require-hashes", "--target", str(folder), "-r", str(PINNED)], folder.parent)

    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return _kept(f"packages-{python}", [PINNED], install)


def go_program() -> Path | None:
    """The folder with `peer`, which reads with go-mysql."""

    def build(folder: Path) -> None:
        shutil.copytree(SOURCES / "go", folder)
        _run(["go", "build", "-buildvcs=false", "-mod=readonly", "-o", "peer", "."], folder)

    return _kept("go", sorted((SOURCES / "go").iterdir()), build)


def java_program() -> Path | None:
    """The folder with the class `Connector`, which reads with mysql-binlog-connector-java, and its jars."""
    return _maven_program("java")


def debezium_program() -> Path | None:
    """The folder with the class `Embedded`, which reads with Debezium's embedded engine, and its jars."""
    return _maven_program("debezium")


def java_answer(program: Path, name: str, *arguments: object) -> dict[str, Any]:
    """Run a class of a Java program, and return the object that it prints as its last line."""
    path = f"{program}/target/classes:{program}/jars/*"
    return answer(["java", "-cp", path, name, *map(str, arguments)])


def answer(command: list[str]) -> dict[str, Any]:
    """Run a program, and return the object that it prints as its last line."""
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _maven_program(name: str) -> Path | None:
    def build(folder: Path) -> None:
        shutil.copytree(SOURCES / name, folder)
        _run(["mvn", "--quiet", "--batch-mode", "compile", "dependency:copy-dependencies"], folder)

    return _kept(name, sorted(path for path in (SOURCES / name).rglob("*") if path.is_file()), build)


def _kept(name: str, sources: list[Path], make: Callable[[Path], None]) -> Path | None:
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    folder = CACHE / "peers" / f"{name}-{digest}"
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    try:
        make(unfinished)
        unfinished.rename(folder)
    except (OSError, subprocess.SubprocessError) as error:
        told = str(getattr(error, "stderr", "") or getattr(error, "stdout", "") or error).strip().splitlines()
        print(f"WITHOUT {name}: {told[-1] if told else error}", flush=True)
        return None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _run(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S)
