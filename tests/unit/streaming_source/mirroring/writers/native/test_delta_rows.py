"""Tables that delta-rs writes end in what a plain dictionary holds, whatever comes twice, late or beside it."""

from __future__ import annotations

import datetime as dt
import shutil
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_source.mirroring.writers.native import delta_rows, rewritten_files
from streaming_source.mirroring.writers.native.data_files import NativeWriteError, files_of, old_bytes
from streaming_source.mirroring.writers.native.delta_rows import (
    TargetShape,
    append_files,
    has_rows,
    is_as_created,
    merge_rows,
    open_target,
    remove_rows,
    replace_rows,
    stored_columns,
    stored_rows,
)
from streaming_source.mirroring.writers.native.rewritten_files import is_rewritable
from streaming_source.mirroring.writers.native.table_commits import create
from streaming_source.mirroring.writers.target_format import READS, Commit
from streaming_source.transforms.transformed_images import TargetColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

OWNER = {"mariadb.mirror": "m"}
ODD = 'a"b`c;d.é ${x} ` OR 1=1 --'
"""A name that would be something else in SQL, if it was not quoted."""
KINDS = {
    "id": pa.int64(),
    ODD: pa.string(),
    "d": pa.decimal128(20, 0),
    "f": pa.float64(),
    "t": pa.timestamp("us", "UTC"),
    "b": pa.binary(),
}
VALUES = {
    "id": st.integers(0, 9),
    ODD: st.none() | st.sampled_from(("", "x", "é😀" * 30, "\0", "'", "z" * 40)),
    "d": st.none() | st.sampled_from((0, 2**64 - 1, 2**63, -1)).map(Decimal),
    "f": st.none() | st.sampled_from((0.0, -0.0, 1.5, 1e308)),
    "t": st.none() | st.sampled_from((0, 1, 999_999)).map(lambda us: dt.datetime(2024, 1, 1, 0, 0, 0, us, dt.UTC)),
    "b": st.none() | st.sampled_from((b"", b"\xff", b"\0\xff")),
}
ROWS = st.fixed_dictionaries(VALUES)
CHANGES = st.lists(st.tuples(ROWS, st.booleans()), min_size=1, max_size=6, unique_by=lambda change: change[0]["id"])


@pytest.fixture(scope="module", params=["small", "rewritten", "marked", "merged"])
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """The ways by which changes come into a table.

    All or some of its files are written again, rows of its files are marked as deleted, or it is merged into.
    """
    with pytest.MonkeyPatch.context() as patch:
        if request.param in ("rewritten", "marked"):
            patch.setattr(rewritten_files, "SMALL_BYTES", -1)
        if request.param == "marked":
            patch.setattr(rewritten_files, "MARKED_BYTES", 0)
            patch.setattr(rewritten_files, "MOST_MARKED", 0.7)
        if request.param == "merged":
            patch.setattr(delta_rows, "is_rewritable", lambda *_: False)
        yield


ALL_WAYS = pytest.mark.usefixtures("way")


TYPES = ("BIGINT", "STRING", "DECIMAL(20,0)", "DOUBLE", "TIMESTAMP", "BINARY")


def made(folder: Path, **configuration: str) -> str:
    if not configuration:
        columns = [
            TargetColumn(name, kind, nullable=name != "id", comment="") for name, kind in zip(KINDS, TYPES, strict=True)
        ]
        create(str(folder), columns, "", OWNER | {"delta.enableDeletionVectors": "true"}, "{}")
        return str(folder)
    schema = pa.schema([pa.field(name, kind, nullable=name != "id") for name, kind in KINDS.items()])
    DeltaTable.create(str(folder), schema, configuration=OWNER | configuration, raise_if_key_not_exists=False)
    return str(folder)


def changes(rows: list[tuple[dict[str, Any], bool]]) -> pa.Table:
    columns = [pa.array([row[name] for row, _ in rows], kind) for name, kind in KINDS.items()]
    columns.append(pa.array([gone for _, gone in rows], pa.bool_()))
    return pa.table(columns, names=[str(number) for number in range(len(columns))])


def merged(folder: str, rows: list[tuple[dict[str, Any], bool]], batch: int) -> bool:
    return merge_rows(folder, changes(rows), target(*KINDS), Commit("m", batch, "0-1-1"))


def target(*names: str) -> TargetShape:
    return TargetShape("current", names, ("id",), tuple(OWNER.items()))


def rows_of(folder: str) -> dict[int, str]:
    """Rows by their key; as text, in which 0.0 and -0.0 are two."""
    table = pa.table(QueryBuilder().register("t", DeltaTable(folder)).execute("SELECT * FROM t").read_all())
    return {row["id"]: told(row) for row in table.to_pylist()}


