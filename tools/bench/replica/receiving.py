"""Receiving a part of a running server's binlog in this process: into a relay log, and into nothing.

relay  our session: deframe, CRC32 of every event, group ends, index, relay files, and all of it fsynced at the end
bare   the same login and socket, bytes counted and dropped: what any client could reach at best
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from replica.handshake.login.login import log_in
from replica.handshake.registration import Registration, register
from replica.live.session import Agreed, Session
from replica.relay_writer.receiver import RECEIVE_BYTES
from replica.relay_writer.writer import RelayWriter

if TYPE_CHECKING:
    from pathlib import Path

    from replica.handshake.login.login import Detached
    from replica.options.config import ReplicaConfig
    from replica.protocol.gtid import GtidPosition


@dataclass
class Run:
    seconds: float
    cpu_seconds: float
    received_bytes: int


async def _dump(config: ReplicaConfig, start: GtidPosition) -> Detached:
    login = await log_in(config, config.endpoints[0])
    await login.run(register(Registration(server_id=990_001, position=start, annotate=False)))
    return login.detach()


def _clock() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def receive_relay(config: ReplicaConfig, start: GtidPosition, end: GtidPosition, folder: Path) -> Run:
    async def pump(relay: RelayWriter) -> int:
        detached = await _dump(config, start)
        task: asyncio.Task[None]

        def progress() -> None:
            if relay.position == end:
                task.cancel()

        session = Session(relay, Agreed(semi_sync=False, heartbeat_s=10), on_progress=progress)
        task = asyncio.ensure_future(session.run(detached.transport, detached.leftover))
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()
        return session.progress.received_bytes

    with RelayWriter.open(folder, start=start) as relay:
        wall, cpu = _clock()
        received = asyncio.run(pump(relay))
        relay.sync()
        wall, cpu = (now - then for now, then in zip(_clock(), (wall, cpu), strict=True))
        if relay.position != end:
            raise SystemExit(f"the relay log ends at {relay.position}, not at {end}")
    return Run(wall, cpu, received)


class _Bare(asyncio.BufferedProtocol):
    def __init__(self, wanted: int, done: asyncio.Future[None]) -> None:
        self.buffer = memoryview(bytearray(RECEIVE_BYTES))
        self.wanted, self.done = wanted, done

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.wanted -= nbytes
        if self.wanted <= 0 and not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("the server closed the connection"))


def receive_bare(config: ReplicaConfig, start: GtidPosition, wanted: int) -> Run:
    async def pump() -> None:
        detached = await _dump(config, start)
        done = asyncio.get_running_loop().create_future()
        detached.transport.set_protocol(_Bare(wanted - len(detached.leftover), done))
        detached.transport.resume_reading()
        await done
        detached.transport.abort()

    wall, cpu = _clock()
    asyncio.run(pump())
    wall, cpu = (now - then for now, then in zip(_clock(), (wall, cpu), strict=True))
    return Run(wall, cpu, wanted)
