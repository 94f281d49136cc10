"""One way to get a whole table out of a server, in a process of its own, so that its CPU seconds are its own.

    python -m tools.bench.snapshot.table_peers WAY '{"port", "user", "password", "workload", "rows", "connections"}'

receive     the bytes of the same SELECT over the binary protocol, and nothing else: every way has to do that much
reader      our own, without Spark: snapshot transactions, rows as row images, decoded to Arrow batches
engine      the reader as a query has it: beside a replica, rows moved to a position, in files with an fsync a batch,
            which are decoded to Arrow batches as tasks do; `forever`: over and over, for what writers notice of it
connectorx  ConnectorX into Arrow, over the binary protocol, from the folder that peer_programs.py installs it into

Each splits the table by its key into as many parts as connections, and prints one JSON object: rows, wall and CPU
seconds of the reading alone, and the peak of its memory.
"""

from __future__ import annotations

import itertools
import json
import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pymysql

from replica.options.config import ReplicaConfig
from replica.snapshot.check.catalog import describe_table
from replica.snapshot.connection.connection import TableConnection
from replica.snapshot.pace import CHUNK_ROWS
from replica.snapshot.rows.result_rows import ResultRows
from replica.snapshot.rows.table_map import select_list
from replica.snapshot.spool.events import begin_events, end_event, end_statement, rows_events
from replica.snapshot.spool.spool import LastTransaction
from tools.bench.kit.process_times import peak_bytes
from tools.bench.kit.workloads import DATABASE
from tools.bench.snapshot.table_engine import WholeTable, flat_decoder
from tools.bench.snapshot.table_workloads import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.snapshot.rows.row_block import RowBlock

BUFFER_BYTES = 4 << 20
WARM_ROWS = 1000
PREPARE, EXECUTE = 0x16, 0x17
END_BYTES = 9
"""An EOF packet: its header, FE, warnings, status."""


