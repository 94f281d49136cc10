"""Content of Spark's sinks, read without Spark: the rows in the files that the sink's own log names.

In: the folders of a query. Out: one Arrow table of its rows. A file that no log names belongs to a batch that was not
committed, and is not part of the result. A file that the log names twice is read twice.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tools.proofs.soak.spark.points import QueryFolders


def delivered(query: QueryFolders, columns: Sequence[str]) -> pa.Table:
    """The rows of the sink."""
    files = _parquet_files(query.sink_log) if query.kind == "parquet" else _delta_files(query)
    twice = len(files) - len(set(files))
    assert not twice, f"the log of the {query.kind} sink names {twice} files twice"
    tables = [pq.read_table(file, columns=list(columns)) for file in files]
    return pa.concat_tables(tables) if tables else pa.table({name: [] for name in columns})


def _parquet_files(log: Path) -> list[str]:
    """The newest compacted entry holds all before it."""
    entries = {int(path.name.partition(".")[0]): path for path in log.iterdir() if path.name[0].isdigit()}
    compacted = {int(p.name.partition(".")[0]): p for p in log.glob("*.compact") if p.name[0].isdigit()}
    first = max(compacted, default=0)
    files = []
    for batch in sorted(batch for batch in entries if batch >= first):
        path = compacted.get(batch, entries[batch])
        for line in path.read_text().splitlines()[1:]:
            entry = json.loads(line)
            assert entry["action"] == "add", f"the sink only adds files: {entry}"
            files.append(unquote(urlparse(entry["path"]).path))
    return files


def _delta_files(query: QueryFolders) -> list[str]:
    """Every commit from the first: checkpoints of Delta's log only repeat them."""
    return [str(query.output / unquote(action["add"]["path"])) for action in delta_actions(query) if action.get("add")]


def delta_actions(query: QueryFolders) -> Iterator[dict[str, dict[str, str]]]:
    entries = sorted(path for path in query.sink_log.glob("*.json") if path.stem.isdigit())
    assert [int(path.stem) for path in entries] == list(range(len(entries))), "Delta's log has a gap"
    for path in entries:
        for line in path.read_text().splitlines():
            action = json.loads(line)
            assert "remove" not in action, f"the sink only adds files: {action}"
            yield action
