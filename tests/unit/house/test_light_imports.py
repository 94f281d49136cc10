"""Each command and each cheap entry point loads no module that it does not need.

`STARTS` is the table: a way to start Python -> modules that it must have loaded, and modules that it must not load. A
fresh process runs each start once. A name stands for a module and all that is below it.
"""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from replica.commands.cli import COMMANDS
from replica.errors import DisconnectedError, RelayError
from tests.fixtures.installation import PROJECT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

REPORTS: Final = """
import atexit, json, os, sys

def report():
    with open({path!r}, "w", encoding="utf-8") as file:
        json.dump(sorted(sys.modules), file)

atexit.register(report)
"""
COMMAND: Final = "sys.argv = {arguments!r}; from replica.commands.cli import main; main()"
MIRROR: Final = """
import runpy
sys.argv = ["streaming_source.mirroring", "--help"]
try:
    runpy.run_module("streaming_source.mirroring", run_name="__main__")
except SystemExit as end:
    assert end.code == 20, end.code
"""
DECODES: Final = """
from pathlib import Path

import pyspark.sql.types
from replica import decode_files
from streaming_source.mirroring.batch.manifest import read_manifest
from streaming_source.rows.partition import ChangePartition, MappedRange
from streaming_source.rows.read_plan import ReadPlan
from streaming_source.rows.reader import read_changes
from streaming_source.selection.resolver import SelectedTables

tables = SelectedTables(("*.*",), {}, include_ddl=True)
counts = [0, 0, 0]
for path in sorted(Path("tests/vectors").glob("1*/metadata_full.binlog")):
    part = ChangePartition((MappedRange(str(path), 4, path.stat().st_size, checksum=True, file=path.name),))
    for place, read in enumerate((read_changes, read_manifest)):
        plan = ReadPlan("variant", tables, None, "127.0.0.1:3306", include_sql=True)
        counts[place] += sum(batch.num_rows for batch in read(part, plan))
for batch in decode_files(["tests/vectors/11.8/metadata_full.binlog"], "`v.1`.strings"):
    counts[2] += batch.num_rows
assert all(counts), counts
"""
UNREACHABLE: Final = ("--user", "u", "--host", "127.0.0.1:9")
"""Options for a server that refuses the connection: nothing listens on the port `discard`."""

COMPILER: Final = ("numba",)
"""Half a second of each start, and its registries another half."""
TABLES: Final = ("pandas", "deltalake")
SPARK: Final = ("pyspark", "py4j", "streaming_source", "pyspark_mariadb_binlog")
ARRAYS: Final = ("numpy", "pyarrow", "llvmlite", "replica.native")
CONNECTIONS: Final = ("asyncio", "aiomysql", "pymysql", "replica.handshake", "replica.live.session")
HEAVY: Final = ("numba", "numpy", "pyarrow", "aiomysql", "pymysql", "asyncio", "pydantic", "pandas")
KERNEL_LOADER: Final = ("replica.native.warm", "concurrent.futures.process", "multiprocessing")
"""The loader of all kernels; only `fleet` needs it, before it forks."""
SNAPSHOTS: Final = ("replica.snapshot", "replica.commands.check.initial")
"""Snapshots and their checks: half a second of types and arrays, which only `check --initial` needs."""
DECODERS: Final = (
    "pyarrow",
    "replica.rows",
    "replica.readers.rows",
    "replica.readers.arrow",
    "replica.readers.primary",
)
DAEMON: Final = (
    "uvloop",
    "prometheus_client",
    "replica.daemon.run",
    "replica.daemon.fleet",
    "replica.relay_writer.retention",
)
REFUSED_STREAM: Final = ("streaming_source.driver.refused_stream",)
"""The reader of a refused stream, which Spark needs only after an error."""
EVERY_COMMAND: Final = (*COMPILER, *TABLES, *SPARK)