def parts(rows: int, connections: int) -> list[tuple[int, int]]:
    """Ranges of ids, both ends included."""
    borders = [rows * n // connections for n in range(connections + 1)]
    return [(low + 1, high) for low, high in itertools.pairwise(borders)]


def _command(connection: pymysql.Connection[Any], payload: bytes) -> None:
    connection._sock.sendall(len(payload).to_bytes(3, "little") + b"\0" + payload)


def _receive(connection: pymysql.Connection[Any], sql: str, columns: int, rows: int) -> int:
    """Return the bytes of the result. Its last packet is told by its number, without a look at the ones before."""
    buffer = bytearray(BUFFER_BYTES)
    view = memoryview(buffer)
    sock = connection._sock
    _command(connection, bytes([PREPARE]) + sql.encode())
    answer = sock.recv(BUFFER_BYTES)  # in one piece on loopback, and this small
    if answer[4] != 0:
        raise SystemExit(f"the server answered {answer!r}")
    _command(connection, bytes([EXECUTE]) + answer[5:9] + b"\0" + (1).to_bytes(4, "little"))
    # The number of columns, each of them, EOF, the rows, EOF.
    last = b"\x05\0\0" + bytes([(columns + rows + 3) % 256]) + b"\xfe"
    received, tail = 0, b""
    while not (tail.startswith(last) and received > rows):
        got = sock.recv_into(view)
        if not got:
            raise SystemExit("the server closed the connection")
        received += got
        tail = (tail + bytes(view[max(0, got - END_BYTES) : got]))[-END_BYTES:]
    return received


def receive(settings: dict[str, Any]) -> dict[str, Any]:
    """Read all parts at once, each in a thread: the system call lets the others go on."""
    workload = TABLES[settings["workload"]]
    jobs = [(_connected(settings), low, high) for low, high in parts(settings["rows"], settings["connections"])]

    def read(part: int) -> int:
        connection, low, high = jobs[part]
        sql = f"{workload.select()} WHERE id BETWEEN {low} AND {high}"
        return _receive(connection, sql, len(workload.columns), high - low + 1)

    return measured(lambda: _in_threads(read, len(jobs)), settings["rows"])


def _in_threads(work: Callable[[int], int], count: int) -> int:
    with ThreadPoolExecutor(count) as pool:
        return sum(pool.map(work, range(count)))


def _connected(settings: dict[str, Any]) -> pymysql.Connection[Any]:
    return pymysql.connect(
        host="127.0.0.1",
        port=settings["port"],
        user=settings["user"],
        password=settings["password"],
        ssl_disabled=True,
        init_command="SET time_zone = '+00:00', sql_mode = '', character_set_results = NULL",
    )


def reader(settings: dict[str, Any]) -> dict[str, Any]:
    """Read all parts at once, each in a thread of its own, chunk by chunk, as the source reads them."""
    workload = TABLES[settings["workload"]]
    config = ReplicaConfig.parse(
        {"host": "127.0.0.1"} | {name: settings[name] for name in ("port", "user", "password")}
    )
    jobs = [(TableConnection.open(config), low, high) for low, high in parts(settings["rows"], settings["connections"])]

    def read(part: int, most: int = settings["rows"]) -> int:
        connection, low, high = jobs[part]
        high = min(high, low + most - 1)
        table = describe_table(connection, (DATABASE, workload.name))
        if table is None:
            raise SystemExit(f"there is no table {workload.name}")
        decoder = flat_decoder(table.schema)
        names, found = select_list(table.schema), 0
        for first in range(low, high + 1, CHUNK_ROWS):
            last = min(high, first + CHUNK_ROWS - 1)
            connection.begin_snapshot()
            stream = connection.select(
                f"SELECT {names} FROM {DATABASE}.{workload.name} FORCE INDEX (PRIMARY) "
                f"WHERE id BETWEEN {first} AND {last} ORDER BY id LIMIT {CHUNK_ROWS}"
            )
            rows = ResultRows(table.schema, table.key, stream.columns, expected=CHUNK_ROWS)
            for stretch in stream.stretches():
                rows.add(stretch)
            connection.end_snapshot()
            found += sum(batch.rows for batch in decoder.decode(_transaction(rows.block()), checksum=False))
        return found

    def read_all() -> int:
        found = _in_threads(read, len(jobs))
        if found != settings["rows"]:
            raise SystemExit(f"{found} rows came of {settings['rows']}")
        return found

    read(0, WARM_ROWS)  # kernels are loaded where they are first called
    return measured(read_all, settings["rows"])


def engine(settings: dict[str, Any]) -> dict[str, Any]:
    """Read as a query does: once to warm up, and once more; with `forever` until someone ends the process."""
    config = ReplicaConfig.parse(
        {"host": "127.0.0.1", "start": "latest"} | {name: settings[name] for name in ("port", "user", "password")}
    )
    reading = WholeTable(config, (DATABASE, TABLES[settings["workload"]].name), settings["connections"])

    def read(drain: Callable[[], int]) -> dict[str, Any]:
        done = measured(drain, settings["rows"])
        if done["result"] != settings["rows"]:
            raise SystemExit(f"{done['result']} rows came of {settings['rows']}")
        return done

    reading.once(read)
    while settings.get("forever"):
        reading.once(read)
    return reading.once(read)


def _transaction(block: RowBlock) -> bytes:
    """The bytes that a task reads: the rows as the events of a transaction."""
    transaction = LastTransaction()
    pieces: list[bytes | memoryview] = [begin_events(transaction, [block.table_map])]
    for event in rows_events(block, 1, transaction):
        pieces += [event.head, event.images]
    pieces += [end_statement(1, block.width, transaction), end_event(transaction)]
    return b"".join(pieces)


def connectorx(settings: dict[str, Any]) -> dict[str, Any]:
    """Read into an Arrow table."""
    sys.path.insert(0, settings["folder"])
    import connectorx as cx  # noqa: PLC0415  (it is in no environment)

    account = f"{settings['user']}:{settings['password']}"
    url = f"mysql://{account}@127.0.0.1:{settings['port']}/bench"
    select = TABLES[settings["workload"]].select(known=True)

    def read(rows: int) -> int:
        keywords = {"partition_on": "id", "partition_num": settings["connections"], "partition_range": (1, rows)}
        table = cx.read_sql(url, f"{select} WHERE id <= {rows}", return_type="arrow", protocol="binary", **keywords)
        return int(table.num_rows)

    read(WARM_ROWS)
    return measured(lambda: read(settings["rows"]), settings["rows"])


def measured(work: Callable[[], int], rows: int) -> dict[str, Any]:
    """Run it once; what it took."""
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    found = work()
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"rows": rows, "result": found, "wall": wall, "cpu": cpu, "peak_bytes": peak_bytes()}


PEERS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "receive": receive,
    "reader": reader,
    "engine": engine,
    "connectorx": connectorx,
}


def main(name: str, settings_json: str) -> None:
    print(json.dumps(PEERS[name](json.loads(settings_json))))


if __name__ == "__main__":
    main(*sys.argv[1:])
