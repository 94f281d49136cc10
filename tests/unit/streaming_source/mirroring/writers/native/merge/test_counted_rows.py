"""Tables without a key end in what a counter of their rows ends in, whatever their files are."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_source.mirroring.batch.latest_rows import LatestOfTable
from streaming_source.mirroring.writers.native import delta_rows, rewritten_files
from streaming_source.mirroring.writers.native.data_files import NativeWriteError
from streaming_source.mirroring.writers.native.delta_rows import TargetShape, append_files
from streaming_source.mirroring.writers.native.merge import counted_rows, net_changes
from streaming_source.mirroring.writers.native.merge.counted_rows import CountedChanges, count_in, counted_files
from streaming_source.mirroring.writers.native.merge.partial_images import OmittedColumns
from streaming_source.mirroring.writers.target_format import READS, Commit
from streaming_source.schema.row_schema import TableColumn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

NAN = float("nan")
COLUMNS = (TableColumn("n", "INT"), TableColumn("x", "DOUBLE"), TableColumn("t", "STRING"))
LATEST = LatestOfTable(("shop", "plain"), COLUMNS, ())
SCHEMA = pa.schema([("n", pa.int32()), ("x", pa.float64()), ("t", pa.string())])
TARGET = TargetShape("current", ("n", "x", "t"), (), ())
OMITTED = OmittedColumns(TARGET.names, (True,) * 3, (None, None, pa.nulls(1)))
Row = tuple[int | None, float | None, str | None]
ROWS = st.tuples(
    st.sampled_from((None, 0, 1)), st.sampled_from((None, 0.0, -0.0, NAN)), st.sampled_from((None, "", "a"))
)
STEPS = st.lists(st.tuples(st.sampled_from(("insert", "insert", "delete", "update", "late")), ROWS, ROWS), max_size=8)


def flat(
    kind: str, row: Sequence[Any], *, history: bool | None = None, absent: list[str] | None = None
) -> dict[str, Any]:
    return {
        **dict(zip("012", row, strict=True)),
        "_change_type": kind,
        "_history": history,
        "_absent": absent,
    }


def image_rows(
    steps: Sequence[tuple[str, Row, Row]], there: Counter[str], rows: dict[str, Row]
) -> list[dict[str, Any]]:
    """Return the flat rows of changes that a server with these rows can make, and make them to `there`.

    `late`: the end of a version of a system-versioned table, which takes the old row.
    """
    made: list[dict[str, Any]] = []
    for kind, old, new in steps:
        rows |= {repr(row): row for row in (old, new)}
        if kind == "insert":
            made.append(flat("insert", new))
            there[repr(new)] += 1
        elif there[repr(old)]:
            there[repr(old)] -= 1
            if kind == "delete":
                made.append(flat("delete", old))
            else:
                history = kind == "late" or None
                made += [flat("update_preimage", old, history=history), flat("update_postimage", new, history=history)]
                there[repr(new)] += kind == "update"
    return made


@pytest.fixture
def given_rows(monkeypatch: pytest.MonkeyPatch) -> dict[bool, list[dict[str, Any]]]:
    """The flat rows that a task finds: `False` has changes, `True` rows that were read."""
    found: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    patch_rows(monkeypatch, found)
    return found


def patch_rows(patch: pytest.MonkeyPatch, found: dict[bool, list[dict[str, Any]]]) -> None:
    kinds = {"_change_type": pa.string(), "_history": pa.bool_(), "_absent": pa.list_(pa.string())}

    def flat_rows(_part: Any, _name: Any, _columns: Any, names: Sequence[str] = (), *, read: bool) -> Iterator[Any]:
        schema = pa.schema([*zip("012", SCHEMA.types, strict=True), *((name, kinds[name]) for name in names)])
        for first in range(0, len(found[read]), 3):
            rows = [{name: row[name] for name in schema.names} for row in found[read][first : first + 3]]
            yield pa.RecordBatch.from_pylist(rows, schema=schema)

    class Part:
        number = 0

    patch.setattr(net_changes, "table_partitions", lambda _: iter([Part()]))
    patch.setattr(net_changes, "flat_rows", flat_rows)


def held(folder: str) -> Counter[str]:
    found = pa.table(DeltaTable(folder).to_pyarrow_table()).to_pylist()
    return Counter(repr(tuple(row.values())) for row in found)


def commit(folder: str, number: int, left_out: OmittedColumns | None = None) -> bool:
    files, replaced = count_in(folder, TARGET, LATEST, [], left_out)
    return append_files(folder, files, TARGET, Commit("m", number, "", READS), once=True, replaced=replaced)


@pytest.mark.parametrize(("small", "joined"), [(1 << 20, 1 << 20), (-1, 1), (-1, 1 << 20)])
@settings(max_examples=15, deadline=None)
@given(batches=st.lists(st.tuples(STEPS, st.lists(ROWS, max_size=2), st.booleans()), max_size=4))
def test_each_row_is_there_as_often_as_a_counter_says(
    tmp_path_factory: pytest.TempPathFactory,
    small: int,
    joined: int,
    batches: list[tuple[list[tuple[str, Row, Row]], list[Row], bool]],
) -> None:
    folder = str(tmp_path_factory.mktemp("t"))
    DeltaTable.create(folder, SCHEMA)
    there: Counter[str] = Counter()
    rows: dict[str, Row] = {}
    for number, (steps, reads, again) in enumerate(batches):
        changes = image_rows(steps, there, rows)
        there.update(map(repr, reads))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(counted_rows, "SMALL_BYTES", small)
            patch.setattr(rewritten_files, "JOINED_BYTES", joined)
            patch_rows(patch, {False: changes, True: [flat("read", row) for row in reads]})
            written = [count_in(folder, TARGET, LATEST, [], None) for _ in range(1 + again)]
        for files, replaced in written:  # the files of a twin are not committed
            append_files(folder, files, TARGET, Commit("m", number, "", READS), once=True, replaced=replaced)
        assert held(folder) == +there


def test_images_that_lack_columns_are_filled(tmp_path: Path, given_rows: dict[bool, list[dict[str, Any]]]) -> None:
    folder = str(tmp_path)
    DeltaTable.create(folder, SCHEMA)
    given_rows[False] = [flat("insert", (1, 0.5, None), absent=["t"])] * 2
    commit(folder, 1, OMITTED)
    given_rows[False] = [
        flat("update_preimage", (1, 0.5, None)),
        flat("update_postimage", (None, None, "x"), absent=["n", "x"]),
    ]
    given_rows[True] = [flat("read", (2, None, "r"))]
    commit(folder, 2, OMITTED)
    assert held(folder) == Counter(map(repr, [(1, 0.5, None), (1, 0.5, "x"), (2, None, "r")]))
    given_rows[True] = [flat("read", (2, None, None), absent=["t"])]
    with pytest.raises(NativeWriteError, match="its snapshot rows lack columns"):
        commit(folder, 3, OMITTED)


def test_a_row_that_is_not_there_cannot_go(tmp_path: Path, given_rows: dict[bool, list[dict[str, Any]]]) -> None:
    folder = str(tmp_path)
    write_deltalake(folder, pa.table([[1, 1], [0.0, -0.0], ["a", "a"]], SCHEMA))
    there = sorted(tmp_path.glob("*.parquet"))
    given_rows[False] = [flat("delete", (1, 0.0, "a"))] * 2
    with pytest.raises(NativeWriteError, match="lacks a changed row"):
        commit(folder, 1)
    assert sorted(tmp_path.glob("*.parquet")) == there, "no new file is left"


def test_files_are_read_until_all_rows_are_met_and_only_if_limits_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counted_rows, "SMALL_BYTES", -1)
    for number in range(4):
        write_deltalake(str(tmp_path), pa.table([[number // 2] * 2, [0.5] * 2, ["a"] * 2], SCHEMA), mode="append")
    table = DeltaTable(str(tmp_path))
    read: list[str] = []
    whole = counted_rows.rows_of

    def seen(folder: str, files: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        read.extend(file.path for file in files)
        return whole(folder, files, schema)

    monkeypatch.setattr(counted_rows, "rows_of", seen)
    for less, files in ((1, 1), (2, 1), (3, 2)):
        read.clear()
        changes = CountedChanges(pa.table([[1], [0.5], ["a"]], SCHEMA), -pa.array([less]).to_numpy())
        new, replaced = counted_files(table, str(tmp_path), changes)
        assert (len(read), len(replaced), sum(file.rows for file in new)) == (files, files, 2 * files - less)
    monkeypatch.setattr(counted_rows, "MOST_BYTES", 10)
    with pytest.raises(NativeWriteError, match="may be in 0 MB of its files"):
        counted_files(table, str(tmp_path), changes)


def test_old_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_deltalake(str(tmp_path), pa.table([[1], [0.5], ["a"]], SCHEMA))
    monkeypatch.setattr(delta_rows, "LEAST_REWRITTEN", 0)
    monkeypatch.setattr(delta_rows, "MOST_OLD_BYTES", 10)
    changes = CountedChanges(pa.table([[1], [0.5], ["a"]], SCHEMA), -pa.array([1]).to_numpy())
    with pytest.raises(NativeWriteError, match="until they expire"):
        counted_files(DeltaTable(str(tmp_path)), str(tmp_path), changes)


def test_tables_whose_rows_may_not_go_or_have_other_columns_are_refused(
    tmp_path: Path, given_rows: dict[bool, list[dict[str, Any]]]
) -> None:
    log, other, times = (str(tmp_path / name) for name in ("log", "other", "times"))
    DeltaTable.create(log, SCHEMA, configuration={"delta.appendOnly": "true"})
    DeltaTable.create(other, SCHEMA.append(pa.field("more", pa.int32())))
    DeltaTable.create(times, SCHEMA.set(2, pa.field("t", pa.date32())))
    given_rows[False] = [flat("delete", (1, 0.0, "a"))]
    for folder, why in ((log, "cannot be rewritten"), (other, "its columns are"), (times, "other types")):
        with pytest.raises(NativeWriteError, match=why):
            commit(folder, 1)


def test_a_file_that_another_writer_changed_is_not_replaced(
    tmp_path: Path, given_rows: dict[bool, list[dict[str, Any]]]
) -> None:
    folder = str(tmp_path)
    write_deltalake(folder, pa.table([[1, 2], [0.5, 0.5], ["a", "a"]], SCHEMA))
    given_rows[False] = [flat("delete", (1, 0.5, "a"))]
    files, replaced = count_in(folder, TARGET, LATEST, [], None)
    DeltaTable(folder).delete("n = 2")
    there = held(folder)
    with pytest.raises(NativeWriteError, match="another writer changed files"):
        append_files(folder, files, TARGET, Commit("m", 1, "", READS), once=True, replaced=replaced)
    assert held(folder) == there
    assert not any((tmp_path / file.path).exists() for file in files), "no new file is left"


NO_PANDAS = """
import sys
import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from replica.rows.types.arrow_arrays import array_of, array_of_values
from streaming_source.mirroring.writers.native.merge.counted_rows import CountedChanges, counted_files
from streaming_source.mirroring.writers.native.delta_rows import TargetShape, append_files, merge_rows
from streaming_source.mirroring.writers.target_format import Commit, READS