class Start(NamedTuple):
    """A way to start Python.

    Attributes:
        code: the program; with `arguments` it is the command-line program.
        needs: modules that it loads; they prove that the program ran.
        forbidden: modules that it must not load.
        arguments: those of `mariadb-replica`; `{folder}` is an empty folder.
        exit_code: of the process.
        stop_at: text in a line of standard error after which the test sends SIGTERM.
        after: module that Spark has loaded before; what it loads does not count.
        ours: all modules of this project that it loads, if they are as few as to be listed.
    """

    code: str = COMMAND
    needs: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    arguments: tuple[str, ...] | None = None
    exit_code: int = 0
    stop_at: str | None = None
    after: str | None = None
    ours: frozenset[str] | None = None


def command(
    *arguments: str, needs: str, forbidden: Iterable[str], exit_code: int = 0, stop_at: str | None = None
) -> Start:
    return Start(COMMAND, (needs,), (*EVERY_COMMAND, *forbidden), arguments, exit_code, stop_at)


def python(code: str, needs: Sequence[str], forbidden: Iterable[str], after: str | None = None) -> Start:
    return Start(code, tuple(needs), tuple(forbidden), after=after)


def spark(code: str, *needs: str, forbidden: Iterable[str] = HEAVY) -> Start:
    """A start in a process of Spark's, which has its own module of data sources already."""
    return python(code, needs, (*forbidden, *REFUSED_STREAM), after="pyspark.sql.datasource")


def package(name: str) -> Start:
    """The import of a package, whose names are loaded when they are used."""
    ours = frozenset({"replica", "replica.lazy_imports", "replica.version", name})
    return Start(f"import {name}", (name,), (*HEAVY, "pyspark"), ours=ours)


STARTS: Final = {
    "mariadb-replica --help": command(
        "--help", needs="replica.commands.cli", forbidden=(*ARRAYS, *CONNECTIONS, "pydantic", "replica.daemon")
    ),
    "run": command(
        "run",
        *UNREACHABLE,
        "--relay-dir",
        "{folder}",
        needs="replica.daemon.run",
        forbidden=(*KERNEL_LOADER, *SNAPSHOTS, *DECODERS, "replica.daemon.fleet", "replica.commands.check"),
        stop_at='"event": "reconnecting"',
    ),
    "fleet": command(
        "fleet",
        "--help",
        needs="replica.native.warm",
        forbidden=(*SNAPSHOTS, *DECODERS, "replica.commands.check"),
    ),
    "status": command(
        "status",
        "--relay-dir",
        "{folder}/missing",  # of a daemon that is down, it reads the end of the log too, with kernels
        needs="replica.daemon.status.verdict",
        forbidden=(*ARRAYS, *CONNECTIONS, *KERNEL_LOADER, *SNAPSHOTS, *DECODERS, "replica.daemon.run"),
        exit_code=RelayError.exit_code,
    ),
    "check": command(
        "check",
        *UNREACHABLE,
        needs="replica.commands.check.command",
        forbidden=(*KERNEL_LOADER, *SNAPSHOTS, *DECODERS, "uvloop", "structlog", "replica.daemon.fleet"),
        exit_code=DisconnectedError.exit_code,
    ),
    "tail": command(
        "tail", "--help", needs="replica.commands.tail.command", forbidden=(*KERNEL_LOADER, *SNAPSHOTS, *DAEMON)
    ),
    "explain": command(
        "explain", "--help", needs="replica.commands.explain.command", forbidden=(*KERNEL_LOADER, *SNAPSHOTS, *DAEMON)
    ),
    "position": command(
        "position", "--help", needs="replica.commands.position", forbidden=(*KERNEL_LOADER, *SNAPSHOTS, *DAEMON)
    ),
    "purge": command(
        "purge", "--help", needs="replica.commands.purge", forbidden=(*KERNEL_LOADER, *SNAPSHOTS, *DAEMON)
    ),
    "files": command(
        "files",
        needs="replica.commands.files",
        forbidden=(*ARRAYS, *CONNECTIONS, *KERNEL_LOADER, *SNAPSHOTS, *DECODERS, *DAEMON),
    ),
    "dump": command(
        "dump",
        "tests/vectors/11.8/metadata_full.binlog",
        needs="replica.commands.dump.command",
        forbidden=(*CONNECTIONS, *KERNEL_LOADER, *SNAPSHOTS, *DAEMON, "structlog"),
    ),
    "mirror --help": python(
        MIRROR, ["streaming_source.mirroring.arguments"], (*HEAVY, "pyspark", "py4j", "deltalake", "replica.options")
    ),
    "import replica": package("replica"),
    "import streaming_source": package("streaming_source"),
    "import replica.errors": python("import replica.errors", ["replica.errors"], (*HEAVY, "pyspark")),
    # Spark imports every `pyspark_*` module in every session, also of people who never use this source.
    "discovery": spark(
        "import pyspark_mariadb_binlog as m; assert m.DefaultSource is not None",
        "replica.errors",
        "streaming_source.source.data_source",
    ),
    "stream in a worker": spark("import streaming_source.source.stream", "replica.errors"),
    "batch in a worker": spark("import streaming_source.source.batch.reader", "replica.errors"),
    "mirror's task": spark(
        "import streaming_source.mirroring.batch.manifest",
        "numpy",
        forbidden=("numba", "pandas", "pydantic", "pyarrow", *CONNECTIONS),
    ),
    # Each load() starts an interpreter that imports this: a quarter of a second for numba alone.
    "load()": spark(
        "import streaming_source.source.load, streaming_source.source.batch.server",
        "asyncio",
        forbidden=("numba", "pandas", "streaming_source.planning.planner", *KERNEL_LOADER[:1]),
    ),
    # Each query starts an interpreter that imports this; pyarrow.compute and an array made of a list load pandas.
    "planner": spark(
        "import streaming_source.planning.planner, streaming_source.planning.feed",
        "llvmlite.binding",
        forbidden=("numba", "pandas", "pyarrow.compute", "streaming_source.attached.feed", *KERNEL_LOADER[:1]),
    ),
    "decoding": python(DECODES, ["pyarrow", "streaming_source.rows.reader"], ("pandas",)),
    "compiled kernels": python(
        "from replica.native.warm import kernel_names, load_imported; kernel_names(); assert load_imported()",
        ["llvmlite.binding", "replica.native.warm"],
        COMPILER,
    ),
}