def told(row: dict[str, Any]) -> str:
    at = row["t"]
    return repr([row[name] for name in KINDS if name != "t"] + [at and at.timestamp()])


@ALL_WAYS
@settings(max_examples=20, deadline=None)
@given(batches=st.lists(st.tuples(CHANGES, st.booleans()), max_size=5))
def test_batches_end_in_what_a_dictionary_holds(
    tmp_path_factory: pytest.TempPathFactory, batches: list[tuple[list[tuple[dict[str, Any], bool]], bool]]
) -> None:
    folder = made(tmp_path_factory.mktemp("table"))
    model: dict[int, str] = {}
    for number, (rows, again) in enumerate(batches):
        merged(folder, rows, number)
        if again:  # nothing is committed where nothing changes
            merged(folder, rows, number)
        for row, gone in rows:
            model.pop(row["id"], None)
            if not gone:
                model[row["id"]] = told(row)
        assert rows_of(folder) == model


ROW = {"id": 1, ODD: "x", "d": Decimal(1), "f": -0.0, "t": None, "b": b"\xff"}


@ALL_WAYS
def test_a_late_task_of_an_older_batch_changes_nothing(tmp_path: Path) -> None:
    folder = made(tmp_path / "t")
    assert merged(folder, [(ROW, False)], 7)
    assert DeltaTable(folder).history(1)[0]["userMetadata"] == Commit("m", 7, "0-1-1").metadata
    assert not merged(folder, [(ROW, True)], 6)
    assert list(rows_of(folder)) == [1]


@ALL_WAYS
def test_of_two_tasks_that_do_the_same_work_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made(tmp_path / "t")
    whole = delta_rows._merge
    seen: list[bool] = []

    def with_another_before(*arguments: Any) -> None:
        monkeypatch.setattr(delta_rows, "_merge", whole)
        seen.append(merged(folder, [(ROW, False)], 1))
        whole(*arguments)

    monkeypatch.setattr(delta_rows, "_merge", with_another_before)
    seen.append(merged(folder, [(ROW, False)], 1))
    assert seen == [True, False]
    assert DeltaTable(folder).version() == 1


@ALL_WAYS
def test_a_commit_of_someone_else_is_met_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made(tmp_path / "t")
    merged(folder, [(ROW, False)], 1)
    whole = delta_rows._merge

    def beside(*arguments: Any) -> None:
        monkeypatch.setattr(delta_rows, "_merge", whole)
        DeltaTable(folder).optimize.compact(target_size=1)
        write_deltalake(
            folder, pa.table([[5], ["y"], [None], [None], [None], [None]], schema=pa.schema(KINDS)), mode="append"
        )
        DeltaTable(folder).delete("id = 1")
        whole(*arguments)

    monkeypatch.setattr(delta_rows, "_merge", beside)
    assert merged(folder, [({**ROW, "f": 2.5}, False)], 2)
    found = rows_of(folder)
    assert sorted(found) == [1, 5]
    assert "2.5" in found[1]


@ALL_WAYS
@pytest.mark.parametrize(
    ("configuration", "reason"),
    [
        ({"delta.enableChangeDataFeed": "true"}, "it needs a writer of version 4"),
        ({"mariadb.mirror": "other"}, "property mariadb.mirror has another value"),
    ],
)
def test_what_is_left_to_spark(tmp_path: Path, configuration: dict[str, str], reason: str) -> None:
    folder = made(tmp_path / "t", **configuration)
    with pytest.raises(NativeWriteError, match=reason):
        merged(folder, [(ROW, False)], 1)
    assert DeltaTable(folder).version() == 0


def test_a_table_that_is_gone_too_large_or_has_other_columns_is_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NativeWriteError, match="there is no table"):
        merged(str(tmp_path / "gone"), [(ROW, False)], 1)
    folder = made(tmp_path / "t")
    merged(folder, [(ROW, False)], 1)
    with pytest.raises(NativeWriteError, match="it has no column other"):
        merge_rows(folder, changes([(ROW, False)]), target("id", "other", *list(KINDS)[2:]), Commit("m", 2, ""))
    monkeypatch.setattr(delta_rows, "is_rewritable", is_rewritable)
    monkeypatch.setattr(rewritten_files, "MOST_BYTES", 10)
    monkeypatch.setattr(rewritten_files, "SMALL_BYTES", -1)
    with pytest.raises(NativeWriteError, match="its changes are in 0 MB of files that have to be copied"):
        merged(folder, [(ROW, False)], 2)
    monkeypatch.setattr(delta_rows, "MOST_BYTES", 10)
    monkeypatch.setattr(delta_rows, "is_rewritable", lambda *_: False)
    with pytest.raises(NativeWriteError, match="it has 0 MB"):
        merged(folder, [(ROW, False)], 2)


