"""Faults of the soak: what each breaks, for how long, and which resources must not be broken at the same time.

Each fault is a function of the soak and a random source. It does its damage, waits, and repairs the damage. Faults of
one resource exclude each other, and all other faults may overlap. `NotPossible` means that the fault cannot happen at
this moment.
"""

from __future__ import annotations

import contextlib
import signal
import time
from typing import TYPE_CHECKING

import pymysql

from tools.proofs.soak.daemon.hostile_host import hostile_first_host
from tools.proofs.soak.daemon.out_of_order import go_back, stop_before_it
from tools.proofs.soak.daemon.removed import remove_files_while_down, remove_files_while_up
from tools.proofs.soak.fault import Fault, NotPossible
from tools.proofs.soak.process import clock_library

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from tools.proofs.soak.daemon.soak import Soak

GATE_S = 15.0
"""How long a fault of the primary waits for the writers that must not be hit in the middle of a statement."""
LATE_OR_NEVER_S = (1.0, 4.0)
"""Around the heartbeat deadline of the daemon under test, 1.5 s: some of these it must sit out, some it must act on."""


# -- the daemon -----------------------------------------------------------------------------------------------------


def kill_daemon(soak: Soak, chance: random.Random) -> None:
    """And once more while it starts, one time in three."""
    for _ in range(1 if chance.random() < 0.67 else 2):
        soak.daemon.kill()
        soak.look("the daemon was killed")
        time.sleep(chance.uniform(0, 0.5))
        soak.daemon.start()
        time.sleep(chance.uniform(0.1, 2.5))


def stop_daemon(soak: Soak, chance: random.Random) -> None:
    soak.daemon.stop()
    soak.look("the daemon was stopped")
    time.sleep(chance.uniform(0, 0.5))
    soak.daemon.start()
    time.sleep(chance.uniform(1, 2))


def freeze_daemon(soak: Soak, chance: random.Random) -> None:
    soak.daemon.signal(signal.SIGSTOP)
    time.sleep(chance.uniform(*LATE_OR_NEVER_S))
    soak.daemon.signal(signal.SIGCONT)


def jump_clock(soak: Soak, chance: random.Random) -> None:
    """The daemon's wall clock; it stays off for a while and comes back."""
    if not clock_library():
        raise NotPossible
    jump = chance.choice((3_600, 86_400, 31_536_000)) * chance.choice((-1, 1))
    soak.daemon.clock.write_text(f"{jump:+d}", encoding="utf-8")
    time.sleep(chance.uniform(1, 4))
    soak.daemon.clock.write_text("+0", encoding="utf-8")


def fill_disk(soak: Soak, chance: random.Random) -> None:
    if not soak.disk.can_fill:
        raise NotPossible
    soak.disk.fill(chance.choice((0, 0, 4096, 100_000, 3_000_000)))
    try:
        time.sleep(chance.uniform(1, 4))
    finally:
        soak.disk.free()


def purge_relay(soak: Soak, chance: random.Random) -> None:
    """All files before the last group that the judge has seen: what it never saw, it would miss."""
    sequence = soak.watch.position[0]
    with soak.folder_in_use:
        done = soak.daemon.command("purge", "--before", f"0-{soak.watch.server_of[0, sequence]}-{sequence}")
    assert done.returncode == 0, f"purge: {done.stdout}{done.stderr}"


# -- the primary ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _writers_at_rest(soak: Soak, *, every: bool = False) -> Iterator[None]:
    """Writers that are not atomic under a crash, or all, are between two statements until this ends."""
    deadline = time.monotonic() + GATE_S
    with contextlib.ExitStack() as stack:
        for writer in soak.writers:
            if every or not writer.atomic:
                if not writer.turn.acquire(timeout=max(0.0, deadline - time.monotonic())):
                    raise NotPossible
                stack.callback(writer.turn.release)
        yield


@contextlib.contextmanager
def _reachable() -> Iterator[None]:
    """The primary, which another fault may be killing, answers."""
    try:
        yield
    except (pymysql.err.OperationalError, pymysql.err.InternalError) as error:
        raise NotPossible from error


def kill_primary(soak: Soak, chance: random.Random) -> None:
    """Often with the link stalled just before, so that commits hang unacknowledged when it dies."""
    with _writers_at_rest(soak):
        if chance.random() < 0.5:
            soak.pair.proxy.stall()
            time.sleep(chance.uniform(0, 0.3))
        try:
            soak.pair.crash(chance.uniform(0, 1))
        finally:
            soak.pair.proxy.resume()


def restart_primary(soak: Soak, chance: random.Random) -> None:
    with _writers_at_rest(soak):
        soak.pair.restart(chance.uniform(0, 1))


def freeze_primary(soak: Soak, chance: random.Random) -> None:
    server = soak.pair.primary
    server.signal(signal.SIGSTOP)
    try:
        time.sleep(chance.uniform(*LATE_OR_NEVER_S))
    finally:
        server.signal(signal.SIGCONT)


