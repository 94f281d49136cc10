"""The Python clients of bench_pipeline, each as a program: `python -m tools.bench.replica.pipeline_clients NAME JSON`.

All read the same part of a running server's binlog over the network and print one JSON object: `passes`, with the row
changes, CPU and wall seconds of each, and `start_cpu`, what the process used beside them. Where `seconds` are given,
one pass ends after them, and its rows are a prefix.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.bench.kit.workloads import CACHE

if TYPE_CHECKING:
    from collections.abc import Callable

RANGE_BYTES = 8 << 20  # what a query hands to a task
MAGIC_BYTES = 4


def ours(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Receive into a relay log, fsync, and decode it to RecordBatches as tasks do, one after the other."""
    from replica.protocol.gtid import GtidPosition  # noqa: PLC0415  (the others do not load what is ours)
    from tools.bench.replica.receiving import receive_relay  # noqa: PLC0415

    config = _config(asked)
    positions = GtidPosition.parse(asked["from"]), GtidPosition.parse(asked["until"])

    def once() -> dict[str, Any]:
        CACHE.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="pipeline-", dir=CACHE))
        os.sync()  # no run pays for the pages of the one before
        try:
            received = receive_relay(config, *positions, folder)
            wall, cpu = time.perf_counter(), time.process_time()
            rows = _decoded(folder, asked["file"])
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        finally:
            shutil.rmtree(folder)
        return {
            "rows": rows,
            "cpu": received.cpu_seconds + cpu,
            "wall": received.seconds + wall,
            "received_bytes": received.received_bytes,
            "receive_cpu": received.cpu_seconds,
            "decode_cpu": cpu,
        }

    return [once() for _ in range(asked["passes"])]


def _decoded(folder: Path, file: str) -> int:
    """The row changes of a relay log, with all columns that a query in the envelope shape has."""
    from replica.protocol.rows.table_map import parse_table_map  # noqa: PLC0415
    from replica.relay_log.log import RelayLog  # noqa: PLC0415
    from replica.rows.scan.scan import scan  # noqa: PLC0415
    from streaming_source.rows.partition import ChangePartition, MappedRange  # noqa: PLC0415
    from streaming_source.rows.reader import read_changes  # noqa: PLC0415
    from tools.bench.decode.bench_task import read_plan  # noqa: PLC0415

    log = RelayLog(folder)
    head = log.head()
    if head is None:
        raise SystemExit(f"{folder} has no relay log")
    parts = [
        MappedRange(*part, file)  # the primary's file is a column too
        for part in log.ranges(log.oldest(), head.location, RANGE_BYTES)
    ]
    plan, _ = read_plan(parse_table_map(scan(parts[0].data(), checksum=True).table_map_body(0)), "envelope")
    return sum(batch.num_rows for part in parts for batch in read_changes(ChangePartition((part,)), plan))


def receive_only(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Receive as many bytes as ours did, and drop them."""
    from replica.protocol.gtid import GtidPosition  # noqa: PLC0415
    from tools.bench.replica.receiving import receive_bare  # noqa: PLC0415

    start = GtidPosition.parse(asked["from"])
    runs = [receive_bare(_config(asked), start, asked["received_bytes"]) for _ in range(asked["passes"])]
    return [{"rows": asked["rows"], "cpu": run.cpu_seconds, "wall": run.seconds} for run in runs]


def _config(asked: dict[str, Any]) -> Any:
    from replica.options.config import ReplicaConfig  # noqa: PLC0415

    return ReplicaConfig.parse({name: asked[name] for name in ("host", "port", "user", "password")})


def python_mysql_replication(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """The usual Python client: a dict for each row image."""
    from pymysqlreplication import BinLogStreamReader  # noqa: PLC0415
    from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent  # noqa: PLC0415

    stream = BinLogStreamReader(
        connection_settings={name: asked[name] for name in ("host", "port", "user", "password")},
        server_id=990_003,
        log_file=asked["file"],
        log_pos=MAGIC_BYTES,
        resume_stream=True,
        blocking=False,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        enable_logging=False,
    )
    rows = 0
    wall, cpu = time.perf_counter(), time.process_time()
    for event in stream:
        rows += len(event.rows)
        if time.perf_counter() - wall > asked["seconds"]:
            break
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    stream.close()
    return [{"rows": rows, "cpu": cpu, "wall": wall}]


def asyncmy(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """The asyncio client whose protocol is compiled; a dict for each row image."""
    sys.path.insert(0, asked["packages"])
    from asyncmy import Connection  # noqa: PLC0415  (it is in no environment)
    from asyncmy.replication import BinLogStream  # noqa: PLC0415
    from asyncmy.replication.row_events import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent  # noqa: PLC0415

    async def read() -> dict[str, Any]:
        login = {name: asked[name] for name in ("host", "port", "user", "password")}
        stream = BinLogStream(
            Connection(**login),
            Connection(**login),
            server_id=990_004,
            master_log_file=asked["file"],
            master_log_position=MAGIC_BYTES,
            resume_stream=True,
            blocking=True,  # its end of a stream is an endless loop: the last transaction's position is
            only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        )
        await stream._ctl_connection.connect()
        rows = 0
        wall, cpu = time.perf_counter(), time.process_time()
        async for event in stream:
            rows += len(event.rows)
            if rows >= asked["rows"] or time.perf_counter() - wall > asked["seconds"]:
                break
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        await stream.close()
        await stream._ctl_connection.ensure_closed()
        return {"rows": rows, "cpu": cpu, "wall": wall}

    return [asyncio.run(read())]


CLIENTS: dict[str, Callable[[dict[str, Any]], list[dict[str, Any]]]] = {
    "ours": ours,
    "receive only": receive_only,
    "python-mysql-replication": python_mysql_replication,
    "asyncmy": asyncmy,
}


def main(name: str, asked_json: str) -> None:
    passes = CLIENTS[name](json.loads(asked_json))
    print(json.dumps({"start_cpu": time.process_time() - sum(one["cpu"] for one in passes), "passes": passes}))


if __name__ == "__main__":
    main(*sys.argv[1:])
