"""Faults: an operator removes relay files while the daemon runs or is down, and starts the daemon again.

A running daemon must end with exit code 70, and no COMMIT that was sent after the loss may be acknowledged. If nothing
remains of the log, the daemon must refuse to start, and name the position for `--start`. Otherwise it continues after
the remaining files. The watch forgets all groups after that place, because the log must continue there without a gap.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from tools.proofs.soak.fault import NotPossible

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tools.proofs.soak.daemon.soak import Soak

EXIT_CODE = 70
GO_ON_TIMEOUT_S = 90.0
"""Other faults may be at work, such as a primary that is away."""
_NAME = re.compile(r"relay\.(\d{6,})(\.idx)?")


def remove_files_while_up(soak: Soak, chance: random.Random) -> None:
    with soak.folder_in_use:
        oldest = _oldest_to_remove(soak, chance)
        if soak.daemon.said("connected") is None:
            raise NotPossible
        soak.daemon.wanted = False  # it is the operator who starts it again
        _remove(soak.relay, oldest)
        soak.ledger.nothing_can_be_kept(from_now=True)
        try:
            code = soak.daemon.exit_code()
        finally:
            soak.ledger.nothing_can_be_kept(from_now=False)
        assert code == EXIT_CODE, f"exit code {code} after its files were removed:\n{soak.daemon.log[-3000:]}"
        assert not soak.ledger.broken, f"{soak.ledger.broken} COMMITs were acknowledged into removed files"
        _go_on(soak)


def remove_files_while_down(soak: Soak, chance: random.Random) -> None:
    with soak.folder_in_use:
        oldest = _oldest_to_remove(soak, chance)
        soak.daemon.stop()
        soak.look("the daemon was stopped")
        _remove(soak.relay, oldest)
        _go_on(soak)


def _oldest_to_remove(soak: Soak, chance: random.Random) -> int:
    """The number of the newest file, or that of all."""
    numbers = _numbers(soak.relay)
    if not numbers:
        raise NotPossible
    oldest = chance.choice((numbers[-1], 1))
    if not soak.watch.names_one_place(before=oldest):
        raise NotPossible  # the log would go on there by its place in one server's binlog, which may soon be the other
    return oldest


def _numbers(relay: Path) -> list[int]:
    found = (_NAME.fullmatch(path.name) for path in relay.iterdir())
    return sorted({int(match[1]) for match in found if match})


def _remove(relay: Path, oldest: int) -> None:
    """Until none is left: the daemon makes a new one as long as it has not lost the one it writes."""
    while [number for number in _numbers(relay) if number >= oldest]:
        for path in list(relay.iterdir()):
            match = _NAME.fullmatch(path.name)
            if match and int(match[1]) >= oldest:
                path.unlink(missing_ok=True)


def _go_on(soak: Soak) -> None:
    """Start it, at the position that it names if it does not start without; until all is there that was there."""
    with soak.watch.alone():
        soak.watch.poll()  # what was written into files that have no name any more
        had = dict(soak.watch.position)
        options, position = (), _started(soak, ())
        if position is None:
            named = soak.daemon.said("failed")
            assert named is not None, soak.daemon.log[-3000:]
            assert "are missing" in named["message"], named
            position = named["hint"].partition("--start ")[2].split(":")[0]
            options = (f"--start={position}",)
            assert _started(soak, options) is not None, soak.daemon.log[-3000:]
        soak.watch.forget_behind(_sequences(position))
        deadline = time.monotonic() + GO_ON_TIMEOUT_S
        while any(soak.watch.position.get(domain, 0) < last for domain, last in had.items()):
            assert time.monotonic() < deadline, f"{soak.watch.position} is not {had}: {soak.daemon.log[-3000:]}"
            _keep_up(soak, options)
            soak.watch.poll()
            time.sleep(0.05)
        while soak.daemon.said("connected") is None:
            assert time.monotonic() < deadline, f"not connected: {soak.daemon.log[-3000:]}"
            _keep_up(soak, options)
            time.sleep(0.05)
        soak.daemon.wanted = True


def _started(soak: Soak, options: tuple[str, ...]) -> str | None:
    """Start it: the position of its log, or None where it refused."""
    soak.daemon.start(*options, tended=False)
    deadline = time.monotonic() + GO_ON_TIMEOUT_S
    while soak.daemon.running and soak.daemon.said("started") is None:
        assert time.monotonic() < deadline, soak.daemon.log[-3000:]
        time.sleep(0.05)
    started = soak.daemon.said("started")
    return None if started is None else str(started["position"])


def _keep_up(soak: Soak, options: tuple[str, ...]) -> None:
    """Flipped bits may end it, as always: with its log begun, `--start` means nothing any more."""
    if not soak.daemon.running:
        soak.daemon.start(*options, tended=False)


def _sequences(position: str) -> dict[int, int]:
    gtids = (tuple(map(int, gtid.split("-"))) for gtid in position.split(",") if gtid)
    return {domain: sequence for domain, _, sequence in gtids}
