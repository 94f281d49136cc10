"""Fault of a first host that is no server: for a while, it sends the daemon answers that no server sends.

Before and after the fault, the host closes every connection at once, like a host without a server. A cut link or a
restart makes the daemon look for a server.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.fixtures.network.hostile import ANSWERS, Answer

if TYPE_CHECKING:
    import random

    from tools.proofs.soak.daemon.soak import Soak

SILENT = (Answer("connection", list), Answer("login", list), Answer("statement", list))
MET_S = 20.0
"""How long to wait for the daemon to come by: another fault may keep it from going anywhere."""


def hostile_first_host(soak: Soak, chance: random.Random) -> None:
    hostile = soak.hostile
    before = hostile.accepted
    hostile.answer = chance.choice((*ANSWERS.values(), *SILENT))
    try:
        if chance.random() < 0.5:
            soak.daemon.kill()
            soak.daemon.start()
        else:
            soak.pair.proxy.reset_all()
        deadline = time.monotonic() + MET_S
        while hostile.accepted == before and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(chance.uniform(0, 2))
    finally:
        hostile.answer = None
        hostile.hang_up()  # a silent one is waited for, for two minutes: longer than anything here may take
