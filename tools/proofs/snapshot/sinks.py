"""Rows that each committed batch wrote to a sink, read without Spark from the sink's own log.

In: the folders of a query and the tables. Out: for each batch in order, its end offset and its rows. For a plain append
sink these are the appended rows. For a Delta table they are the rows that the commits removed and added.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq

from tools.proofs.snapshot.judge import Row
from tools.proofs.soak.spark.points import QueryFolders

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tools.proofs.snapshot.tables import State, Table

COLUMNS = ("tbl", "k", "row")
FILES_KEPT = 16
"""Of a Delta table, in memory: those of the last commits, which the next one takes away."""


class MergeFolders(QueryFolders):
    """The folders of the query that merges: its commits tell the batch as the user's metadata."""

    def _last_delta_batch(self) -> int:
        return max((commit.batch for commit in commits(self.sink_log, 0)), default=-1)


class Commit(NamedTuple):
    """A version of a Delta table: the batch that it is of, the files it took away and those it brought."""

    version: int
    batch: int
    removed: list[str]
    added: list[str]


def offset_of(query: QueryFolders, batch: int) -> dict[str, Any]:
    """Where a batch ends, as the checkpoint says."""
    offset: dict[str, Any] = json.loads((query.checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1])
    return offset


def appended_rows(query: QueryFolders, batch: int, tables: Mapping[str, Table]) -> list[Row]:
    """The rows of one batch; none where the sink has no entry of it."""
    entry = query.sink_log / str(batch)
    rows: list[Row] = []
    for line in entry.read_text().splitlines()[1:] if entry.exists() else ():
        columns = pq.read_table(unquote(urlparse(json.loads(line)["path"]).path), columns=list(Row._fields))
        for op, name, domain, server, number, ordinal, before, after in zip(
            *(columns[field].to_pylist() for field in Row._fields), strict=True
        ):
            table = tables[name]
            rows.append(Row(op, name, domain, server, number, ordinal, table.parsed(before), table.parsed(after)))
    return rows


def commits(log: Path, first: int) -> Iterator[Commit]:
    """The versions of a Delta table from one on, in order, that a batch made."""
    for path in sorted(path for path in log.glob("*.json") if path.stem.isdigit() and int(path.stem) >= first):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        if "userMetadata" in info:
            removed, added = (
                [unquote(action[kind]["path"]) for action in actions if kind in action] for kind in ("remove", "add")
            )
            yield Commit(int(path.stem), int(info["userMetadata"]), removed, added)


class MergedTable:
    """The rows that commits of a Delta table took away and brought: rows that a file merely carried on are neither."""

    def __init__(self, query: QueryFolders, tables: Mapping[str, Table]) -> None:
        self._folder = query.output
        self._tables = tables
        self._rows = functools.lru_cache(FILES_KEPT)(self._read)

    def difference(self, commit: Commit) -> tuple[list[tuple[str, State]], list[tuple[str, State]]]:
        """What is gone and what has come with a commit."""
        before, after = (self._together(files) for files in (commit.removed, commit.added))
        gone, come = _without(before, after), _without(after, before)
        grown = len(after) - len(before)
        assert len(come) - len(gone) == grown, f"version {commit.version} of the Delta table holds a row more than once"
        return self._states(gone), self._states(come)

    def _together(self, files: list[str]) -> pa.Table:
        if not files:
            return pa.table({name: pa.array([], pa.string()) for name in COLUMNS})
        return pa.concat_tables([self._rows(file) for file in files])

    def _read(self, file: str) -> pa.Table:
        return pq.read_table(self._folder / file, columns=list(COLUMNS)).cast(
            pa.schema([(name, pa.string()) for name in COLUMNS])
        )

    def _states(self, rows: pa.Table) -> list[tuple[str, State]]:
        found = []
        for name, text in zip(rows["tbl"].to_pylist(), rows["row"].to_pylist(), strict=True):
            state = self._tables[name].parsed(text)
            assert state is not None
            found.append((name, state))
        return found


def _without(rows: pa.Table, others: pa.Table) -> pa.Table:
    """Rows that are not among the others; how often one is there does not count here."""
    if not len(rows) or not len(others):
        return rows
    return rows.join(others, keys=list(COLUMNS), join_type="left anti")
