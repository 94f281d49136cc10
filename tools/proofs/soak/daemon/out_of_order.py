"""Faults: sequence numbers go back, as after the replay of a binlog on a server that accepts any number.

During the fault, only the same server can continue the stream. Changes of servers and losses of files are therefore
excluded, and all other faults are allowed. After the fault, the next number is above all earlier ones, and every server
can continue again.

In strict mode the daemon must end with exit code 34, right before the first number that goes back. The operator
restarts it without strict mode, and kills it a few times while the numbers go back and forth.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tools.proofs.soak.daemon.going_back import DOMAIN, GoingBack
from tools.proofs.soak.fault import NotPossible

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from tools.proofs.soak.daemon.soak import Soak

EXIT_CODE = 34
TURN_S = 15.0
"""How long to wait for the writer to be between two transactions."""
WRITTEN_S = 120.0
"""Other faults may be at work, and each transaction waits until the daemon has it."""
ABOVE = 3
"""Transactions behind the last number that went back: with the first of them the position is of one place again."""


def go_back(soak: Soak, chance: random.Random) -> None:
    with soak.folder_in_use:
        with _between_two(soak) as writer:
            writer.numbers.extend(_numbers(soak, chance))
        _written(soak, writer)


def stop_before_it(soak: Soak, chance: random.Random) -> None:
    with soak.folder_in_use:
        soak.daemon.stop()
        soak.daemon.start("--gtid-strict-mode", tended=False)
        try:
            with _between_two(soak) as writer:
                numbers = _numbers(soak, chance)
                writer.numbers.extend(numbers)
                in_order = writer.carried + 1
        except NotPossible:
            soak.daemon.stop()
            soak.daemon.start()
            raise
        _stopped(soak)
        soak.watch.poll()
        assert len(soak.watch.counted) == in_order, f"it has {soak.watch.counted[in_order - 1 :]}, to come: {numbers}"
        soak.daemon.start()
        for _ in range(chance.randint(1, 3)):
            time.sleep(chance.uniform(0, 1.5))
            soak.daemon.kill()
            soak.look("the daemon was killed among numbers that went back")
            soak.daemon.start()
        _written(soak, writer)


@contextmanager
def _between_two(soak: Soak) -> Iterator[GoingBack]:
    """The writer, which is between two transactions until this ends."""
    writer = next(one for one in soak.writers if isinstance(one, GoingBack))
    if not writer.turn.acquire(timeout=TURN_S):
        raise NotPossible
    try:
        yield writer
    finally:
        writer.turn.release()


def _numbers(soak: Soak, chance: random.Random) -> list[int]:
    """The first one is above all there were, all others are not above that one."""
    position = soak.pair.primary.gtid_binlog_pos().split(",")
    last = next((int(gtid.split("-")[2]) for gtid in position if gtid.startswith(f"{DOMAIN}-")), 0)
    highest = last + chance.randint(1, 9)
    return [highest, *(chance.randint(max(1, highest - 20), highest) for _ in range(chance.randint(3, 25)))]


def _stopped(soak: Soak) -> None:
    """It ended right there; bits that another fault flips may end it before, and it is started again."""
    deadline = time.monotonic() + WRITTEN_S
    while (code := soak.daemon.exit_code(WRITTEN_S)) != EXIT_CODE:
        assert "bits flipped" in soak.breaking.at_work, f"exit code {code}:\n{soak.daemon.log[-3000:]}"
        assert time.monotonic() < deadline, f"exit code {code} again and again:\n{soak.daemon.log[-3000:]}"
        soak.daemon.start("--gtid-strict-mode", tended=False)


def _written(soak: Soak, writer: GoingBack) -> None:
    """Every number was taken and acknowledged, and some behind them: the numbers only grow again."""
    done = None
    deadline = time.monotonic() + WRITTEN_S
    while done is None or writer.done < done + ABOVE:
        soak.raise_failure()
        if done is None and not writer.numbers:
            done = writer.done
        assert time.monotonic() < deadline, f"{writer.numbers} are not written: {soak.daemon.log[-3000:]}"
        time.sleep(0.02)
    soak.look("numbers went back")
