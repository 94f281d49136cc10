"""A worker with a fault put in at case AT: what the fuzzer has to notice. Which one: `PLANTED` in the environment."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from typing import TYPE_CHECKING

from tools.fuzz import worker
from tools.fuzz.guarded import Guarded
from tools.fuzz.targets import Targets

if TYPE_CHECKING:
    import random

    from tools.fuzz.corpus import Group

AT = 5


class Planted(Targets):
    """Does nothing until the case is reached."""

    def __init__(self) -> None:
        super().__init__()
        # The worker warms itself with the whole groups before its first case.
        self._case = int(sys.argv[2]) - len(worker.corpus().groups) - 7

    def run(self, events: list[bytes], group: Group, rng: random.Random) -> None:  # noqa: ARG002
        at_hand, self._case = self._case, self._case + 1
        if at_hand == AT:
            {"error": self._error, "crash": self._crash, "hang": self._hang, "memory": self._memory}[
                os.environ["PLANTED"]
            ]()

    def _error(self) -> None:
        raise KeyError("not ours")

    def _crash(self) -> None:
        place = Guarded(100).put(b"x" * 100)
        ctypes.string_at(int(place.__array_interface__["data"][0]), 101)

    def _hang(self) -> None:
        time.sleep(600)

    def _memory(self) -> None:
        bytes(worker.EXTRA_BYTES * 2)


if __name__ == "__main__":
    worker.Targets = Planted  # type: ignore[misc]
    sys.exit(worker.main(*map(int, sys.argv[1:5]), sys.argv[5]))
