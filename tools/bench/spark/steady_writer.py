"""Writer of transactions of one row at a steady rate: `python -m tools.bench.spark.steady_writer JSON`.

In: connection, table, first id, rate, seconds, connections. Out: the last line is a JSON list, for each row the moment
its COMMIT came back (seconds since 1970). Rows are due at fixed moments, shared by several connections in turn; one
that is late is written at once, so that a slow moment does not lower the rate.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import pymysql


def write(
    connection: dict[str, Any], table: str, first: int, rate: float, seconds: float, connections: int
) -> list[float]:
    """The moments in the order of the ids, which count up from `first`."""
    committed = [0.0] * int(rate * seconds)
    begin = time.time() + 0.5

    def run(turn: int) -> None:
        with pymysql.connect(**connection, autocommit=True) as server, server.cursor() as cursor:
            for row in range(turn, len(committed), connections):
                time.sleep(max(0.0, begin + row / rate - time.time()))
                cursor.execute(f"INSERT INTO {table} VALUES ({first + row}, 'a row of its own transaction')")
                committed[row] = time.time()

    threads = [threading.Thread(target=run, args=(turn,)) for turn in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return committed


if __name__ == "__main__":
    print(json.dumps(write(**json.loads(sys.argv[1]))))
