"""One client that commits as fast as it is let, and times each COMMIT: a process of its own, without a driver.

    python -m tools.bench.replica.commit_client PORT COUNT

Reads the account from the environment (BENCH_USER, BENCH_PASSWORD), writes one JSON list: nanoseconds per commit of one
inserted row. The packets are made beforehand and sent over the bare socket, so that what is timed is the server.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time

import pymysql

STATEMENT = "INSERT INTO bench.commits (note) VALUES ('a row of some fifty bytes, as small transactions have')"


def main(port: int, count: int) -> None:
    connection = pymysql.connect(
        host="127.0.0.1",
        port=port,
        user=os.environ["BENCH_USER"],
        password=os.environ["BENCH_PASSWORD"],
        autocommit=True,
        ssl_disabled=True,
    )
    socket = connection._sock
    payload = b"\x03" + STATEMENT.encode()
    packet = len(payload).to_bytes(3, "little") + b"\0" + payload
    buffer = bytearray(4096)
    gc.disable()
    taken = []
    for _ in range(count):
        begin = time.perf_counter_ns()
        socket.sendall(packet)
        got = socket.recv_into(buffer)
        taken.append(time.perf_counter_ns() - begin)
        if got < 7 or buffer[4] != 0:
            sys.exit(f"the server answered {bytes(buffer[:got])!r}")
    print(json.dumps(taken))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
