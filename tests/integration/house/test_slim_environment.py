"""The environment of the container image, made as the Dockerfile makes it, from the packages that are installed here:
the daemon, `tail`, `dump` and the compiler work in it. The image itself: tests/integration/daemon/test_compose.py
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.installation import PROJECT
from tests.fixtures.mariadb import wait_until
from tools import slim_environment

if TYPE_CHECKING:
    from tests.fixtures.mariadb import MariaDb

pytestmark = [pytest.mark.server, pytest.mark.slow]

SECRET = "replica-secret"
PINNED = re.compile(r"^([\w.-]+)==", re.MULTILINE)


def copied(source: Path, target: Path) -> None:
    """A second name where that is possible: half a gigabyte is not written for a test."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        target.write_bytes(source.read_bytes())


def environment(folder: Path) -> Path:
    """What `pip install` of constraints/daemon.txt and of this project makes, without a package index."""
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python3*/site-packages")
    for name in PINNED.findall((PROJECT / "constraints" / "daemon.txt").read_text(encoding="utf-8")):
        found = distribution(name)
        for file in found.files or ():
            if file.parts[0] != ".." and "__pycache__" not in file.parts:
                copied(Path(str(found.locate_file(file))), packages / file)
    # As an editable installation has it: a kernel is cached by the place of its source, and here all are compiled.
    (packages / "project.pth").write_text(f"{PROJECT}\n", encoding="utf-8")
    return packages


def size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def test_the_environment_of_the_image_works(
    tmp_path: Path, any_server: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, folder = any_server, tmp_path / "environment"
    packages = environment(folder)
    for pattern in slim_environment.REMOVED:
        assert list(packages.glob(pattern)), f"{pattern}: no pinned package has it any more"
    before = size(packages)
    (tmp_path / "replica.py").write_text("raise ImportError('not what is installed')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert slim_environment.main([str(folder)]) == 0
    (tmp_path / "replica.py").unlink()
    # Of 500 MB; bytecode is in it now. The largest parts are LLVM (160) and Arrow (60).
    assert size(packages) < before * 0.68

    server.sql("CREATE DATABASE s", "CREATE TABLE s.t (id INT PRIMARY KEY, d DECIMAL(9,2), v VARCHAR(9))")
    server.add_user("repl", SECRET)
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    variables |= {"MARIADB_REPLICA_PASSWORD": SECRET, "MARIADB_REPLICA_RELAY_DIR": str(tmp_path / "relay")}
    program = [folder / "bin" / "python", "-m", "replica"]

    def answer(*arguments: str, codes: tuple[int, ...] = (0,)) -> str:
        done = subprocess.run(
            [*program, *arguments], env=variables, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode in codes, done.stdout + done.stderr
        return done.stdout

    place = f"--host={server.host}:{server.port}"
    with subprocess.Popen([*program, "run", place, "--user=repl"], env=variables, cwd=tmp_path) as daemon:
        try:
            wait_until(lambda: daemon.poll() is not None or server.dump_threads(), "the daemon is connected")
            server.sql("INSERT INTO s.t VALUES (1, 1.50, 'ä')")
            gtid = server.gtid_binlog_pos()
            # The record is written once a second: the first may be of the time before the connection.
            wait_until(lambda: gtid in answer("status", "--json", codes=(0, 10, 11)), "the daemon has it")
            (line,) = answer("tail", "-n", "1", "--no-follow", "--json").splitlines()
        finally:
            daemon.terminate()
    assert daemon.returncode == 0
    assert list(json.loads(line)["after"].values())[:2] == [1, "1.50"]  # without row metadata, columns have no names

    binlog = str(server.datadir / server.binlogs()[-1])
    command = [sys.executable, "-m", "replica", "dump", "--json", binlog]
    whole = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    assert answer("dump", "--json", binlog) == whole.stdout
    assert '"1.50"' in whole.stdout
    # LLVM as well: a kernel that no cache has.
    compiled = (
        "from replica.native.compile import kernel\n\n"
        "@kernel\ndef double(number):\n    return number * 2\n\nprint(double(21))\n"
    )
    (tmp_path / "new_kernel.py").write_text(compiled, encoding="utf-8")
    done = subprocess.run(
        [program[0], "new_kernel.py"], env=variables, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "42\n", done.stderr
