"""Main program of the demo: fill the tables, start the mirror, write changes, and audit all copies.

The exit code is 0 if the audit finds every table equal to its copy, 130 after Ctrl-C, and 1 otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from demo.lake import Lake, session
from demo.shop import DATABASE, Shop
from demo.view import REFRESH_S, LoadBar, Screen, thousands
from tests.fixtures.installation import installations
from tests.fixtures.mariadb import MariaDb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streaming_source.auditing.result import AuditResult

LOG = Path(__file__).resolve().parents[1] / ".cache" / "demo.log"
PATIENCE_S = 900.0
"""Seconds without any progress after which the demo fails. On a heavily loaded machine, progress may take several
minutes. A query that has ended is noticed at once.
"""
SERVER_OPTIONS = (
    "--binlog-row-metadata=FULL",
    "--max-allowed-packet=64M",
    "--innodb-log-file-size=256M",  # InnoDB's limit for a row is a tenth of it
    "--innodb-buffer-pool-size=128M",
)


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="how long the shop writes (default 8)")
    parser.add_argument("--rate", type=int, default=200, help="transactions a second (default 200)")
    parser.add_argument("--server", choices=list(installations()), help="MariaDB version (default: the newest)")
    return parser.parse_args()


@contextlib.contextmanager
def step(console: Console, doing: str) -> Iterator[list[str]]:
    """Show the task `doing` while the block runs, then the last text of the yielded list and the duration."""
    begin, done = time.monotonic(), [doing]
    with console.status(f"{doing} …"):
        yield done
    console.print(f"[green]✓[/] {done[-1]} [dim]({time.monotonic() - begin:.1f} s)[/]", highlight=False)


def run(console: Console, options: argparse.Namespace) -> bool:
    version = options.server or list(installations())[-1]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="demo-")))
        with step(console, f"starting MariaDB {version}") as done:
            server = stack.enter_context(MariaDb(version, *SERVER_OPTIONS))
            release = str(server.value("SELECT version()")).split("-")[0]
            done.append(f"MariaDB {release} on {server.host}:{server.port}, a private one")
        with step(console, "filling the shop's tables") as done:
            shop = Shop(server, transactions_per_second=options.rate)
            stack.callback(shop.stop)
            rows = shop.fill()
            done.append(f"a shop with {len(shop.names)} tables and {thousands(rows)} rows: {', '.join(shop.names)}")
        with step(console, "starting Spark") as done:
            spark = session(LOG, folder)
            stack.callback(spark.stop)
            done.append(f"Spark {spark.version}, local, two cores, with Delta tables")
        say = lambda text: console.print(f"[yellow]·[/] {text}", highlight=False)  # noqa: E731
        lake = Lake(spark, server, folder, shop.written, say)
        stack.callback(lake.stop)
        with step(console, "starting the mirror") as done:
            lake.start()
            done.append(f'mirror(spark, tables="{DATABASE}.*", into="lake.{{table}}", …)')
        load(console, lake, rows)
        watch(console, shop, lake, options.seconds, f"MariaDB {release} → Delta tables on Spark {spark.version}")
        with step(console, "comparing every row of every table") as done:
            result = lake.audited()
            done.append("the audit: both sides read, every row compared, the mirror still running")
        report(console, shop, lake, result)
        if result.equal:
            doubt(console, lake, result)
    return result.equal


def load(console: Console, lake: Lake, rows: int) -> None:
    """Wait until the initial rows are in the lake."""
    begin = time.monotonic()
    with LoadBar(console, rows) as bar:
        patient(lake, lambda: bar.show(lake.loaded), until=lambda: lake.whole)
    seconds = time.monotonic() - begin
    console.print(
        f"[green]✓[/] all {thousands(lake.loaded)} rows are in the lake, {thousands(lake.loaded / seconds)} rows/s; "
        f"{len(lake.tables)} Delta tables made from the server's catalog [dim]({seconds:.1f} s)[/]",
        highlight=False,
    )


def watch(console: Console, shop: Shop, lake: Lake, seconds: float, title: str) -> None:
    """Let the shop write, show what arrives, and return when all tables are at the server's last GTID."""
    with Screen(console, shop.written, lake, title=title, seconds=seconds) as screen:
        shop.start(seconds)
        patient(lake, screen.update, until=shop.done)
        end = sorted(shop.server.gtid_binlog_pos().split(","))
        patient(lake, screen.update, until=lambda: lake.whole and sorted(lake.position.split(",")) == end)
        screen.update()


