"""Proof without Spark: the same load and the same judge, with planner and task code of a query in this process.

    python -m tools.proofs.snapshot.direct [--version V] [--seed S] [--rows N] [--batches B] [--chunk-rows N]

In: a seed, numbers of rows and of batches. Out: a summary, or an error that names the first wrong row. Batches are a
hundred times faster than with Spark, so chunks can be small and borders many. Again and again, the query is stopped
between plan and commit, as if its driver were killed. Then its spool or its relay log is deleted, and the planned batch
is read again and has to contain the same rows. For every second pair of seeds, each block waits in its own file, which
batches take over as they do for large tables.
"""

from __future__ import annotations

import argparse
import functools
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from pyspark.sql.types import VariantVal

from replica.snapshot.snapshot import TableSnapshot
from replica.snapshot.spool import spool
from tests.fixtures.installation import installations
from tests.integration.snapshot.kit.query import SnapshotQuery
from tools.proofs import repeat
from tools.proofs.snapshot.frontier import delivered
from tools.proofs.snapshot.judge import READ, Judge, Row, shown
from tools.proofs.snapshot.proof import contents, position_of
from tools.proofs.snapshot.source import Source, binlogs
from tools.proofs.snapshot.tables import DATABASE
from tools.proofs.snapshot.truth import Truth

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streaming_source.offsets.offset import SourceOffset
    from tools.proofs.snapshot.tables import Table

AGE_S = 3.0
"""For a place of the binlog to count as committed: twice as long as any commit hangs here (10 s in earnest)."""
STOPPED, READ_FIRST = 0.3, 0.5
"""How often a batch is read by a query that was started again, and how often it had been read before."""
LOSSES = ("", "", "spool", "relay")
MAX_BACKLOG = 1 << 20
MORE_BATCHES = range(5, 200)
"""Behind the tables: at least so many, and then until there was a change of every kind (a slow machine needs more)."""
PAUSE_S = 0.01
ARGUMENTS = {"snapshotChunkRows": "chunk_rows", "snapshotConnections": "connections"}
"""Of the command line, by the options of the source that they set."""