@cache
def loaded_by(module: str) -> frozenset[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, {module}; print(*sys.modules)"],
        cwd=PROJECT,
        check=True,
        capture_output=True,
        text=True,
    )
    return frozenset(done.stdout.split())


def loaded(start: Start, report: Path, folder: Path) -> set[str]:
    """Run a start in a fresh process and return the modules that it has loaded at its end."""
    code = start.code
    if start.arguments is not None:
        arguments = [one.format(folder=folder) for one in start.arguments]
        code = code.format(arguments=["mariadb-replica", *arguments])
    program = [sys.executable, "-c", REPORTS.format(path=str(report)) + code]
    process = subprocess.Popen(program, cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said = []
    with process:
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line)
            if start.stop_at is not None and start.stop_at in line:
                process.send_signal(signal.SIGTERM)
    assert process.returncode == start.exit_code, "".join(said)
    if start.stop_at is not None:
        assert any(start.stop_at in line for line in said), "".join(said)
    return set(json.loads(report.read_text(encoding="utf-8")))


def among(modules: Iterable[str], names: Sequence[str]) -> list[str]:
    """Return the modules that have one of the names, or are below it."""
    return sorted(module for module in modules if any(f"{module}.".startswith(f"{name}.") for name in names))


@pytest.mark.parametrize("name", STARTS)
def test_a_start_loads_nothing_that_it_does_not_need(name: str, tmp_path: Path) -> None:
    start, folder = STARTS[name], tmp_path / "empty"
    folder.mkdir()
    found = loaded(start, tmp_path / "modules.json", folder)
    assert set(start.needs) <= found
    before = frozenset() if start.after is None else loaded_by(start.after)
    assert [one for one in start.forbidden if among(found - before, [one])] == []
    if start.ours is not None:
        assert set(among(found, ["replica", "streaming_source", "pyspark_mariadb_binlog"])) == start.ours


def test_every_command_has_a_line() -> None:
    assert set(COMMANDS) <= set(STARTS)


def test_every_forbidden_module_exists() -> None:
    """A module that was renamed, or folded into another, could be loaded unseen."""
    names = {name for start in STARTS.values() for name in start.forbidden}
    assert [name for name in sorted(names) if importlib.util.find_spec(name) is None] == []