@pytest.mark.parametrize("merges", [False, True])
def test_a_table_with_many_old_files_is_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, merges: bool
) -> None:
    monkeypatch.setattr(delta_rows, "is_rewritable", is_rewritable if not merges else lambda *_: False)
    monkeypatch.setattr(delta_rows, "LEAST_REWRITTEN", 0)
    folder = made(tmp_path / "t")
    for number in (1, 2):
        merged(folder, [(ROW | {"d": Decimal(number)}, False)], number)
    (size,) = (file.size for file in files_of(DeltaTable(folder)))
    old = old_bytes(folder, files_of(DeltaTable(folder)))
    assert old > 0
    monkeypatch.setattr(delta_rows, "MOST_OLD_BYTES", old + size)
    merged(folder, [(ROW, False)], 3)
    with pytest.raises(NativeWriteError, match="until they expire"):
        merged(folder, [(ROW, False)], 4)
    assert DeltaTable(folder).version() == 3


def test_all_rows_are_replaced_or_none(tmp_path: Path) -> None:
    folder = made(tmp_path / "t")
    merged(folder, [(ROW, False)], 1)
    replace_rows(folder, {name: [value, value] for name, value in ROW.items()}, "told")
    assert DeltaTable(folder).count() == 2
    assert DeltaTable(folder).history(1)[0]["userMetadata"] == "told"
    broken: list[dict[str, list[object]]] = [{"id": [7]}, {name: ["no number"] for name in ROW}]
    for values in broken:
        with pytest.raises(NativeWriteError):
            replace_rows(folder, values, "")
    assert DeltaTable(folder).version() == 2


@ALL_WAYS
def test_only_whole_numbers_and_dates_have_limits(tmp_path: Path) -> None:
    folder = made(tmp_path / "t")
    merged(folder, [(ROW, False)], 1)
    (file,) = DeltaTable(folder).file_uris()
    group = pq.ParquetFile(file).metadata.row_group(0)
    columns = {group.column(number).path_in_schema: group.column(number) for number in range(group.num_columns)}
    assert {name for name, column in columns.items() if column.statistics is not None} == {"id"}
    assert not {"d", "f", "t", "b"} & {name for name, c in columns.items() if "RLE_DICTIONARY" in c.encodings}
    actions = pa.table(DeltaTable(folder).get_add_actions(flatten=True))
    limits = {name: actions.column(name)[0].as_py() for name in actions.schema.names if name[:4] in ("min.", "max.")}
    assert {name: value for name, value in limits.items() if value is not None} == {"min.id": 1, "max.id": 1}


@ALL_WAYS
def test_all_rows_go_by_one_commit_beside_other_writers(tmp_path: Path) -> None:
    folder = made(tmp_path / "t")
    row = dict.fromkeys(KINDS) | {"id": 1}
    for batch in range(3):
        merged(folder, [({**row, "id": batch}, False)], batch)
    before = DeltaTable(folder).version()
    remove_rows(folder, target(*KINDS), '{"mirror": "m", "batch": 3}')
    table = DeltaTable(folder)
    assert (table.version(), table.count()) == (before + 1, 0)
    assert table.history(1)[0]["userMetadata"] == '{"mirror": "m", "batch": 3}'
    assert merged(folder, [(row, False)], 3), "rows of the batch come after its TRUNCATE"
    assert DeltaTable(folder).count() == 1


def test_a_foreign_or_append_only_table_is_not_emptied(tmp_path: Path) -> None:
    folder = made(tmp_path / "t", **{"delta.appendOnly": "true"})
    foreign = made(tmp_path / "foreign")
    DeltaTable(foreign).alter.set_table_properties({"mariadb.mirror": "other"}, raise_if_not_exists=False)
    write_deltalake(
        folder, pa.table({name: pa.array([1 if name == "id" else None], KINDS[name]) for name in KINDS}), mode="append"
    )
    for place in (folder, foreign, str(tmp_path / "absent")):
        with pytest.raises(NativeWriteError):
            remove_rows(place, target(*KINDS), "{}")
    assert DeltaTable(folder).count() == 1


@ALL_WAYS
def test_rows_of_a_batch_are_known_by_their_token(tmp_path: Path) -> None:
    folder = made(tmp_path / "t")
    commit = Commit("m", 7, "0-1-1")
    assert not has_rows(folder, commit)
    assert not has_rows(str(tmp_path / "absent"), commit)
    remove_rows(folder, target(*KINDS), commit.metadata)
    assert not has_rows(folder, commit), "a statement is none of its rows"
    merged(folder, [(dict.fromkeys(KINDS) | {"id": 1}, False)], 7)
    assert has_rows(folder, commit)
    assert has_rows(folder, commit._replace(batch=6))
    assert not has_rows(folder, commit._replace(batch=8))
    assert not has_rows(folder, commit._replace(mirror="other"))
    read = Commit("reads", 3, "0-1-1", READS)
    append_files(folder, [], target(*KINDS), read, once=True)
    assert has_rows(folder, read)