folder, history = sys.argv[1:]
schema = pa.schema([("n", pa.int64()), ("x", pa.float64())])
DeltaTable.create(folder, schema)
for number, more in enumerate(([1, 2], [-1, 1])):
    rows = pa.Table.from_arrays([array_of(np.array([1, 2])), array_of(np.array([0.5, -0.0]))], schema=schema)
    files, replaced = counted_files(DeltaTable(folder), folder, CountedChanges(rows, np.array(more)))
    commit = Commit("m", number, "", READS)
    append_files(folder, files, TargetShape("current", ("n", "x"), (), ()), commit, once=True, replaced=replaced)
text, flag = pa.string(), pa.bool_()
ends = ("_valid_to", "_from_gtid", "_to_gtid", "_from_sequence", "_to_sequence")
kinds = {"n": pa.int64(), "w": text, **dict.fromkeys(ends, text), "_current": flag}
DeltaTable.create(history, pa.schema(kinds))
for number in range(2):
    values = {**kinds, "end": flag, "kept": flag}
    made = {name: array_of_values([None], kind) for name, kind in values.items()}
    made |= {"n": array_of(np.array([1])), "_from_gtid": array_of_values([str(number)], text)}
    made |= {name: array_of(np.array([name != "end"])) for name in ("_current", "end", "kept")}
    rows = pa.Table.from_arrays([*made.values()], names=[*map(str, range(len(kinds) + 1)), "kept_1"])
    merge_rows(history, rows, TargetShape("history", tuple(kinds), ("n",), ()), Commit("m", number, ""))
print(DeltaTable(folder).version(), DeltaTable(history).version(), "pandas" in sys.modules)
"""


def test_tasks_import_no_pandas(tmp_path: Path) -> None:
    """It would take 36 MB and a third of a second in each worker."""
    folders = [str(tmp_path / name) for name in ("plain", "history")]
    done = subprocess.run([sys.executable, "-c", NO_PANDAS, *folders], capture_output=True, text=True, check=True)
    assert done.stdout == "2 2 False\n"


def test_rows_that_another_writer_appends_stay(tmp_path: Path, given_rows: dict[bool, list[dict[str, Any]]]) -> None:
    folder, row = str(tmp_path), pa.table([[1], [0.5], ["a"]], SCHEMA)
    write_deltalake(folder, row)
    given_rows[False] = [flat("delete", (1, 0.5, "a"))]
    files, replaced = count_in(folder, TARGET, LATEST, [], None)
    write_deltalake(folder, row, mode="append")
    append_files(folder, files, TARGET, Commit("m", 1, "", READS), once=True, replaced=replaced)
    assert held(folder) == Counter([repr((1, 0.5, "a"))])
