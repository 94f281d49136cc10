"""The demo from start to verdict: server, Spark, live changes, proof. Exit code 0: equal; 1: not equal or failed."""

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

from demo.proof import prove
from demo.shop import BIG_IMAGE_BYTES, Shop
from demo.stream import Stream, session
from demo.view import REFRESH_S, Screen, thousands
from tests.fixtures.installation import installations
from tests.fixtures.mariadb import MariaDb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from demo.proof import Verdict

LOG = Path(__file__).resolve().parents[1] / ".cache" / "demo.log"
PATIENCE_S = 180.0
"""How long nothing at all may arrive while something is on its way. Two idle cores need a second or two, busy ones a
minute; the first rows also wait for Spark's Python workers."""
SERVER_OPTIONS = (
    "--binlog-row-metadata=FULL",
    "--max-allowed-packet=64M",
    "--innodb-log-file-size=256M",  # a row must fit a tenth of it
    "--innodb-buffer-pool-size=128M",
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long the shop writes (default 20)")
    parser.add_argument("--rate", type=int, default=600, help="transactions a second (default 600)")
    parser.add_argument("--server", choices=list(installations()), help="MariaDB version (default: the newest)")
    return parser.parse_args()


@contextlib.contextmanager
def step(console: Console, doing: str) -> Iterator[list[str]]:
    """Say what is being done, and then what was done (the list's last text) and how long it took."""
    begin, done = time.monotonic(), [doing]
    with console.status(f"{doing} …"):
        yield done
    console.print(f"[green]✓[/] {done[-1]} [dim]({time.monotonic() - begin:.1f} s)[/]", highlight=False)


def run(console: Console, options: argparse.Namespace) -> bool:
    version = options.server or list(installations())[-1]
    with contextlib.ExitStack() as stack:
        with step(console, f"starting MariaDB {version}") as done:
            server = stack.enter_context(MariaDb(version, *SERVER_OPTIONS))
            release = str(server.value("SELECT version()")).split("-")[0]
            done.append(f"MariaDB {release} on {server.host}:{server.port}, a private one")
        shop = Shop(server, orders_per_second=options.rate)
        position = shop.create()
        with step(console, "starting Spark") as done:
            spark = session(LOG)
            stack.callback(spark.stop)
            done.append(f"Spark {spark.version}, local, two cores")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="demo-")))
        stream = Stream(spark, server, position, folder, shop.written)
        stack.callback(stream.stop)
        stack.callback(shop.stop)
        with step(console, "starting two queries") as done:
            stream.start()
            done.append(f'spark.readStream.format("mariadb-binlog"), two queries, from GTID {position}')
        with step(console, "waiting for the first rows") as done:
            shop.open()
            settle(stream, shop, lambda: None)
            done.append(f"the first {stream.arrived.rows} rows arrived")
        watch(console, shop, stream, options.seconds, f"MariaDB {release} → Spark {spark.version}")
        with step(console, "comparing the tables") as done:
            verdict = prove(server, stream.arrived.rebuilt, written=shop.written.rows)
            done.append("every row of the server read, and compared with the stream's")
        report(console, shop, stream, verdict)
    return verdict.equal


def watch(console: Console, shop: Shop, stream: Stream, seconds: float, title: str) -> None:
    """Let the shop write, show what arrives, and return when both queries are at the server's last GTID."""
    with Screen(console, shop.written, stream.arrived, title=title, seconds=seconds) as screen:
        shop.start(seconds)
        while not shop.done():
            stream.check()
            screen.update()
            time.sleep(REFRESH_S)
        settle(stream, shop, screen.update)


def settle(stream: Stream, shop: Shop, meanwhile: Callable[[], None]) -> None:
    """Return when both queries have finished a batch that ends at the server's GTID position."""
    end = sorted(shop.server.gtid_binlog_pos().split(","))
    before, since = "", time.monotonic()
    while any(sorted(position.split(",")) != end for position in stream.positions()):
        stream.check()
        meanwhile()
        now = f"{' and '.join(stream.positions())}, {stream.arrived.rows} rows"
        if now != before:
            before, since = now, time.monotonic()
        elif time.monotonic() - since > PATIENCE_S:
            raise TimeoutError(f"nothing arrives: the server is at {','.join(end)}, the queries still at {now}")
        time.sleep(REFRESH_S)


def report(console: Console, shop: Shop, stream: Stream, verdict: Verdict) -> None:
    written, arrived = shop.written, stream.arrived
    delays = arrived.delays or [0.0]
    console.print(
        f"[green]✓[/] {thousands(written.rows)} row changes in {thousands(written.transactions)} transactions arrived "
        f"in {arrived.batches} batches; from commit to your code {statistics.median(delays):.2f} s in the median, "
        f"{max(delays):.2f} s at most",
        highlight=False,
    )
    console.print(
        f"[green]✓[/] among them one image of {BIG_IMAGE_BYTES / 1e6:.1f} MB, and an ALTER TABLE half-way",
        highlight=False,
    )
    console.print(f"\nThe tables rebuilt from the stream against the server's, both at GTID {verdict.position}:\n")
    table = Table(box=None, header_style="bold")
    table.add_column("table")
    for heading in ("changes arrived", "rows rebuilt", "rows on the server", "rows that differ"):
        table.add_column(heading, justify="right")
    for row in verdict.tables:
        style = "red" if row.differing else ""
        cells = (row.changes, row.rebuilt_rows, row.server_rows, row.differing)
        table.add_row(row.table, *map(thousands, cells), style=style)
    console.print(table)
    console.print()
    for reason in (*verdict.faults, *(f"{t.table}: {example}" for t in verdict.tables for example in t.examples)):
        console.print(f"[red]✗[/] {reason}", highlight=False)
    if verdict.written != verdict.arrived:
        console.print(
            f"[red]✗[/] {verdict.written} row changes were written, {verdict.arrived} arrived", highlight=False
        )
    if verdict.equal:
        console.print("[bold green]EQUAL[/]: every row of every table, and every change arrived exactly once.")
    else:
        console.print("[bold red]NOT EQUAL[/]: see above.")


def main() -> int:
    options = arguments()
    # Without a terminal the width is unknown: a line a file holds should not be broken at 80 characters.
    console = Console() if sys.stdout.isatty() else Console(width=140)
    LOG.parent.mkdir(exist_ok=True)
    LOG.write_bytes(b"")
    # What the libraries log belongs beside Spark's own log, not between the lines of the screen.
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
        console.print(f"The whole story is in {LOG.relative_to(Path.cwd())}.", highlight=False)
        return 1
    console.print(f"[dim]{time.monotonic() - begin:.0f} s in all. Spark's log: {LOG.relative_to(Path.cwd())}[/]")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