class DirectProof:
    """One run: `run()` once."""

    def __init__(
        self,
        version: str | None,
        *,
        rows: int,
        batches: int,
        seed: int,
        folder: Path,
        options: Mapping[str, str],
        say: Callable[[str], object],
    ) -> None:
        self.source = Source(version, rows=rows, seed=seed, folder=folder, pause_s=PAUSE_S)
        self.stops: Counter[str] = Counter()
        self._folder = folder
        self._seed = seed
        self._chance = random.Random(f"{seed} direct")
        self._options = {"maxRowsPerTrigger": str(max(20, rows // batches)), **options}
        self._say = say
        self._read_in_this_life = False

    def run(self) -> dict[str, Any]:
        began = time.monotonic()
        young = mock.patch.dict(TableSnapshot.__init__.__kwdefaults__ or {}, age_s=AGE_S)
        own_files = {"IN_MEMORY_BYTES": 0, "OWN_FILE_BYTES": 1} if self._seed // 2 % 2 else {}
        with self.source, young, mock.patch.multiple(spool, **own_files) if own_files else nullcontext():
            self.source.fill(logged=False)
            self._tables = {table.name: table for table in self.source.tables}
            self._truth = Truth(self.source.primary, self.source.tables)
            self._judge = Judge("direct", self.source.tables, self._truth, contents(self.source))
            self._say(f"MariaDB {self.source.primary.version}: {shown(self.source.sizes)}")
            self.source.start()
            with SnapshotQuery(self.source.primary, self._folder, f"{DATABASE}.*", **self._options) as query:
                return self._with(query) | {"seconds": round(time.monotonic() - began, 1)}

    def _with(self, query: SnapshotQuery) -> dict[str, Any]:
        self.source.pace("go")
        if self._seed % 2:
            self.source.leave_open()  # the relay log has to begin before it
        self._batch(query)
        self.source.leave_open()
        while query.reading:
            self._batch(query)
        read = self._judge.batches
        self._say(f"all tables are read after {read} batches: {shown(self._judge.rows)}")
        for number in range(MORE_BATCHES.stop):
            if number >= MORE_BATCHES.start and all(self._judge.rows.values()):
                break
            self._batch(query)
        load: dict[str, int] = {}
        ending = threading.Thread(target=lambda: load.update(self.source.finish()))
        ending.start()
        while ending.is_alive() or not query.has(self.source.primary.gtid_binlog_pos()):
            self._batch(query, some=False)
        ending.join()
        self._judge.at_rest(contents(self.source))
        return {
            "version": self.source.primary.version,
            "batches": self._judge.batches,
            "of them with tables": read,
            "delivered": self._judge.rows,
            "stopped between plan and commit": dict(self.stops),
            "the load did": load,
            "changes on the server": len(self._truth.changes),
            "binlog files": len(binlogs(self.source.primary)),
        }

    def _batch(self, query: SnapshotQuery, *, some: bool = True) -> None:
        planned = query.plan() if some else query.planned()
        if planned is None:
            return
        start, end = planned
        rows = None
        # A life that is too short to learn what every snapshot sees reads nothing.
        if (self._read_in_this_life or not query.reading) and self._chance.random() < STOPPED:
            self._read_in_this_life = False
            if self._chance.random() < READ_FIRST:
                rows = query.rows(start, end)
            time.sleep(self._chance.uniform(0, 0.5))
            loss = self._chance.choice(LOSSES)
            query.stop(lose=loss)
            self.stops[f"{'read before, ' if rows is not None else ''}{loss or 'nothing'} lost"] += 1
            again = query.rows(start, end)
            assert rows is None or _sorted(rows) == _sorted(again), f"batch {self._judge.batches} has other rows again"
            rows = again
        rows = query.rows(start, end) if rows is None else rows
        self._read_in_this_life |= any(row["op"] == READ for row in rows)
        self._take(rows, end)
        query.committed(end)
        file, position = self._place(end)
        files = [path for path in binlogs(self.source.primary) if path.name >= file]
        backlog = sum(path.stat().st_size for path in files) - position
        if self.source.writing:
            self.source.pace("rest" if backlog > MAX_BACKLOG else "go")

    @staticmethod
    def _place(end: SourceOffset) -> tuple[str, int]:
        server = end.json().get("server") or {}
        return str(server.get("file", "")), int(server.get("position", 0))

    def _take(self, rows: list[dict[str, Any]], end: SourceOffset) -> None:
        offset = end.json()
        extent = functools.partial(delivered, offset, self._truth.key_of)
        batch = self._judge.batches
        self._judge.append(batch, [_row(row, self._tables) for row in rows], position_of(offset), extent)


def _row(row: Mapping[str, Any], tables: Mapping[str, Table]) -> Row:
    transaction, table = row["transaction"], tables[row["table"]]
    images = (
        None if image is None else table.parsed(VariantVal(image["value"], image["metadata"]).toJson())
        for image in (row["before"], row["after"])
    )
    place = (transaction[name] for name in ("domain_id", "server_id", "sequence_number", "ordinal"))
    return Row(row["op"], row["table"], *place, *images)


def _sorted(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr((row["transaction"], row["op"], row["table"], row["before"], row["after"])) for row in rows)


def prove_directly(
    version: str | None,
    *,
    rows: int,
    batches: int,
    seed: int,
    options: Mapping[str, str],
    say: Callable[[str], object],
) -> dict[str, Any]:
    """Run it once."""
    with tempfile.TemporaryDirectory(prefix="prove-direct-") as folder:
        proof = DirectProof(
            version, rows=rows, batches=batches, seed=seed, folder=Path(folder), options=options, say=say
        )
        try:
            return proof.run()
        except BaseException as error:
            sizes = {"seed": seed, "rows": rows, "batches": batches, "version": proof.source.primary.version}
            given = {ARGUMENTS[name]: value for name, value in options.items() if name in ARGUMENTS}
            again = repeat.command("python -m tools.proofs.snapshot.direct", **sizes, **given)
            error.add_note(f"repeat: {again}\nstops: {dict(proof.stops)}")
            raise


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.proofs.snapshot.direct", description=__doc__)
    parser.add_argument("--version", action="append")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--batches", type=int, default=60, help="about so many that the tables take")
    parser.add_argument("--chunk-rows", type=int, default=100)
    parser.add_argument("--connections", type=int, default=4)
    arguments = parser.parse_args(argv)
    print(f"seed {arguments.seed}", flush=True)
    options = {option: str(getattr(arguments, name)) for option, name in ARGUMENTS.items()}
    for version in arguments.version or installations():
        summary = prove_directly(
            version,
            rows=arguments.rows,
            batches=arguments.batches,
            seed=arguments.seed,
            options=options,
            say=lambda text: print(text, flush=True),
        )
        for name, value in summary.items():
            print(f"  {name}: {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
