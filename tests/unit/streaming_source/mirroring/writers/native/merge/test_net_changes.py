"""What tasks make of changes ends, in each mode, in what a walk over the changes ends in; batches come twice."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from streaming_source.mirroring.batch import latest_rows
from streaming_source.mirroring.batch.latest_rows import LatestOfTable
from streaming_source.mirroring.modes.mode import own_columns
from streaming_source.mirroring.writers.native.data_files import NativeWriteError
from streaming_source.mirroring.writers.native.delta_rows import TargetShape, merge_rows
from streaming_source.mirroring.writers.native.merge import net_changes as module
from streaming_source.mirroring.writers.native.merge.net_changes import (
    first_state,
    inserted_rows,
    net_changes,
    new_rows,
)
from streaming_source.mirroring.writers.native.merge.partial_images import OmittedColumns
from streaming_source.mirroring.writers.target_format import Commit
from streaming_source.schema.row_schema import FLAT, TableColumn, arrow_schema, spark_type
from tests.mirroring.values import mode_model
from tests.spark.rows import test_latest_changes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

Row = dict[str, Any]
START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
COLUMNS = (TableColumn("id", "INT"), TableColumn("v", "STRING"))
LATEST = LatestOfTable(("shop", "orders"), COLUMNS, ("0",))
KINDS = {
    "0": pa.int32(),
    "1": pa.string(),
    "2": pa.int64(),
    "_change_type": pa.string(),
    "_history": pa.bool_(),
    "_commit_version": pa.int64(),
    "_commit_timestamp": pa.timestamp("us", "UTC"),
    "_gtid": pa.string(),
    "_sequence": pa.string(),
    "_absent": pa.list_(pa.string()),
}
STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from("abc")), max_size=8)
"""Keys that a change is of: a delete or an insert of the first, or an update from the first to the second."""


class Walk:
    """A table, the flat rows of its changes, and what targets of three modes hold after them."""

    def __init__(self) -> None:
        self.there: dict[int, tuple[str, tuple[Any, ...]]] = {}
        self.versions: list[tuple[Any, ...]] = []
        self.deleted: dict[int, tuple[str, tuple[Any, ...]]] = {}
        self.numbers = itertools.count(1)

    def change(self, key: int, other: int, value: str) -> list[Row]:
        number = next(self.numbers)
        place = (START + dt.timedelta(seconds=number), f"0-1-{number}", f"{number:020d}.{0:012d}")
        if key not in self.there:
            return [self._put(key, value, place, "insert")]
        if value == "a" or (other != key and other in self.there):
            return [self._end(key, place, "delete")]
        return [self._end(key, place, "update_preimage"), self._put(other, value, place, "update_postimage")]

    def _put(self, key: int, value: str, place: tuple[Any, ...], kind: str) -> Row:
        self.there[key] = (value, place)
        self.deleted.pop(key, None)
        return self._row(key, value, place, kind)

    def _end(self, key: int, place: tuple[Any, ...], kind: str) -> Row:
        value, begun = self.there.pop(key)
        self.versions.append((key, value, *itertools.chain(*zip(begun, place, strict=True)), False))
        self.deleted[key] = (value, place)
        return self._row(key, value, place, kind)

    def _row(self, key: int, value: str, place: tuple[Any, ...], kind: str) -> Row:
        own = dict(zip(("_commit_timestamp", "_gtid", "_sequence"), place, strict=True))
        return {
            "0": key,
            "1": value,
            "_change_type": kind,
            "_history": None,
            "_commit_version": 1,
            "_absent": None,
        } | own

    def rows(self, mode: str) -> list[tuple[Any, ...]]:
        there = [(key, value) for key, (value, _) in self.there.items()]
        if mode == "current":
            return there
        if mode == "soft_delete":
            gone = [(key, value, True, *place[:2]) for key, (value, place) in self.deleted.items()]
            return [(*row, False, None, None) for row in there] + gone
        nothing = (None, None, None)
        valid = [(k, v, *itertools.chain(*zip(at, nothing, strict=True)), True) for k, (v, at) in self.there.items()]
        return self.versions + valid


def flat(rows: Sequence[Row], names: Sequence[str]) -> pa.RecordBatch:
    own = [name for name in rows[0] if name.isdecimal()]
    kinds = [(name, KINDS[name]) for name in (*own, *names)]
    return pa.RecordBatch.from_pylist([{name: row[name] for name, _ in kinds} for row in rows], schema=pa.schema(kinds))


def patched(patch: pytest.MonkeyPatch, changes: Sequence[Row], reads: Sequence[Row] = (), cut: int = 3) -> None:
    """Give tasks these rows, in batches of `cut`."""

    def flat_rows(_part: Any, _name: Any, _columns: Any, names: Sequence[str] = (), *, read: bool) -> Iterator[Any]:
        rows = reads if read else changes
        for first in range(0, len(rows), cut):
            yield flat(rows[first : first + cut], names)

    class Part:
        number = 0

    for one in (module, latest_rows):
        patch.setattr(one, "table_partitions", lambda _: iter([Part()]))
        patch.setattr(one, "flat_rows", flat_rows)


def shape(mode: str, columns: Sequence[TableColumn] = COLUMNS) -> TargetShape:
    names = (*(column.name for column in columns), *(column.name for column in own_columns(mode)))
    return TargetShape(mode, names, ("id",), ())


def made(folder: Path, mode: str, columns: Sequence[TableColumn] = COLUMNS) -> str:
    schema = StructType()
    for column in (*columns, *own_columns(mode)):
        schema = schema.add(column.name, spark_type(column.type))
    DeltaTable.create(str(folder), arrow_schema(schema))
    return str(folder)


def held(folder: str) -> list[str]:
    return sorted(
        str(exact(tuple(row.values()))) for row in pa.table(DeltaTable(folder).to_pyarrow_table()).to_pylist()
    )


def exact(row: tuple[Any, ...]) -> list[Any]:
    return [value.timestamp() if isinstance(value, dt.datetime) else value for value in row]


@pytest.mark.parametrize("mode", ["current", "soft_delete", "history"])
@settings(max_examples=12, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(batches=st.lists(st.tuples(STEPS, st.booleans()), max_size=4), cut=st.integers(1, 4))
def test_batches_end_in_what_a_walk_ends_in(
    tmp_path_factory: pytest.TempPathFactory, mode: str, batches: list[tuple[Any, bool]], cut: int
) -> None:
    folder, walk = made(tmp_path_factory.mktemp("t"), mode), Walk()
    for number, (steps, again) in enumerate(batches):
        changes = [row for step in steps for row in walk.change(*step)]
        with pytest.MonkeyPatch.context() as patch:
            patched(patch, changes, cut=cut)
            rows = net_changes(mode, LATEST, [])
            assert (rows is None) == (not changes)
            if rows is not None:
                merge_rows(folder, rows, shape(mode), Commit("m", number, ""))
                if again:  # as another mirror's batch, so that no token keeps it away
                    merge_rows(folder, rows, shape(mode), Commit("other", number, ""))
        assert held(folder) == sorted(str(exact(row)) for row in walk.rows(mode)), steps


OMITTED = OmittedColumns(mode_model.NAMES, (True,) * 3, (None, pa.nulls(1), pa.nulls(1)))


def images(change: dict[str, Any]) -> list[Row]:
    """The flat rows of a change of the model that Spark's forms are compared with."""
    domain, number, ordinal = change["place"]
    kinds = ("update_preimage", "update_postimage") if change["op"] == "update" else (change["op"],) * 2
    return [
        {
            **dict(zip("012", image, strict=True)),
            "_change_type": kind,
            "_history": None,
            "_absent": absent,
            "_commit_timestamp": change["at"],
            "_gtid": f"{domain}-1-{number}",
            "_sequence": f"{number:020d}.{ordinal:012d}",
        }
        for kind, image, absent in zip(kinds, change["images"], change["absent"], strict=True)
        if image is not None
    ]


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("mode", ["soft_delete", "history"])
@settings(max_examples=6, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(seed=st.integers(0, 10**6), size=st.sampled_from((3, 20, 60)), cut=st.integers(1, 50))
def test_images_that_lack_columns_end_in_what_the_model_of_sparks_forms_ends_in(
    tmp_path_factory: pytest.TempPathFactory, mode: str, seed: int, size: int, cut: int, *, read: bool
) -> None:
    """With `read`, inserted rows come as rows that were read: in no order with the changes, but by their place."""
    columns = test_latest_changes.COLUMNS
    latest = LatestOfTable(("shop", "orders"), columns, ("0",))
    folder, model = made(tmp_path_factory.mktemp("t"), mode, columns), mode_model.Walk()
    left = mode_model.random_changes(seed, 40)
    first = sum(change["place"][1] == 0 for change in left)
    for number in itertools.count():
        batch, left = left[: size if number else first], left[size if number else first :]
        for change in batch:
            model.meet(change)
        flat_images = [row for change in batch for row in images(change)]
        reads = [{**row, "_change_type": None} for row in flat_images if read and row["_change_type"] == "insert"]
        changes = [row for row in flat_images if not read or row["_change_type"] != "insert"]
        with pytest.MonkeyPatch.context() as patch:
            patched(patch, changes, reads, cut=cut)
            left_out = OMITTED if read or any(row["_absent"] for row in flat_images) else None
            rows = net_changes(mode, latest, [], left_out)
        for mirror in ("m", "other"):  # the second without a token that keeps it away
            assert rows is not None
            merge_rows(folder, rows, shape(mode, columns), Commit(mirror, number, ""))
        if not left:
            break
    found = pa.table(DeltaTable(folder).to_pyarrow_table()).to_pylist()
    assert mode_model.as_text([list(row.values()) for row in found]) == model.rows(mode)


def test_rows_that_were_read_and_lack_columns_are_refused() -> None:
    (row,) = Walk().change(1, 1, "b")
    with pytest.MonkeyPatch.context() as patch:
        patched(patch, [row], [{**row, "_absent": ["v"]}])
        with pytest.raises(NativeWriteError, match="its snapshot rows lack columns"):
            net_changes("current", LATEST, [], OMITTED)


@pytest.mark.parametrize("mode", ["current", "soft_delete", "history"])
def test_rows_that_were_read_are_valid_from_where_they_were_read(mode: str) -> None:
    walk = Walk()
    reads = [row for step in ((1, 1, "b"), (2, 2, "c")) for row in walk.change(*step)]
    with pytest.MonkeyPatch.context() as patch:
        patched(patch, [{**reads[0], "0": 9}], reads)
        batches = list(new_rows(mode, LATEST, []))
    found = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    assert [exact(row) for row in found] == [exact(row) for row in walk.rows(mode)]


@pytest.mark.parametrize("mode", ["current", "soft_delete"])
@settings(max_examples=60, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(before=STEPS, after=STEPS, cut=st.integers(1, 4))
def test_a_new_target_has_the_last_of_what_was_read_and_of_what_changed(
    mode: str, before: list[Any], after: list[Any], cut: int
) -> None:
    walk = Walk()
    changes = [row for step in before for row in walk.change(*step)]
    place = (START, "0-1-0", f"{next(walk.numbers):020d}.{900_000_000_000:012d}")
    reads = [walk._row(key, value, place, "insert") for key, (value, _) in walk.there.items()]
    changes += [row for step in after for row in walk.change(*step)]
    with pytest.MonkeyPatch.context() as patch:
        patched(patch, changes, reads, cut)
        found = [tuple(row.values()) for batch in first_state(mode, LATEST, []) for row in batch.to_pylist()]
    assert sorted(str(exact(row)) for row in found) == sorted(str(exact(row)) for row in walk.rows(mode))


def test_a_log_has_each_row_and_says_which_were_read() -> None:
    walk = Walk()
    changes = [row for step in ((1, 1, "b"), (1, 1, "c"), (1, 1, "a")) for row in walk.change(*step)]
    reads = walk.change(2, 2, "b")
    with pytest.MonkeyPatch.context() as patch:
        patched(patch, changes, reads)
        found = [row for batch in new_rows("append_log", LATEST, []) for row in batch.to_pylist()]
    places = {column.name: str(2 + number) for number, column in enumerate(FLAT)}
    kinds = [row[places["_change_type"]] for row in found]
    assert kinds == ["insert", "update_preimage", "update_postimage", "delete", "read"]
    assert [row[places["_gtid"]] for row in found] == ["0-1-1", "0-1-2", "0-1-2", "0-1-3", "0-1-4"]


def test_the_end_of_a_version_of_the_server_ends_the_row() -> None:
    walk = Walk()
    first = walk.change(1, 1, "b")
    ended = [{**row, "_history": True} for row in walk.change(1, 1, "c")]
    with pytest.MonkeyPatch.context() as patch:
        patched(patch, [*first, *ended, {**first[0], "_history": True}])
        rows = {mode: net_changes(mode, LATEST, []) for mode in ("current", "history")}
    assert rows["current"] is not None
    assert rows["current"].to_pylist() == [{"0": 1, "1": "c", "2": True}]
    assert rows["history"] is not None
    closing, opening = rows["history"].to_pylist()
    assert (closing["4"], closing["5"], closing["9"]) == (None, "0-1-1", True), "no version is left valid"
    assert (opening["4"], opening["5"], opening["8"], opening["9"]) == ("0-1-1", "0-1-2", False, False)


def test_a_table_without_a_key_takes_inserted_rows_and_those_that_were_read() -> None:
    inserted = [row for key in range(5) for row in Walk().change(key, key, "b")]
    reads = Walk().change(9, 9, "c") * 2
    with pytest.MonkeyPatch.context() as patch:
        patched(patch, inserted, reads)
        found = [tuple(row.values()) for batch in inserted_rows("current", LATEST, []) for row in batch.to_pylist()]
    assert found == [(0, "b"), (1, "b"), (2, "b"), (3, "b"), (4, "b"), (9, "c"), (9, "c")]


@pytest.mark.parametrize("change", ["delete", "update_preimage", "update_postimage", "history"])
def test_a_table_without_a_key_is_refused_where_a_row_has_to_go(change: str) -> None:
    (row,) = Walk().change(1, 1, "b")
    other = {**row, "_history": True} if change == "history" else {**row, "_change_type": change}
    with pytest.MonkeyPatch.context() as patch:
        patched(patch, [row, row, row, other])
        with pytest.raises(NativeWriteError, match="no key"):
            list(inserted_rows("current", LATEST, []))
