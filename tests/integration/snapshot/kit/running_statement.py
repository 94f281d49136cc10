"""A statement that runs all the time, as under load: there is no moment at which all commits are surely over."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from pymysql.err import MySQLError

from tests.fixtures.mariadb import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.mariadb import MariaDb


@contextlib.contextmanager
def running_statement(server: MariaDb) -> Iterator[None]:
    """Run one until the end of the `with`."""
    with server.connect() as session, session.cursor() as cursor:
        number = session.thread_id()
        runs = f"SELECT id FROM information_schema.processlist WHERE id = {number} AND command = 'Query'"

        def run() -> None:
            with contextlib.suppress(MySQLError):  # it is killed
                cursor.execute("DO SLEEP(600)")

        running = threading.Thread(target=run)
        running.start()
        try:
            wait_until(lambda: server.sql(runs), "it runs")
            yield
        finally:
            server.sql(f"KILL QUERY {number}")
            running.join(60)
