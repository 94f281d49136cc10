"""Scheduler of faults: the seed selects the faults, and a few of them are active at a time.

In: the soak to break, and the number of faults. Out: counts by kind, and the first failure that a fault found.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

from tools.proofs.soak.daemon.faults import FAULTS
from tools.proofs.soak.fault import NotPossible

if TYPE_CHECKING:
    from tools.proofs.soak.daemon.soak import Soak
    from tools.proofs.soak.fault import Fault

AT_ONCE = 3
"""Faults that may be at work together."""
CALM_EVERY = 8
LATELY_S = 5.0
"""How long after a fault an exit is counted as under it."""
PAUSE_S = (0.05, 1.5)
"""Between the beginnings of two faults."""


class Breaking:
    """`run` returns when all faults are over and everything is well again."""

    def __init__(
        self, soak: Soak, *, count: int, seed: int, minutes: float = 0.0, pause_s: tuple[float, float] = PAUSE_S
    ) -> None:
        self.injected: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.failure: BaseException | None = None
        self._soak = soak
        self._count = count
        self._seed = seed
        self._pause_s = pause_s
        self._until = time.monotonic() + 60 * minutes if minutes else float("inf")
        self._resources = {name: threading.Lock() for fault in FAULTS for name in fault.resource.split()}
        self._slots = threading.Semaphore(AT_ONCE)
        self._threads: list[threading.Thread] = []
        self._lately: dict[str, float] = {}

    @property
    def at_work(self) -> str:
        """Names of the faults that are, or were a moment ago."""
        now = time.monotonic()
        return ", ".join(name for name, until in list(self._lately.items()) if until > now)

    def run(self) -> None:
        deck: list[Fault] = []
        drawn = 0
        while time.monotonic() < self._until:
            if drawn - sum(self.skipped.values()) >= self._count:
                self.join()
                if sum(self.injected.values()) >= self._count:
                    break
            chance = random.Random(f"{self._seed} fault {drawn}")
            if not deck:
                # Each kind once, then as often as its weight says.
                deck = [fault for fault in FAULTS for _ in range(fault.weight if drawn else 1)]
                chance.shuffle(deck)
            pause_s = chance.uniform(*self._pause_s)  # before the fault, which draws in a thread of its own
            self._launch(deck.pop(), chance)
            drawn += 1
            time.sleep(pause_s)
            self._soak.raise_failure()
            if drawn % CALM_EVERY == 0:
                self._soak.calm(f"draw {drawn}")
        self._soak.calm("the last fault")

    def join(self) -> None:
        """Wait until no fault is at work."""
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _launch(self, fault: Fault, chance: random.Random) -> None:
        locks = [self._resources[name] for name in fault.resource.split()]
        for lock in locks:
            lock.acquire()
        self._slots.acquire()
        thread = threading.Thread(target=self._inject, args=(fault, chance, locks), name=fault.name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _inject(self, fault: Fault, chance: random.Random, locks: list[threading.Lock]) -> None:
        self._lately[fault.name] = float("inf")
        began = time.monotonic()
        try:
            fault.run(self._soak, chance)
            self.injected[fault.name] += 1
            self._soak.say(f"  {sum(self.injected.values())} {fault.name}, {time.monotonic() - began:.1f} s")
            self._soak.look(fault.name)
        except NotPossible:
            self.skipped[fault.name] += 1
        except BaseException as error:  # noqa: BLE001  (the run fails with it)
            error.add_note(f"during: {fault.name}")
            self.failure = self.failure or error
        finally:
            self._lately[fault.name] = time.monotonic() + LATELY_S
            self._slots.release()
            for lock in locks:
                lock.release()
