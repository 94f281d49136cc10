"""Readings of tables without a key, beside writers that pause: the judge counts rows.

What the relay log's changes leave of each table, from its CREATE on, each as often as it is there. Writers pause
between their bursts, so that some reading meets a moment without them.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pymysql.err import OperationalError

from replica.readers.arrow import read_relay_log
from tests.fixtures.mariadb import wait_until
from tests.integration.snapshot.kit.table_reading import TableReading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from replica.protocol.gtid import GtidPosition
    from replica.relay_log.location import RelayHead
    from replica.snapshot.frontier import Frontier
    from tests.fixtures.mariadb import MariaDb

COMMITTED = 0.8
ER_LOCK_WAIT_TIMEOUT, ER_LOCK_DEADLOCK = 1205, 1213


class Counted(TableReading):
    """A reading whose judge counts equal rows; what an image after a change leaves out is as in the one before it."""

    def judge(self, before: Frontier, after: Frontier, v: RelayHead) -> None:
        found: dict[str, Counter[Any]] = {}
        for part in self.snapshot.parts(before, after, v):
            found.setdefault(part.table[1], Counter()).update(map(shown, self.rows_of(part)))
        for name, rows in found.items():
            assert rows == self.rows_at(name, v.position), name
            self.delivered["d", name] = rows.total()

    def rows_at(self, name: str, position: GtidPosition) -> Counter[Any]:
        rows: Counter[Any] = Counter()
        for batch in read_relay_log(self.folder / "relay", f"d.{name}", until=position):
            for change in batch.to_pylist():
                before, after = change["before"], change["after"]
                if before is not None:
                    assert not change["absent_before"], "without a key all columns stand before a change"
                    rows[shown(before)] -= 1
                    assert rows[shown(before)] >= 0
                if after is not None:
                    after |= {column: before and before[column] for column in change["absent_after"] or ()}
                    rows[shown(after)] += 1
        return +rows


def shown(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.items())


@contextmanager
def bursts(
    server: MariaDb,
    change: Callable[[Any, random.Random], None],
    *,
    burst_s: float,
    pause_s: float,
    threads: int = 3,
) -> Iterator[list[int]]:
    """Write until the end of the `with`: all writers, then none, by turns; one change in five is rolled back."""
    ending, writing, commits = threading.Event(), threading.Event(), [0]

    def write(seed: int) -> None:
        rng = random.Random(seed)
        with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
            while not ending.wait(0.01):
                if writing.wait(0.1):
                    commits[0] += _committed(connection, cursor, change, rng)

    def turns() -> None:
        while not ending.is_set():
            writing.set()
            ending.wait(burst_s)
            writing.clear()
            ending.wait(pause_s)

    parts = [threading.Thread(target=turns), *(threading.Thread(target=write, args=(n,)) for n in range(threads))]
    for part in parts:
        part.start()
    try:
        wait_until(lambda: commits[0] > 10, "others write")
        yield commits
    finally:
        ending.set()
        for part in parts:
            part.join(60)


def _committed(connection: Any, cursor: Any, change: Callable[[Any, random.Random], None], rng: random.Random) -> bool:
    try:
        change(cursor, rng)
    except OperationalError as error:
        if error.args[0] not in (ER_LOCK_WAIT_TIMEOUT, ER_LOCK_DEADLOCK):
            raise
        connection.rollback()
        return False
    if rng.random() < COMMITTED:
        connection.commit()
        return True
    connection.rollback()
    return False