def patient(lake: Lake, meanwhile: Callable[[], None], *, until: Callable[[], bool]) -> None:
    """Poll the mirror, and call `meanwhile` after each poll, until `until` returns True.

    Raises:
        TimeoutError: no batch arrived for PATIENCE_S.
    """
    since = time.monotonic()
    while not until():
        if lake.look():
            since = time.monotonic()
        if time.monotonic() - since > PATIENCE_S:
            raise TimeoutError(f"nothing arrives: the mirror is still at {lake.position or 'its start'}")
        meanwhile()
        time.sleep(REFRESH_S)


def report(console: Console, shop: Shop, lake: Lake, result: AuditResult) -> None:
    """Print the counts and delays, and the result of the audit for each table."""
    written, delays = shop.written, lake.delays or [0.0]
    console.print(
        f"[green]✓[/] {thousands(written.rows)} row changes in {thousands(written.transactions)} transactions, in "
        f"{lake.batches} micro-batches; from commit to a table that readers see {statistics.median(delays):.1f} s in "
        f"the median, {max(delays):.1f} s at most",
        highlight=False,
    )
    console.print(f"\nThe Delta tables against the server's, both at GTID position {result.position}:\n")
    table = Table(box=None, header_style="bold")
    for heading in ("table", "rows on the server", "rows in the lake", "rows that differ", "hash of all rows"):
        table.add_column(heading, justify="right" if heading.startswith("rows") else "left")
    for one in result.tables:
        cells = (one.source_rows, one.target_rows, sum(one.counts.values()))
        table.add_row(one.table, *map(thousands, cells), one.source_hash, style="" if one.equal else "red")
    console.print(table)
    console.print()
    if result.equal:
        console.print("[bold green]EQUAL[/]: every value of every row of every table, at one position.")
    else:
        console.print(f"[bold red]NOT EQUAL[/]\n{result}", highlight=False)


def doubt(console: Console, lake: Lake, result: AuditResult) -> None:
    """Show that the audit detects a difference of one cent.

    Raises:
        AssertionError: the audit does not detect it.
    """
    with step(console, "adding one cent to one row of a copy") as done:
        seen = lake.with_one_cent(result.position)
        found = [(each.kind, dict(each.key)) for table in seen.tables for each in table.differences]
        if found != [("different", {"id": "4711"})]:
            raise AssertionError(f"the audit does not see one cent: {found}")
        done.append("and would it see one cent? A copy of customers with one cent more in one row: NOT EQUAL, id=4711")


def main() -> int:
    options = arguments()
    # Without a terminal the width is unknown, and lines of a file should not be wrapped at 80 characters.
    console = Console() if sys.stdout.isatty() else Console(width=140)
    LOG.parent.mkdir(exist_ok=True)
    LOG.write_bytes(b"")
    # Library logs go to Spark's log file, so that they do not disturb the screen.
    logging.basicConfig(filename=LOG, level=logging.WARNING)
    begin = time.monotonic()
    try:
        equal = run(console, options)
    except KeyboardInterrupt:
        console.print("\nstopped")
        return 130
    except Exception as error:
        logging.getLogger("demo").exception("the demo failed")
        first = str(error).strip().splitlines()
        console.print(f"[red]✗[/] {type(error).__name__}: {first[0] if first else ''}", highlight=False)
        console.print(f"The full log is in {LOG.relative_to(Path.cwd())}.", highlight=False)
        return 1
    console.print(f"[dim]{time.monotonic() - begin:.0f} s in all. Spark's log: {LOG.relative_to(Path.cwd())}[/]")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
