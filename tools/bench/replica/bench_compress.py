"""What a compressed connection saves and costs: `scripts/bench compress [--mb N] [--json]`.

A private server sends the same binlog file over a plain and over a compressed connection (each also inside TLS) to a
bare receive loop, in one run, the best of three passes by processor time. Counted are the bytes on the wire before
TLS, our processor time and the server's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from typing import TYPE_CHECKING, NamedTuple

from replica.handshake.login.compressed import CompressedTransport
from replica.handshake.login.login import log_in
from replica.handshake.registration import Query, Send
from replica.protocol.constants import DumpFlag
from replica.protocol.packets.packets import com_binlog_dump
from tests.fixtures.mariadb import MariaDb
from tests.fixtures.replicas import replica_config
from tools.bench.replica.relay_workloads import SERVER_OPTIONS, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.handshake.registration import Steps
    from replica.options.config import ReplicaConfig

WORKLOADS = ("narrow", "bulk")
WAYS: dict[str, dict[str, object]] = {
    "plain": {},
    "compress": {"compress": True},
    "tls": {"tls": "required"},
    "tls + compress": {"tls": "required", "compress": True},
}
PASSES = 3
ALL = DumpFlag.SEND_ANNOTATE_ROWS  # or the server would leave part of the file out
TIMEOUT_S = 300
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class Cost(NamedTuple):
    received_bytes: int
    wire_bytes: int
    our_cpu_s: float
    server_cpu_s: float
    wall_s: float


class Counter(asyncio.BufferedProtocol):
    """Takes at least `total` bytes and keeps none."""

    def __init__(self, total: int) -> None:
        self.count = 0
        self.complete = asyncio.Event()
        self._total = total
        self._buffer = memoryview(bytearray(2 << 20))

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.count += nbytes
        if self.count >= self._total:
            self.complete.set()


def _dump(config: ReplicaConfig, file: str) -> Steps[None]:
    yield Query("SET @master_binlog_checksum = @@global.binlog_checksum")
    yield Query("SET @mariadb_slave_capability = 4")
    yield Send(com_binlog_dump(config.server_id, flags=ALL, file=file, position=4), replies=False)


def _cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:  # noqa: PTH123  (one of a kind)
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_A_SECOND


async def receive(server: MariaDb, config: ReplicaConfig, file: str, total: int) -> Cost:
    """`total` bytes of a dump of `file`."""
    login = await log_in(config, config.endpoints[0])
    theirs, ours, began = _cpu_s(server.pid), time.process_time(), time.monotonic()
    await login.run(_dump(config, file))
    detached = login.detach()
    counter = Counter(total - len(detached.leftover))
    detached.transport.set_protocol(counter)
    detached.transport.resume_reading()
    await asyncio.wait_for(counter.complete.wait(), TIMEOUT_S)
    ours, wall = time.process_time() - ours, time.monotonic() - began
    transport = detached.transport
    wire = transport.wire_bytes if isinstance(transport, CompressedTransport) else counter.count
    transport.abort()
    return Cost(counter.count, wire, ours, _cpu_s(server.pid) - theirs, wall)


def measure(megabytes: int) -> dict[str, dict[str, Cost]]:
    """Workload -> way -> the cheapest pass."""
    found: dict[str, dict[str, Cost]] = {}
    with MariaDb(None, *SERVER_OPTIONS, tls=True) as server:
        for workload in WORKLOADS:
            file = write(server, workload, megabytes).file
            total = next(int(row[1]) for row in server.sql("SHOW BINARY LOGS") if row[0] == file)
            passes = [
                (way, asyncio.run(receive(server, replica_config(server, **options), file, total)))
                for _ in range(PASSES)
                for way, options in WAYS.items()
            ]
            found[workload] = {
                way: min((cost for name, cost in passes if name == way), key=lambda cost: cost.our_cpu_s)
                for way in WAYS
            }
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench compress", description=__doc__)
    parser.add_argument("--mb", type=int, default=100, help="size of each workload's binlog file")
    parser.add_argument("--json", action="store_true", help="one JSON object as last line")
    given = parser.parse_args(arguments)
    found = measure(given.mb)
    print(f"{'':24}{'received':>10}{'wire':>10}{'our CPU':>12}{'server CPU':>12}{'wall':>10}")
    for workload, ways in found.items():
        for way, cost in ways.items():
            gigabytes = cost.received_bytes / 1e9
            print(
                f"{workload + ', ' + way:24}{cost.received_bytes / 1e6:7.1f} MB{cost.wire_bytes / 1e6:7.1f} MB"
                f"{cost.our_cpu_s / gigabytes:7.2f} s/GB{cost.server_cpu_s / gigabytes:7.2f} s/GB{cost.wall_s:8.2f} s"
            )
    if given.json:
        print(json.dumps({name: {way: cost._asdict() for way, cost in ways.items()} for name, ways in found.items()}))
    return 0
