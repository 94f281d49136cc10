"""Where one machine ends: a mirror of large tables, many tables, large transactions, large rows, and many changes.

    table        one table: its first load, then batches of changes of random rows and of the newest rows, then an audit
    tables       many tables of 100 rows: to `current`, a batch with changes in ten of them and in all, status, audit
    transaction  one transaction, into a table of a mirror that follows
    row          one row with a LONGBLOB, in a snapshot and then as a change, beside a table of small rows
    rate         changes at a steady rate for a while: how old what is visible is, at each tenth of the time

For each step: seconds, CPU seconds of JVM and Python processes, the largest resident size of the JVM, of one Python
process and of the server (since it began), and the most bytes of the spool, of the relay log and of the targets.
Nothing is compared with a peer, and every part can be run alone and smaller: two sizes show what grows.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import statistics
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from demo.written import covers
from streaming_source import audit, mirror_status
from streaming_source.mirroring.control.control_table import READING
from tests.fixtures.jars import delta_settings
from tests.fixtures.mariadb import MariaDb
from tools.bench.kit.process_times import peak_bytes
from tools.bench.kit.spark_runs import PLAIN_CHECKPOINTS, UNIX_SOCKETS, CpuMeter, open_session
from tools.bench.mirror.mirror_runs import DATABASE, Bench, commits, numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PARTS = "table,tables,transaction,row,rate"
COLUMNS = "id INT PRIMARY KEY, k INT NOT NULL, c VARCHAR(40) NOT NULL, amount DECIMAL(10,2), at DATETIME(3)"
FILLED = "seq, seq MOD 5000, MD5(seq), seq MOD 100000 / 100, '2026-01-01' + INTERVAL seq MOD 30000000 SECOND"
PIECE = 1_000_000
"""Rows of one INSERT of a large table."""
FILLING = 2
"""Sessions that fill a table at the same time."""
CHANGES = 10_000
ROWS_A_COMMIT = 200
WIDE_ROW_BYTES = 1_000
SAMPLE_S = 0.5
SAMPLE_PAUSES = 50
"""Pause after a search of the folders, in times of the search: a thousand tables have tens of thousands of files."""
FEW_TABLES = 10
STATES = "SELECT source_table, state, error FROM c"
RELAY_BYTES = "32g"
"""Rows of 100 million take 7 GB on disk while they are audited."""
SERVER = (
    "--binlog-row-metadata=FULL",
    "--innodb-buffer-pool-size=4G",
    "--innodb-log-file-size=2G",
    "--max-allowed-packet=1G",
    "--innodb-flush-log-at-trx-commit=0",
    "--binlog-cache-size=64M",
)


class Step(NamedTuple):
    """What one step took. Sizes are the largest seen, in bytes: of the server since it began, of folders in allocated
    blocks.
    """

    seconds: float
    cpu: float
    jvm: int
    python: int
    server: int
    spool: int
    relay: int
    targets: int


class Watch:
    """Measure one step, from its beginning to its end."""

    def __init__(self, server: MariaDb, folder: Path) -> None:
        self._server, self._folder = server, folder
        self._meter = CpuMeter()
        self._sizes: Counter[str] = Counter()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._began = 0.0
        self.step: Step

    def __enter__(self) -> Self:
        self._meter.__enter__()
        self._thread.start()
        time.sleep(SAMPLE_S)
        self._began = time.time()
        return self

    def __exit__(self, *_: object) -> None:
        end = time.time()
        time.sleep(SAMPLE_S)
        self._ended.set()
        self._thread.join()
        self._meter.__exit__()
        sizes, peak = self._sizes, self._meter.peak
        cpu = sum(self._meter.between(self._began, end))
        folders = sizes["spool"], sizes["relay"], sizes["lake"]
        self.step = Step(end - self._began, cpu, peak.jvm, peak.python, peak_bytes(self._server.pid), *folders)

    def _sample(self) -> None:
        took = 0.0
        while not self._ended.wait(max(SAMPLE_S, took * SAMPLE_PAUSES)):
            begun = time.monotonic()
            now: Counter[str] = Counter()
            for path in self._folder.rglob("*"):
                try:
                    size = path.stat().st_blocks * 512
                except FileNotFoundError:
                    continue
                inner = path.relative_to(self._folder).parts
                kind = "spool" if any(part.endswith(".tables") for part in inner) else inner[0]
                now[kind] += size
            self._sizes |= now
            took = time.monotonic() - begun


class Large:
    """Runs of the parts, each with a folder of its own."""

    def __init__(self, bench: Bench, server: MariaDb) -> None:
        self._bench, self._server = bench, server
        self._folder = bench.folder()
        self._server.sql(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")

    def begin(self) -> None:
        """Begin a part: without tables, with a new folder."""
        self._bench.remove_all()
        self._folder = self._bench.folder()
        self._folder.mkdir(parents=True)
        self._server.sql(f"DROP DATABASE {DATABASE}", f"CREATE DATABASE {DATABASE}")
        self._server.reset_master()

    def step(self, name: str, action: Callable[[], object], *, rows: int = 0) -> dict[str, float]:
        """Run one step and print what it took."""
        with Watch(self._server, self._folder) as watch:
            action()
        found = watch.step
        rate = f", {rows / found.seconds:,.0f} rows/s, {1e6 * found.cpu / rows:.2f} CPU us a row" if rows else ""
        sizes = ", ".join(
            f"{kind} {getattr(found, kind) / 1e6:,.0f}" for kind in Step._fields[2:] if getattr(found, kind)
        )
        print(f"{name:34} {found.seconds:8.1f} s {found.cpu:8.1f} CPU s{rate}; MB: {sizes}", flush=True)
        return found._asdict()

    def fill(self, rows: int) -> None:
        """Make one table of so many rows, which are not in the binlog."""
        self._server.sql(f"CREATE TABLE {DATABASE}.t ({COLUMNS})")
        inserts = [
            f"INSERT INTO t SELECT {FILLED} FROM seq_{first}_to_{min(first + PIECE - 1, rows)}"
            for first in range(1, rows + 1, PIECE)
        ]
        with ThreadPoolExecutor(FILLING) as pool:
            list(pool.map(self._unlogged, inserts))

    def _unlogged(self, *statements: str) -> None:
        self._server.sql(f"USE {DATABASE}", "SET sql_log_bin = 0, unique_checks = 0", *statements)

    def catch_up(self, **more: Any) -> None:
        """Mirror what there is, by a query that ends by itself."""
        self._bench.mirror(self._folder, **more).awaitTermination()

    def states(self) -> Counter[str]:
        """How many tables are in which state."""
        rows = QueryBuilder().register("c", DeltaTable(self._control)).execute(STATES).read_all()
        found: Counter[str] = Counter()
        for table, state, error in zip(*pa.table(rows).to_pydict().values(), strict=True):
            found[state] += 1
            if error:
                print(f"  {table}: {error}", flush=True)
        return found

    def status(self) -> None:
        """Ask for the states as a user does, without showing them."""
        with contextlib.redirect_stdout(io.StringIO()):
            mirror_status(self._bench.spark, control=self._control).collect()

    @property
    def _control(self) -> str:
        return f"{self._folder}/lake/mirror_control"

    def audited(self) -> None:
        """Audit all tables; a difference ends the program."""
        at = {"host": self._server.host, "port": self._server.port, **self._bench.login}
        result = audit(
            self._bench.spark,
            mirror=self._control,
            record=False,
            relayDir=str(self._folder / "audit"),
            relayMaxBytes=RELAY_BYTES,
            **at,
        )
        if not result.equal:
            raise SystemExit(f"the copy differs:\n{result}")

    # -- the parts -----------------------------------------------------------------------------------------------

    def table(self, args: argparse.Namespace) -> dict[str, Any]:
        """Load one table, change it, and audit it."""
        found: dict[str, Any] = {}
        for rows in args.table_rows:
            self.begin()
            begun = time.monotonic()
            self.fill(rows)
            print(f"table of {rows:,} rows, filled in {time.monotonic() - begun:.0f} s", flush=True)
            one = found[str(rows)] = {"load": self.step("first load", self.catch_up, rows=rows)}
            for kind, first in (("random", 1), ("newest", max(1, rows - CHANGES))):
                for number in range(2):
                    self._update(first, rows)
                    one[f"{kind} {number}"] = self.step(f"{CHANGES:,} changes of {kind} rows", self.catch_up)
            one["audit"] = self.step("audit", self.audited, rows=rows)
        return found

    def _update(self, first: int, last: int) -> None:
        """Change rows at random between two keys, in transactions of ten."""
        key = f"SET one = {first} + FLOOR(RAND() * {last - first + 1});"
        change = f"{key} UPDATE t SET k = k + 1, c = REVERSE(c) WHERE id = one;"
        loop = f"FOR i IN 1..{CHANGES // 10} DO START TRANSACTION; {10 * change} COMMIT; END FOR;"
        self._server.sql(f"USE {DATABASE}", f"BEGIN NOT ATOMIC DECLARE one INT; {loop} END")

    def tables(self, args: argparse.Namespace) -> dict[str, Any]:
        """Begin many tables, change some, and ask for their state."""
        found: dict[str, Any] = {}
        for tables in args.tables:
            self.begin()
            names = [f"t{number:05}" for number in range(tables)]
            for name in names:
                self._unlogged(
                    f"CREATE TABLE {name} ({COLUMNS})", f"INSERT INTO {name} SELECT {FILLED} FROM seq_1_to_100"
                )
            print(f"{tables} tables of 100 rows", flush=True)
            one = found[str(tables)] = {"start": self.step("first load", self.catch_up)}
            for number in (min(FEW_TABLES, tables), tables):
                for name in names[:number]:
                    self._server.sql(f"UPDATE {DATABASE}.{name} SET k = k + 1 WHERE id < 11")
                one[f"batch {number}"] = self.step(f"changes in {number} tables, with start", self.catch_up)
            one["status"] = self.step("status", self.status)
            print(f"  {dict(self.states())}", flush=True)
            one["audit"] = self.step("audit", self.audited)
        return found

    def transaction(self, args: argparse.Namespace) -> dict[str, Any]:
        """Mirror one transaction of so many bytes."""
        found: dict[str, Any] = {}
        for gigabytes in args.transaction_gb:
            self.begin()
            self._server.sql(
                f"CREATE TABLE {DATABASE}.t (id INT PRIMARY KEY, c VARCHAR({WIDE_ROW_BYTES}) CHARSET latin1)"
            )
            self.catch_up()
            rows = int(gigabytes * 1e9 / WIDE_ROW_BYTES)
            text = f"LEFT(REPEAT(MD5(seq), {WIDE_ROW_BYTES // 32 + 1}), {WIDE_ROW_BYTES - 10})"
            self._server.sql(f"USE {DATABASE}", f"INSERT INTO t SELECT seq, {text} FROM seq_1_to_{rows}")
            one = found[str(gigabytes)] = {
                "mirror": self.step(f"a transaction of {gigabytes} GB", self.catch_up, rows=rows)
            }
            print(f"  {dict(self.states())}", flush=True)
            one["audit"] = self.step("audit", self.audited, rows=rows)
        return found

    def row(self, args: argparse.Namespace) -> dict[str, Any]:
        """Mirror one row of so many bytes, beside a table of small rows."""
        found: dict[str, Any] = {}
        for megabytes in args.row_mb:
            self.begin()
            self._server.sql(
                f"USE {DATABASE}",
                "CREATE TABLE small (id INT PRIMARY KEY)",
                "INSERT INTO small VALUES (1)",
                "CREATE TABLE t (id INT PRIMARY KEY, v INT, b LONGBLOB)",
                f"INSERT INTO t VALUES (1, 1, REPEAT('x', {int(megabytes * 1e6)}))",
            )
            one = found[str(megabytes)] = {"load": self.step(f"first load of a row of {megabytes} MB", self.catch_up)}
            print(f"  {dict(self.states())}", flush=True)
            self._server.sql(f"USE {DATABASE}", "INSERT INTO t SELECT 2, v, b FROM t", "INSERT INTO small VALUES (2)")
            one["insert"] = self.step("the row inserted again", self.catch_up)
            print(f"  {dict(self.states())}", flush=True)
        return found

    def rate(self, args: argparse.Namespace) -> dict[str, Any]:
        """Mirror changes at a steady rate."""
        self.begin()
        self.fill(args.rate_rows)
        sent: list[tuple[float, str]] = []
        query = self._bench.mirror(self._folder, trigger=None)

        def follow() -> None:
            pause = ROWS_A_COMMIT / args.rate
            began = time.time()
            number, last = 0, began + 60 * args.minutes
            with self._server.connect() as connection, connection.cursor() as cursor:
                while time.time() < last:
                    if query.exception() is not None:
                        raise SystemExit(str(query.exception()))
                    first = 1 + number * ROWS_A_COMMIT % (args.rate_rows - ROWS_A_COMMIT)
                    cursor.execute(
                        f"UPDATE {DATABASE}.t SET k = k + 1 WHERE id >= {first} AND id < {first + ROWS_A_COMMIT}"
                    )
                    if number % 10 == 0:
                        cursor.execute("SELECT @@last_gtid")
                        sent.append((time.time(), str(cursor.fetchone()[0])))
                    number += 1
                    time.sleep(max(0.0, began + number * pause - time.time()))
            made = number * ROWS_A_COMMIT / (time.time() - began)
            print(f"{made:,.0f} changes/s of {args.rate:,.0f} wanted, for {args.minutes:g} minutes", flush=True)

        try:
            while (self._folder / "lake" / "mirror_control").exists() is False or self.states()[READING]:
                time.sleep(SAMPLE_S)
            found: dict[str, Any] = {"follow": self.step("changes at a steady rate", follow)}
            waited = time.monotonic()
            while not any(covers(position, sent[-1][1]) for _, position in commits(self._folder / "lake" / "t")[-1:]):
                time.sleep(SAMPLE_S)
            print(f"all of it visible {time.monotonic() - waited:.1f} s after the last change", flush=True)
        finally:
            query.stop()
        found["lags"] = self._lags(sent)
        found["audit"] = self.step("audit", self.audited)
        return found

    def _lags(self, sent: Sequence[tuple[float, str]]) -> list[float]:
        """How old what is visible was, in seconds: the median of each tenth of the time."""
        seen = iter(commits(self._folder / "lake" / "t"))
        at, position = next(seen)
        ages = []
        for answered, gtid in sent:
            while not covers(position, gtid):
                at, position = next(seen)
            ages.append(at - answered)
        size = max(1, len(ages) // 10)
        tenths = [statistics.median(ages[first : first + size]) for first in range(0, len(ages) // size * size, size)]
        print(
            f"commit to visible, medians: {' '.join(f'{age:.1f}' for age in tenths)} s, most {max(ages):.1f} s",
            flush=True,
        )
        return tenths


def _sizes(words: str) -> list[float]:
    return [float(word) for word in words.split(",")]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/bench large", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=PARTS, help=f"some of {PARTS}")
    parser.add_argument("--table-rows", type=numbers, default=[10_000_000, 100_000_000])
    parser.add_argument("--tables", type=numbers, default=[100, 1_000])
    parser.add_argument("--transaction-gb", type=_sizes, default=[1.0, 5.0])
    parser.add_argument("--row-mb", type=_sizes, default=[100.0, 500.0])
    parser.add_argument("--rate", type=float, default=20_000.0, help="changes a second")
    parser.add_argument("--rate-rows", type=int, default=1_000_000, help="of the table that they change")
    parser.add_argument("--minutes", type=float, default=60.0, help="of changes")
    parser.add_argument("--version", default=None, help="server version")
    parser.add_argument("--folder", default=None, help="for server, targets and relay log; a temporary one otherwise")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    found: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory(prefix="bench-large-", dir=args.folder) as folder,
        # On disk: a table of 100 million rows does not fit into memory beside Spark.
        tempfile.TemporaryDirectory(prefix="bench-large-server-", dir=args.folder) as base,
        MariaDb(args.version, *SERVER, base=Path(base)) as server,
    ):
        spark = open_session(UNIX_SOCKETS | PLAIN_CHECKPOINTS | delta_settings())
        print(f"MariaDB {server.version}, Spark {spark.version}, local[2]; a row is {COLUMNS}", flush=True)
        large = Large(Bench(spark, server, Path(folder)), server)
        for part in args.only.split(","):
            found[part] = getattr(large, part)(args)
        spark.stop()
    if args.json:
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
