"""What a target of each mode has to hold, by a plain walk over the changes; and the same changes brought in by Spark.

The walk knows nothing of batches, of Spark and of MERGE. `brought_in` runs in a Spark driver: it cuts the changes into
batches, and brings each of them in twice.
"""

from __future__ import annotations

import datetime as dt
import random
from typing import TYPE_CHECKING, Any

from replica.schema.effects.effect import StatementEffect
from streaming_source.mirroring.batch.batch_facts import StatementRow
from streaming_source.mirroring.modes.choose import mode_of
from streaming_source.mirroring.modes.mode import NetChanges
from streaming_source.mirroring.writers.delta import DeltaTarget
from streaming_source.mirroring.writers.target_format import Commit
from streaming_source.transforms.transformed_images import TargetColumn
from tests.spark.rows.test_latest_changes import NAMES, START, History, envelope

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = tuple(
    TargetColumn(name, kind, nullable=name != "id", comment="")
    for name, kind in zip(NAMES, ("INT", "STRING", "BIGINT"), strict=True)
)
TARGET = "modes_under_test"
TRUNCATED = StatementRow(
    0,
    10**9,
    -1,
    "0-1-1000000000",
    StatementEffect("TRUNCATE TABLE t"),
    int((START + dt.timedelta(days=1)).timestamp()) * 10**6,
)


class Walk:
    """Rows and versions behind the changes that were met so far. `open`: the version of each key that is valid."""

    def __init__(self) -> None:
        self.open: dict[int, dict[str, Any]] = {}
        self.closed: list[dict[str, Any]] = []
        self.gone: dict[int, dict[str, Any]] = {}

    def meet(self, change: dict[str, Any]) -> None:
        domain, number, ordinal = change["place"]
        place = (change["at"], f"{domain}-1-{number}", f"{number:020d}.{ordinal:012d}")
        before, after = (None if image is None else dict(zip(NAMES, image, strict=True)) for image in change["images"])
        lacks_before, lacks_after = (set(names or ()) for names in change["absent"])
        old = self.open[before["id"]]["row"] if before is not None else {}
        if before is not None:
            self.close(before["id"], place)
        if after is not None:
            if change["op"] == "update":
                after = {name: old[name] if name in lacks_after else after[name] for name in NAMES}
            self.gone.pop(after["id"], None)
            self.open[after["id"]] = {"row": after, "from": place}
        assert before is None or all(name in lacks_before or before[name] == old[name] for name in NAMES)

    def close(self, key: int, place: tuple[Any, ...]) -> None:
        version = self.open.pop(key) | {"to": place}
        self.closed.append(version)
        self.gone[key] = version

    def truncate(self) -> None:
        place = (dt.datetime.fromtimestamp(TRUNCATED.committed_us / 10**6, dt.UTC), TRUNCATED.gtid, TRUNCATED.sequence)
        for key in list(self.open):
            self.close(key, place)

    def rows(self, mode: str) -> list[list[str]]:
        return self._history() if mode == "history" else self._soft_delete()

    def _history(self) -> list[list[str]]:
        nothing = (None, None, None)
        rows = []
        for version in [*self.closed, *self.open.values()]:
            begun, ended = version["from"], version.get("to", nothing)
            own = [value for pair in zip(begun, ended, strict=True) for value in pair]
            rows.append([*version["row"].values(), *own, ended is nothing])
        return as_text(rows)

    def _soft_delete(self) -> list[list[str]]:
        there = [[*version["row"].values(), False, None, None] for version in self.open.values()]
        return as_text(there + [[*each["row"].values(), True, *each["to"][:2]] for each in self.gone.values()])


def as_text(rows: list[Any]) -> list[list[str]]:
    """Rows as text, sorted; times as numbers."""
    return sorted([str(v.timestamp() if isinstance(v, dt.datetime) else v) for v in row] for row in rows)


def random_changes(seed: int, count: int) -> list[dict[str, Any]]:
    """Changes in the order of their server: the rows of the beginning as inserts, then those of a random history."""
    history = History(seed)
    first = [
        {
            "op": "insert",
            "images": (None, row),
            "absent": (None, None),
            "place": (0 if key < 1000 else 7, 0, number),
            "at": START,
        }
        for number, (key, row) in enumerate(history.before.items())
    ]
    history.write(count)
    for change in history.changes:
        if change["op"] == "insert":  # what it leaves out is NULL
            change["absent"] = (None, None)
    return first + history.changes


def brought_in(spark: SparkSession, name: str, changes: list[dict[str, Any]], seed: int) -> list[list[list[str]]]:
    """The rows of a target of the mode behind all changes, and behind a TRUNCATE."""
    mode = mode_of(name, ["id"])
    spark.sql(f"DROP TABLE IF EXISTS {TARGET}")
    target = DeltaTarget(spark, TARGET, made=True)  # without tokens: each change comes twice
    at = Commit("m", 0, "")
    target.create(mode.columns(COLUMNS), "", {"delta.enableDeletionVectors": "true"})
    chosen = random.Random(seed)
    first = sum(change["place"][1] == 0 for change in changes)
    read = envelope(spark, [change | {"op": "read"} for change in changes[:first]])
    target.append(mode.appended(NetChanges(read, target, ["id"], NAMES, partial=False, domains=False, at=at)), at)
    rest = changes[first:]
    while rest:
        size = chosen.choice((1, 40, 90))
        batch, rest = rest[:size], rest[size:]
        domains = len({change["place"][0] for change in batch}) > 1
        partial = any(lacks for change in batch for lacks in change["absent"])
        for _ in range(2):
            chosen.shuffle(batch)
            rows = envelope(spark, batch).repartition(2)
            target.apply(mode, NetChanges(rows, target, ["id"], NAMES, partial=partial, domains=domains, at=at))
    found = as_text(spark.table(TARGET).collect())
    for _ in range(2):
        mode.end_all(target, TRUNCATED, "truncate", at.of("truncate"))
    return [found, as_text(spark.table(TARGET).collect())]
