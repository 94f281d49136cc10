"""Further faults during a round of the Spark soak: a task worker, a source process, the daemon or the primary dies.

In: the soak and the running application. Out: at most one such fault a round, counted by name. The end of the driver
does not wait for the fault, but the end of the round does.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from typing import TYPE_CHECKING, Self

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.proofs.soak.spark.driver import Driver
    from tools.proofs.soak.spark.soak import SparkSoak

AFTER_S = (0.5, 8.0)
"""From the start of the queries on."""
TARGET_PATIENCE_S = 10.0


class SideFaults:
    """Use as a context manager around a round."""

    def __init__(self, soak: SparkSoak, driver: Driver, *, on: bool) -> None:
        self._soak = soak
        self._driver = driver
        self._chance = random.Random(f"{soak.seed} fault {soak.done}")
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="side faults", daemon=True) if on else None

    def __enter__(self) -> Self:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        fault = self._chance.choices(
            (None, self._kill_workers, self._kill_source, self._kill_daemon, self._break_primary), (5, 4, 2, 2, 4)
        )[0]
        if fault is None or self._over.wait(self._chance.uniform(*AFTER_S)):
            return
        try:
            name = fault()
        except BaseException as error:  # noqa: BLE001  (the round fails with it)
            self._failure = error
            return
        if name:
            self._soak.faults[name] += 1
            self._soak.say(f"  {name}")

    def _kill_workers(self) -> str:
        return self._kill(self._driver.workers, "kill -9 of task workers")

    def _kill_source(self) -> str:
        name = self._kill(self._driver.runners, "kill -9 of a source process", one=True)
        self._driver.expected_failures += bool(name)
        return name

    def _kill(self, targets: Callable[[], list[psutil.Process]], name: str, *, one: bool = False) -> str:
        deadline = time.monotonic() + TARGET_PATIENCE_S
        while not (found := targets()):
            if self._over.wait(0.05) or time.monotonic() > deadline:
                return ""
        for process in found[:1] if one else found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return name

    def _kill_daemon(self) -> str:
        self._soak.daemon.kill()
        time.sleep(self._chance.uniform(0, 2))
        self._soak.daemon.start()
        return "kill -9 of the daemon"

    def _break_primary(self) -> str:
        return self._soak.load.some_fault(self._chance)
