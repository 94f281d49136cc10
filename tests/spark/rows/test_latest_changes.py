"""latest_per_key: random histories of keys, images whole and partial, in both shapes, against a dictionary."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from replica.errors import ConfigError
from streaming_source import latest_per_key
from streaming_source.schema.row_schema import TableColumn, envelope_schema, flat_schema
from streaming_source.sinks.upserts import reduced

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import Row as SparkRow

pytestmark = pytest.mark.spark

COLUMNS = (TableColumn("id", "INT"), TableColumn("a", "STRING"), TableColumn("b", "BIGINT"))
NAMES = tuple(column.name for column in COLUMNS)
START = dt.datetime(2026, 11, 21, 20, tzinfo=dt.UTC)
Row = tuple[int, str | None, int | None]


class History:
    """Changes as a server logs them: `state` is what it has, `changes` what it wrote."""

    def __init__(self, seed: int, first: int = 100) -> None:
        self.random = random.Random(seed)
        self.before: dict[int, Row] = {key: (key, f"old {key}", key) for key in (*range(40), *range(1000, 1040))}
        self.state = dict(self.before)
        self.numbers = {0: first, 7: 1}
        self.changes: list[dict[str, Any]] = []

    def write(self, count: int) -> None:
        for _ in range(count):
            domain = self.random.choice((0, 7))  # each has keys of its own, as MariaDB asks for
            base = 0 if domain == 0 else 1000
            self.numbers[domain] += 1
            for ordinal in range(self.random.randint(1, 3)):
                self._change(domain, base, ordinal)

    def _change(self, domain: int, base: int, ordinal: int) -> None:
        there = [key for key in self.state if base <= key < base + 60]
        free = [key for key in range(base, base + 60) if key not in self.state]
        kind = self.random.choice(("insert", "update", "update", "update", "move", "delete"))
        mode = self.random.choice(("FULL", "MINIMAL", "FULL_NODUP"))
        old: Row | None = None
        new: Row | None = None
        lacks_old: set[str] = set()
        lacks_new: set[str] = set()
        if kind == "insert" and free:
            new = (self.random.choice(free), self._text(), self._number())
            if mode == "MINIMAL":
                new, lacks_new = (new[0], new[1], None), {"b"}
        elif kind == "delete" and there:
            old = self.state[self.random.choice(there)]
            lacks_old = {"a", "b"} if mode == "MINIMAL" else set()
        elif there and (kind != "move" or free):
            old = self.state[self.random.choice(there)]
            new = (old[0], *self.random.choice(((self._text(), old[2]), (old[1], self._number()), old[1:])))
            if kind == "move":
                new = (self.random.choice(free), *new[1:])
                mode = "FULL" if mode == "MINIMAL" else mode  # whose rest is not in the binlog
            if mode != "FULL":
                lacks_new = {name for name, was, now in zip(NAMES, old, new, strict=True) if was == now}
            if mode == "MINIMAL":
                lacks_old = {"a", "b"}
        else:
            return
        if old is not None:
            del self.state[old[0]]
        if new is not None:
            self.state[new[0]] = new
        self.changes.append(
            {
                "op": "insert" if old is None else "delete" if new is None else "update",
                "images": (_image(old, lacks_old), _image(new, lacks_new)),
                "absent": (sorted(lacks_old) or None, sorted(lacks_new) or None),
                "place": (domain, self.numbers[domain], ordinal),
                "at": START + dt.timedelta(seconds=len(self.changes) // 7),
            }
        )

    def _text(self) -> str | None:
        return self.random.choice((None, f"text {self.random.randrange(10**6)}"))

    def _number(self) -> int | None:
        return self.random.choice((None, self.random.randrange(10**9)))


def _image(row: Row | None, lacks: set[str]) -> tuple[Any, ...] | None:
    return None if row is None else tuple(None if n in lacks else v for n, v in zip(NAMES, row, strict=True))


def envelope(spark: SparkSession, changes: list[dict[str, Any]], *, wide: bool = False) -> DataFrame:
    rows, kind = [], Decimal if wide else int
    for change in changes:
        domain, number, ordinal = change["place"]
        transaction = (f"{domain}-1-{number}", domain, 1, kind(number), change["at"], None, ordinal, True)
        source = (None, None, None, None, None)
        rows.append((change["op"], "d", "t", *change["images"], transaction, source, change["absent"], None))
    return spark.createDataFrame(rows, envelope_schema(COLUMNS, wide_sequence=wide))


def flat(spark: SparkSession, changes: list[dict[str, Any]], *, wide: bool = False) -> DataFrame:
    rows, number_kind = [], Decimal if wide else int
    for change in changes:
        domain, number, ordinal = change["place"]
        kinds = ("update_preimage", "update_postimage") if change["op"] == "update" else (change["op"],) * 2
        for kind, image, absent in zip(kinds, change["images"], change["absent"], strict=True):
            if image is not None:
                place = (number_kind(number), change["at"], f"{domain}-1-{number}", f"{number:020d}.{ordinal:012d}")
                rows.append((*image, kind, *place, absent, None))
    return spark.createDataFrame(rows, flat_schema(COLUMNS, wide_sequence=wide))


def applied(before: dict[int, Row], latest: list[SparkRow]) -> dict[int, Row]:
    """What a MERGE makes of a table."""
    state = dict(before)
    for row in latest:
        old = state.pop(row["id"], (None, None, None))
        if row["_op"] == "upsert":
            absent = row["_absent"] or []
            state[row["id"]] = tuple(  # type: ignore[assignment]
                was if name in absent else row[name] for name, was in zip(NAMES, old, strict=True)
            )
    return state


@pytest.mark.parametrize(("seed", "first"), [pytest.param(1, 100, marks=pytest.mark.slow), (2, 2**63 - 40)])
def test_random_histories_in_both_shapes(spark: SparkSession, seed: int, first: int) -> None:
    history = History(seed, first)
    history.write(400)
    shuffled = list(history.changes)
    history.random.shuffle(shuffled)  # a batch has several partitions, and no order
    for shape in (envelope, flat):
        latest = latest_per_key(shape(spark, shuffled, wide=first > 2**62), ["id"]).collect()
        once = applied(history.before, latest)
        assert once == history.state
        assert applied(once, latest) == once  # the batch comes again after a crash


@pytest.mark.slow
def test_whole_images_take_the_short_way_to_the_same_rows(spark: SparkSession) -> None:
    history = History(3)
    history.write(300)
    whole = [change for change in history.changes if change["absent"] == (None, None)]
    for shape in (envelope, flat):
        batch = shape(spark, whole)
        short = reduced(batch, ["id"], partial=False, domains=False).drop("_absent")
        assert sorted(map(repr, short.collect())) == sorted(
            map(repr, latest_per_key(batch, ["id"]).drop("_absent").collect())
        )
    with pytest.raises(Exception, match=r"whole images were expected: [07]-1-"):
        reduced(flat(spark, history.changes), ["id"], partial=False, domains=True).collect()


def test_a_key_in_two_domains_goes_by_commit_time(spark: SparkSession) -> None:
    def change(place: tuple[int, int, int], second: int, text: str) -> dict[str, Any]:
        at = START.replace(second=second)
        return {"op": "insert", "images": (None, (5, text, 1)), "absent": (None, None), "place": place, "at": at}

    changes = [change((0, 900, 0), 10, "first"), change((7, 2, 0), 20, "last"), change((7, 1, 0), 30, "fast clock")]
    (row,) = latest_per_key(envelope(spark, changes), ["id"]).collect()
    assert (row["a"], row["_gtid"], row["_sequence"]) == ("last", "7-1-2", f"{2:020d}.{0:012d}")


def test_a_key_that_moves_with_minimal_images_stops(spark: SparkSession) -> None:
    moved = {
        "op": "update",
        "images": ((5, None, None), (6, None, None)),
        "absent": (["a", "b"], ["a", "b"]),
        "place": (0, 1, 0),
        "at": START,
    }
    with pytest.raises(Exception, match=r"changed its key in transaction 0-1-1 .* binlog_row_image=FULL"):
        latest_per_key(envelope(spark, [moved]), ["id"]).collect()


def test_system_versions_that_ended_are_left_out(spark: SparkSession) -> None:
    insert, update, delete = (1, "x", 1), (1, "y", 1), (2, "z", 2)
    rows = [
        ("update", insert, update, 0, False),
        ("insert", None, insert, 1, True),  # the version that ended
        ("update", delete, delete, 2, True),  # DELETE: the row ends
        ("delete", (3, "h", 3), None, 3, True),  # DELETE HISTORY
    ]
    source, absent = (None, None, None, None, None), (None, None)
    changes = [
        (op, "d", "t", old, new, ("0-1-1", 0, 1, 1, START, None, ordinal, True), source, absent, ended)
        for op, old, new, ordinal, ended in rows
    ]
    latest = latest_per_key(spark.createDataFrame(changes, envelope_schema(COLUMNS)), ["id"]).collect()
    assert sorted((row["id"], row["a"], row["_op"]) for row in latest) == [(1, "y", "upsert"), (2, "z", "delete")]


def test_what_is_no_batch_of_typed_changes_is_refused(spark: SparkSession) -> None:
    batch = envelope(spark, [])
    with pytest.raises(ConfigError, match=r"no column idd\. Did you mean id\?"):
        latest_per_key(batch, ["idd"])
    with pytest.raises(ConfigError, match="names no columns"):
        latest_per_key(batch, "id")
    with pytest.raises(ConfigError, match="missing, and they are not flat rows either"):
        latest_per_key(batch.drop("transaction"), ["id"])
    with pytest.raises(ConfigError, match="variant, which has no columns"):
        latest_per_key(spark.createDataFrame([], envelope_schema(None)), ["id"])
    with pytest.raises(ConfigError, match="column _op has the name"):
        latest_per_key(spark.createDataFrame([], envelope_schema([*COLUMNS, TableColumn("_op", "INT")])), ["id"])