def test_columns_of_a_small_table_are_read(tmp_path: Path) -> None:
    folder = made(tmp_path / "t")
    merged(folder, [({**dict.fromkeys(KINDS), "id": number, ODD: f"'{number}"}, False) for number in range(3)], 1)
    assert sorted(stored_rows(folder, [ODD, "id"])) == [("'0", 0), ("'1", 1), ("'2", 2)]
    with pytest.raises(NativeWriteError):
        stored_rows(str(tmp_path / "absent"), ["id"])


CREATED = (
    TargetColumn("id", "INT", nullable=False, comment="the key"),
    TargetColumn("price", "DECIMAL(10,2)", nullable=True, comment=""),
)


@pytest.mark.parametrize(
    ("columns", "comment", "properties"),
    [
        (CREATED[:1], "c", {}),
        ((*CREATED, TargetColumn("x", "INT", nullable=True, comment="")), "c", {}),
        ((CREATED[0], CREATED[1]._replace(type="DECIMAL(11,2)")), "c", {}),
        ((CREATED[0], CREATED[1]._replace(nullable=False)), "c", {}),
        ((CREATED[0], CREATED[1]._replace(comment="x")), "c", {}),
        ((CREATED[0], CREATED[1]._replace(name="Price")), "c", {}),
        (CREATED[::-1], "c", {}),
        (CREATED, "", {}),
        (CREATED, "c", {"p": "2"}),
        (CREATED, "c", {"q": "1"}),
        (CREATED, "c", {"delta.feature.timestampNtz": "supported"}),
    ],
)
def test_a_table_that_differs_from_a_new_one_is_not_as_created(
    tmp_path: Path, columns: Sequence[TargetColumn], comment: str, properties: dict[str, str]
) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int32(), nullable=False, metadata={"comment": "the key"}),
            pa.field("price", pa.decimal128(10, 2)),
        ]
    )
    kept = {"p": "1"}
    DeltaTable.create(str(tmp_path), schema, description="c", configuration=kept, raise_if_key_not_exists=False)
    assert is_as_created(str(tmp_path), CREATED, "c", {"p": "1"})
    assert not is_as_created(str(tmp_path), columns, comment, {"p": "1", **properties})
    assert not is_as_created(str(tmp_path), CREATED, "c", {})
    with pytest.raises(NativeWriteError):
        is_as_created(str(tmp_path / "elsewhere"), columns, comment, properties)


TARGET = TargetShape("current", tuple(KINDS), ("id",), ())
CALLS: dict[str, Callable[[str], object]] = {
    "open_target": lambda folder: open_target(folder, TARGET),
    "is_as_created": lambda folder: is_as_created(folder, CREATED, "", {}),
    "has_rows": lambda folder: has_rows(folder, Commit("m", 1, "")),
    "merge_rows": lambda folder: merge_rows(folder, pa.table({}), TARGET, Commit("m", 1, "")),
    "append_files": lambda folder: append_files(folder, (), TARGET, Commit("m", 1, ""), once=True),
    "remove_rows": lambda folder: remove_rows(folder, TARGET, ""),
    "replace_rows": lambda folder: replace_rows(folder, {}, ""),
    "stored_rows": lambda folder: stored_rows(folder, ["id"]),
    "stored_columns": stored_columns,
}


DAMAGES = ("a folder in the place of a commit", "no JSON", "a file")
UNHARMED = ("has_rows", "a folder in the place of a commit")
"""A table without a commit is one that is not there, and has no rows."""


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_whatever_is_wrong_with_a_folder_is_a_reason_in_one_line(tmp_path: Path, call: str, damage: str) -> None:
    """Spark then writes the table, and meets it too: an error of another kind would end the query for all tables."""
    folder = made(tmp_path / "t")
    first = Path(folder, "_delta_log", f"{0:020}.json")
    if damage == "a file":
        shutil.rmtree(folder)
        Path(folder).write_text("")
    elif damage == "no JSON":
        first.write_text("{")
    else:
        first.unlink()
        first.mkdir()
    if (call, damage) == UNHARMED:
        assert not CALLS[call](folder)
        return
    with pytest.raises(NativeWriteError) as caught:
        CALLS[call](folder)
    assert {"\n", "\x1b"}.isdisjoint(str(caught.value))