def switch_over(soak: Soak, chance: random.Random) -> None:
    """Planned, writers idle."""
    with _writers_at_rest(soak, every=True):
        soak.pair.take_over(crash=False)


def fail_over(soak: Soak, chance: random.Random) -> None:
    """The primary crashes under load; its binlogs are salvaged, then the other server takes over."""
    with _writers_at_rest(soak):
        soak.pair.take_over(crash=True)


def toggle_semi_sync(soak: Soak, chance: random.Random) -> None:
    soak.pair.semi_sync(on=False)
    time.sleep(chance.uniform(0.1, 1.5))
    soak.pair.semi_sync(on=True)


def rotate_binlog(soak: Soak, chance: random.Random) -> None:
    """In 10.5 DDL that waited for its ACK while the binlog rotated never came back, whatever was acknowledged later.

    So its writers are at rest there; later versions were not seen to do that.
    """
    with contextlib.ExitStack() as stack:
        if soak.pair.primary.version == "10.5":
            stack.enter_context(_writers_at_rest(soak))
        stack.enter_context(_reachable())
        for _ in range(chance.randint(1, 3)):
            soak.pair.primary.sql("FLUSH BINARY LOGS")


def kill_dump(soak: Soak, chance: random.Random) -> None:
    """All of them, the real replica's too: it comes back by itself."""
    server, how = soak.pair.primary, chance.choice(("", "CONNECTION", "QUERY"))
    with _reachable():
        for thread in server.dump_threads():
            server.sql(f"KILL {how} {thread}")


# -- the link -------------------------------------------------------------------------------------------------------


def cut_link(soak: Soak, chance: random.Random) -> None:
    proxy = soak.pair.proxy
    dice = chance.random()
    if dice < 0.25:
        proxy.reset_all()
    elif dice < 0.5:
        proxy.close_all()
    else:
        proxy.cut_after(chance.randrange(1, 1 << chance.randint(4, 17)))
        time.sleep(chance.uniform(0.2, 1))


def stall_link(soak: Soak, chance: random.Random) -> None:
    proxy = soak.pair.proxy
    proxy.stall()
    time.sleep(chance.uniform(*LATE_OR_NEVER_S))
    proxy.resume()


def refuse_link(soak: Soak, chance: random.Random) -> None:
    with soak.pair.refusing() as proxy:
        proxy.reset_all()
        time.sleep(chance.uniform(0.5, 3))


def slow_link(soak: Soak, chance: random.Random) -> None:
    proxy = soak.pair.proxy
    proxy.rate = chance.choice((20_000, 100_000, 1_000_000))
    proxy.latency = chance.choice((0.0, 0.01, 0.1))
    time.sleep(chance.uniform(1, 4))
    proxy.rate, proxy.latency = 0, 0.0


def corrupt_link(soak: Soak, chance: random.Random) -> None:
    """A few flipped bits somewhere in the next 64 KB.

    In a packet's length they make whoever just logs in wait for the rest of it, for two minutes: the link is cut then.
    """
    proxy = soak.pair.proxy
    proxy.flip_bits([proxy.sent_to_client + chance.randrange(1 << 16) for _ in range(chance.randint(1, 3))])
    time.sleep(chance.uniform(0.5, 2))
    proxy.flip_bits([])
    proxy.reset_all()


FAULTS = (
    Fault("kill -9 of the daemon", "daemon", 5, kill_daemon),
    Fault("SIGTERM to the daemon", "daemon", 3, stop_daemon),
    Fault("SIGSTOP of the daemon", "daemon", 2, freeze_daemon),
    Fault("files removed while up", "daemon", 2, remove_files_while_up),
    Fault("files removed while down", "daemon", 2, remove_files_while_down),
    Fault("clock jump of the daemon", "clock", 2, jump_clock),
    Fault("disk full", "disk", 3, fill_disk),
    Fault("relay log purged", "purge", 2, purge_relay),
    Fault("kill -9 of the primary", "primary", 4, kill_primary),
    Fault("restart of the primary", "primary", 2, restart_primary),
    Fault("SIGSTOP of the primary", "primary", 2, freeze_primary),
    Fault("switch over", "primary", 2, switch_over),
    Fault("fail over", "primary", 2, fail_over),
    Fault("semi-sync off and on", "primary", 2, toggle_semi_sync),
    Fault("binlog rotated", "rotate", 2, rotate_binlog),
    Fault("dump thread killed", "dump", 2, kill_dump),
    Fault("link cut", "link", 5, cut_link),
    Fault("link stalled", "link", 3, stall_link),
    Fault("connections refused", "link", 2, refuse_link),
    Fault("slow link", "link", 2, slow_link),
    Fault("bits flipped", "link", 3, corrupt_link),
    Fault("hostile first host", "daemon", 2, hostile_first_host),
    Fault("out-of-order GTIDs", "primary", 4, go_back),
    Fault("out-of-order GTIDs in strict mode", "primary daemon", 2, stop_before_it),
)
