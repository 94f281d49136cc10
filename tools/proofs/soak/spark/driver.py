"""One life of the Spark application: prepared ahead, started, watched, and killed as a whole or in part.

In: descriptions of its queries. Out: the process ids of its parts (JVM, Python sources, task workers), the messages of
queries that ended, and its log. A killed application must leave no process: orphans have to end by themselves.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import psutil

from streaming_source.sinks.queries import TOO_SLOW
from tests.fixtures.installation import PROJECT
from tests.fixtures.jars import delta_settings
from tests.fixtures.spark_home import spark_python

if TYPE_CHECKING:
    from pathlib import Path

WARM_TIMEOUT_S = 300.0
"""A JVM and a first look at the source take 8 s on a quiet machine, two minutes where twenty share two cores."""
ORPHAN_TIMEOUT_S = 60.0
"""A source process says goodbye for two seconds, a worker ends when it finds its socket closed."""
LOG_TAIL = 6000


class Driver:
    """`start`, `go`, then `kill`; `queries` as spark_app.py wants them."""

    application = "tools.proofs.soak.spark.app"
    """The module to run."""

    def __init__(self, folder: Path, number: int, queries: list[dict[str, Any]]) -> None:
        self.queries = queries
        self.expected_failures = 0
        """Source processes that were killed: their queries end, and are started again."""
        self._events = folder / f"events-{number}.jsonl"
        self._log = folder / f"app-{number}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._jvm: psutil.Process | None = None

    def start(self) -> None:
        """Returns at once; `go` waits until it is warm."""
        environment = os.environ | {"PYSPARK_PYTHON": spark_python(), "PYTHONPATH": str(PROJECT)}
        environment["PYSPARK_SUBMIT_ARGS"] = " ".join([*self._configuration(), "pyspark-shell"])
        settings = json.dumps({"events": str(self._events), "queries": self.queries})
        command = [sys.executable, "-m", self.application, settings]
        self._events.touch()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=PROJECT, env=environment
            )

    def _configuration(self) -> list[str]:
        settings = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        # A life of ten seconds: compiling well, or collecting in parallel, would take longer than it saves.
        settings["spark.driver.extraJavaOptions"] = (
            "'-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC -Xss16m'"
        )
        if any(query["kind"] == "delta" for query in self.queries):
            settings |= delta_settings()
        return ["--driver-memory 1g", *(f"--conf {key}={value}" for key, value in settings.items())]

    def wait_warm(self) -> None:
        deadline = time.monotonic() + WARM_TIMEOUT_S
        while not any("warm" in event for event in self.events()):
            self.check_alive()
            assert time.monotonic() < deadline, f"not ready to start after {WARM_TIMEOUT_S:.0f} s:\n{self.log}"
            time.sleep(0.02)
        (self._jvm,) = (p for p in self._own.children() if "java" in p.name())

    def go(self) -> None:
        """Start the queries."""
        self.wait_warm()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()

    # -- looking at it ---------------------------------------------------------------------------------------------

    @property
    def _own(self) -> psutil.Process:
        assert self._process is not None, "the application was not started"
        return psutil.Process(self._process.pid)

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")[-LOG_TAIL:]

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._events.read_text(encoding="utf-8").splitlines()]

    @property
    def failures(self) -> list[str]:
        """What queries of it ended with."""
        return [str(event["failure"]) for event in self.events() if "failure" in event]

    def check_failures(self) -> tuple[int, int]:
        """How many queries ended because their source was killed, and because Spark was too slow; no others may."""
        failures = self.failures
        too_slow = [failure for failure in failures if TOO_SLOW in failure]
        killed = len(failures) - len(too_slow)
        assert killed <= self.expected_failures, "a query ended by itself:\n" + "\n".join(failures)
        return killed, len(too_slow)

    def check_alive(self) -> None:
        code = None if self._process is None else self._process.poll()
        assert code is None, f"the application ended by itself, exit code {code}:\n{self.log}"

    def runners(self) -> list[psutil.Process]:
        """The source processes: one a query."""
        return [p for p in self._children() if "python_streaming_source_runner" in _command(p)]

    def workers(self) -> list[psutil.Process]:
        """Forked task workers: children of the daemons that the JVM starts for tasks."""
        daemons = [p for p in self._children() if "pyspark.daemon pyspark.worker" in _command(p)]
        return [worker for daemon in daemons for worker in _children(daemon)]

    def _children(self) -> list[psutil.Process]:
        return _children(self._jvm) if self._jvm is not None else []

    # -- its end ---------------------------------------------------------------------------------------------------

    def kill(self, *, whole: bool = True) -> None:
        """kill -9 of the JVM, first of all, and of every other process of it at once too (`whole`) or not.

        Without, its Python processes have to see for themselves that it is over.
        """
        if self._process is None:
            return
        kill_application(self._process, self._jvm, whole=whole)
        self._process = None


def kill_application(process: subprocess.Popen[bytes], jvm: psutil.Process | None, *, whole: bool) -> None:
    """Kill the JVM of an application, then its Python driver `process`, and what else is of it too (`whole`) or not."""
    if jvm is not None:
        _send(jvm, signal.SIGSTOP)  # at once; who its children are takes longer to find out
    family: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid).children(recursive=True)
    if jvm is not None:
        _kill(jvm)
    process.kill()
    process.wait()
    if whole:
        for one in family:
            _kill(one)
    _, orphans = psutil.wait_procs(family, ORPHAN_TIMEOUT_S)
    left = [_command(one) for one in orphans]
    for one in orphans:
        _kill(one)
    assert not left, f"{ORPHAN_TIMEOUT_S:.0f} s after the kill -9 of Spark's JVM there still are: {left}"


def _send(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def _kill(process: psutil.Process) -> None:
    _send(process, signal.SIGKILL)


def _command(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return " ".join(process.cmdline())
    return ""


def _children(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.children()
    return []
