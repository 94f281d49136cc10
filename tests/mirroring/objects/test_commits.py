"""Native commits to a table in a bucket, without Spark: two processes, and faults of the store at random.

Every batch is in the table once, whatever befalls its requests: errors, resets, silence, and answers that get lost
after the store did the work.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from streaming_source.mirroring.writers.native import deletion_vectors, table_commits, upkeep
from streaming_source.mirroring.writers.native.data_files import (
    NativeWriteError,
    files_of,
    with_deletion_vectors,
    write_file,
)
from streaming_source.mirroring.writers.native.deletion_vectors import commit_marks
from streaming_source.mirroring.writers.native.delta_rows import TargetShape, append_files, merge_rows, replace_rows
from streaming_source.mirroring.writers.native.log_files import last_checkpoint, write_commit
from streaming_source.mirroring.writers.native.rewritten_files import MARKED_BYTES, ChangedFiles
from streaming_source.mirroring.writers.native.table_commits import altered, create, set_columns
from streaming_source.mirroring.writers.target_format import READS, AddColumns, Commit
from streaming_source.sinks.storage import delta_table, files_in, use_storage
from streaming_source.transforms.transformed_images import TargetColumn
from tests.fixtures.s3_faults import Fault, FaultyStore, random_faults

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fixtures.object_store import ObjectStore
    from tests.fixtures.s3_faults import Request

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])
OWNER = {"mariadb.mirror": "m"}
TARGET = TargetShape("current", ("id", "v"), ("id",), tuple(OWNER.items()))
BUCKET = "lake"
QUICK = {"timeout": "2s", "connect_timeout": "2s", "max_retries": "4", "retry_timeout": "20s"}
WRITER = """
import sys, json
import pyarrow as pa
from tests.mirroring.objects import test_commits as here
folder, mirror, first, options = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.stdin.read())
here.use_storage(here.BUCKET, options)
for number in range(1, 21):
    here.insist(lambda: here.append(folder, number, [first + number], mirror))
"""


def make_table(name: str, store: ObjectStore, endpoint: str | None = None) -> str:
    use_storage(BUCKET, store.options())
    folder = f"s3://{BUCKET}/{name}"
    DeltaTable.create(
        folder,
        SCHEMA,
        configuration=OWNER,
        raise_if_key_not_exists=False,
        storage_options=store.options(),
    )
    use_storage(BUCKET, store.options(endpoint) | QUICK)
    return folder


def append(folder: str, number: int, keys: list[int], mirror: str = "m") -> None:
    rows = pa.table([keys, [f"read {number}"] * len(keys)], SCHEMA)
    file = write_file(folder, SCHEMA, SCHEMA.names, rows.to_batches())
    assert file is not None
    append_files(folder, [file], TARGET, Commit(mirror, number, f"0-1-{number}", READS), once=True)


def merge(folder: str, number: int, changes: dict[int, bool]) -> None:
    columns = [
        pa.array(list(changes), pa.int64()),
        pa.array([f"of {number}" for _ in changes], pa.string()),
        pa.array([not there for there in changes.values()], pa.bool_()),
    ]
    merge_rows(folder, pa.table(columns, names=["0", "1", "2"]), TARGET, Commit("m", number, f"0-1-{number}"))


def insist(work: Callable[[], object]) -> int:
    """Do work until it succeeds, as Spark does with a failed micro-batch; return the number of failures."""
    for failures in range(40):
        try:
            work()
        except (NativeWriteError, OSError) as error:
            assert "secret-" not in str(error)  # noqa: PT017
        else:
            return failures
    raise AssertionError("the store never let the work through")


def held(folder: str, store: ObjectStore) -> dict[int, Any]:
    table = DeltaTable(folder, storage_options=store.options())
    rows = pa.table(QueryBuilder().register("t", table).execute("SELECT id, v FROM t").read_all()).to_pylist()
    assert len({row["id"] for row in rows}) == len(rows), "doubled rows"
    return {row["id"]: row["v"] for row in rows}


@pytest.mark.parametrize("seed", range(3))
def test_every_batch_is_there_once_whatever_befalls_requests(seed: int, store: ObjectStore) -> None:
    with FaultyStore("127.0.0.1", store.port, random_faults(seed, 0.1, longest_s=3.0)) as proxy:
        folder = make_table(f"faults-{seed}", store, proxy.endpoint)
        chance, model = random.Random(seed), dict[int, str]()
        for number in range(1, 21):
            if chance.random() < 0.3:
                keys = [1000 * number + place for place in range(3)]
                insist(partial(append, folder, number, keys))
                model |= dict.fromkeys(keys, f"read {number}")
            else:
                changes = {chance.randrange(12): chance.random() < 0.7 for _ in range(4)}
                insist(partial(merge, folder, number, changes))
                model = {key: value for key, value in model.items() if key not in changes}
                model |= {key: f"of {number}" for key, there in changes.items() if there}
            assert held(folder, store) == model, number
        assert proxy.faults > 10


def test_rows_of_a_small_table_are_replaced_whatever_befalls_requests(store: ObjectStore) -> None:
    with FaultyStore("127.0.0.1", store.port, random_faults(7, 0.1, longest_s=3.0)) as proxy:
        folder = make_table("replaced", store, proxy.endpoint)
        for number in range(15):
            insist(partial(replace_rows, folder, {"id": [number], "v": ["x"]}, "{}"))
            assert held(folder, store) == {number: "x"}


def test_a_commit_whose_answer_was_lost_keeps_its_files(store: ObjectStore) -> None:
    def lost(request: Request) -> Fault | None:
        return Fault(lose_answer=True) if request.conditional and request.method == "PUT" else None

    with FaultyStore("127.0.0.1", store.port, lost) as proxy:
        folder = make_table("lost", store, proxy.endpoint)
        append(folder, 1, [1, 2])
        merge(folder, 2, {1: True, 2: False})
        assert held(folder, store) == {1: "of 2"}
        assert proxy.faults >= 2


@pytest.mark.parametrize("work", ["append", "merge", "mark"])
def test_a_commit_that_arrives_after_its_client_gave_up_has_its_files(
    store: ObjectStore, tmp_path: Path, work: str
) -> None:
    """Every PUT of a commit waits until its client has given up, and is done then."""
    late = multiprocessing.get_context("fork").Value("b", 0)

    def delayed(request: Request) -> Fault | None:
        of_commit = request.conditional and request.method == "PUT" and late.value
        return Fault(delay_s=4.0) if of_commit else None

    with FaultyStore("127.0.0.1", store.port, delayed) as proxy:
        if work == "mark":
            folder = MarkedTable(tmp_path, f"late-{work}", store, proxy.endpoint).folder
        else:
            folder = make_table(f"late-{work}", store, proxy.endpoint)
            append(folder, 1, [1, 2])
        use_storage(BUCKET, store.options(proxy.endpoint) | QUICK | {"max_retries": "0", "timeout": "1s"})
        change = (
            partial(append, folder, 2, [-2]) if work == "append" else partial(merge, folder, 2, {-2: True, 1: False})
        )
        late.value = 1
        with pytest.raises((NativeWriteError, OSError)):
            change()
        time.sleep(4.0)
        late.value = 0
        insist(change)
    found = held(folder, store)
    assert -2 in found
    assert (1 in found) == (work == "append")


def test_two_processes_append_and_neither_loses_a_commit(store: ObjectStore) -> None:
    folder = make_table("two", store)
    writers = []
    for mirror, first in (("m1", 100), ("m2", 200)):
        command = [sys.executable, "-c", WRITER, folder, mirror, str(first)]
        writer = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
        assert writer.stdin is not None
        writer.stdin.write(json.dumps(store.options()))
        writer.stdin.close()
        writers.append(writer)
    assert [writer.wait(200) for writer in writers] == [0, 0]
    assert sorted(held(folder, store)) == [first + number for first in (100, 200) for number in range(1, 21)]
    assert DeltaTable(folder, storage_options=store.options()).version() == 40


def test_files_of_all_tables_use_one_client_of_each_library(store: ObjectStore) -> None:
    """A client keeps its connection, so the store counts clients."""
    with FaultyStore("127.0.0.1", store.port) as proxy:
        use_storage(BUCKET, store.options(proxy.endpoint))
        for number in range(30):
            files = files_in(f"s3://{BUCKET}/clients-{number % 5}")
            files.create(f"a{number}", b"of obstore")
            assert files.identity(f"a{number}")
            with files.read(f"a{number}") as file:
                assert file.read() == b"of obstore"
            with files.write(f"b{number}") as file:
                file.write(b"12")
        assert sorted(files.sizes()) == sorted((path, 2 if path[0] == "b" else 10) for path, _ in files.times())
        assert proxy.connections <= 4, "two clients, which may open one more connection each"


def test_upkeep_of_a_table_in_a_bucket(store: ObjectStore) -> None:
    folder = make_table("upkept", store)
    for number in range(1, upkeep.FEW_FILES + 3):
        append(folder, number, [number])
    before = held(folder, store)
    assert upkeep.compact(folder) >= upkeep.FEW_FILES
    assert held(folder, store) == before
    assert len(delta_table(folder).file_uris()) == 1
    list(upkeep._write_checkpoint(folder))
    assert last_checkpoint(folder) == delta_table(folder).version()
    with files_in(folder).write("_delta_log/00000000000000000001.crc") as file:
        file.write(b"{}")
    table = delta_table(folder)
    table.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    list(upkeep._remove_files(folder))
    left = [path for path, _ in files_in(folder).sizes() if path.endswith(".parquet") and "_delta_log" not in path]
    assert len(left) == 1
    assert held(folder, store) == before


def add_column(folder: str, name: str, metadata: str = "{}") -> None:
    action = AddColumns((TargetColumn(name, "INT", nullable=True, comment="new"),))
    set_columns(folder, lambda fields: altered(fields, action), metadata)


def test_columns_are_added_once_whatever_befalls_requests(store: ObjectStore) -> None:
    with FaultyStore("127.0.0.1", store.port, random_faults(3, 0.2, longest_s=3.0)) as proxy:
        folder = make_table("columns-faults", store, proxy.endpoint)
        for number in range(20):
            insist(partial(add_column, folder, f"c{number}"))
        assert proxy.faults > 10
    table = DeltaTable(folder, storage_options=store.options())
    assert [field.name for field in table.schema().fields] == ["id", "v", *(f"c{number}" for number in range(20))]
    assert table.version() == 20, "one commit for each column"


@pytest.mark.parametrize("fault", [Fault(lose_answer=True), Fault(delay_s=4.0)], ids=["lost", "late"])
def test_a_column_whose_answer_was_lost_is_added_once(store: ObjectStore, fault: Fault) -> None:
    def of_commit(request: Request) -> Fault | None:
        return fault if request.conditional and request.method == "PUT" else None

    with FaultyStore("127.0.0.1", store.port, of_commit) as proxy:
        folder = make_table(f"columns-{fault.delay_s}", store, proxy.endpoint)
        limits = {"timeout": "1s", "max_retries": "2", "retry_timeout": "8s"}
        use_storage(BUCKET, store.options(proxy.endpoint) | QUICK | limits)
        insist(partial(add_column, folder, "w"))
        assert proxy.faults > 0
        time.sleep(fault.delay_s)  # each PUT that its client gave up arrives
        add_column(folder, "x")
    table = DeltaTable(folder, storage_options=store.options())
    assert [field.name for field in table.schema().fields] == ["id", "v", "w", "x"]
    assert table.version() == 2


def test_another_writer_comes_before_the_columns(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_table("columns-conflict", store)
    others = iter([True])

    def late(*arguments: Any) -> Any:
        if next(others, False):
            append(folder, 1, [7], "other")
        return write_commit(*arguments)

    monkeypatch.setattr(table_commits, "write_commit", late)
    add_column(folder, "w")
    assert DeltaTable(folder, storage_options=store.options()).version() == 2
    found = QueryBuilder().register("t", delta_table(folder)).execute("SELECT id, w FROM t").read_all()
    assert pa.table(found).to_pylist() == [{"id": 7, "w": None}]


def created(local: Path, properties: dict[str, str]) -> Path:
    """Create a table without rows; delta-rs would give one with deletion vectors more features."""
    columns = [
        TargetColumn("id", "BIGINT", nullable=False, comment=""),
        TargetColumn("v", "STRING", nullable=True, comment=""),
    ]
    create(str(local), columns, "", properties, "{}")
    return local


def put(local: Path, folder: str) -> None:
    """Copy a table into a bucket."""
    for source in (path for path in local.rglob("*") if path.is_file()):
        with files_in(folder).write(str(source.relative_to(local))) as copy:
            copy.write(source.read_bytes())


class MarkedTable:
    """Table in a bucket with a file that is large enough to be marked, and what it has to have."""

    ROWS = 400_000
    PROPERTIES = OWNER | {
        "delta.enableDeletionVectors": "true",
        "delta.deletedFileRetentionDuration": "interval 1 hours",
        "delta.checkpointInterval": "5",
    }

    def __init__(self, place: Path, name: str, store: ObjectStore, endpoint: str | None = None) -> None:
        use_storage(BUCKET, store.options())
        self.folder = f"s3://{BUCKET}/{name}"
        put(created(place / name, self.PROPERTIES), self.folder)
        chance = random.Random(name)
        self.model = {key: chance.randbytes(16).hex() for key in range(self.ROWS)}
        rows = pa.table([list(self.model), list(self.model.values())], SCHEMA)
        file = write_file(self.folder, SCHEMA, SCHEMA.names, rows.to_batches())
        assert file is not None
        assert file.size > MARKED_BYTES
        append_files(self.folder, [file], TARGET, Commit("m", 1, "", READS), once=True)
        use_storage(BUCKET, store.options(endpoint) | QUICK)

    def change(self, number: int, keys: list[int], *, insisting: bool = False) -> None:
        """Delete every third of these keys, and change the others."""
        changes = {key: place % 3 != 0 for place, key in enumerate(keys)}
        work = partial(merge, self.folder, number, changes)
        insist(work) if insisting else work()
        self.model = {key: value for key, value in self.model.items() if key not in changes}
        self.model |= {key: f"of {number}" for key, there in changes.items() if there}

    def vector_files(self, store: ObjectStore) -> set[str]:
        use_storage(BUCKET, store.options())
        return {path for path, _ in files_in(self.folder).times() if path.startswith("deletion_vector_")}


def test_rows_are_marked_whatever_befalls_requests(store: ObjectStore, tmp_path: Path) -> None:
    chance = random.Random(5)
    with FaultyStore("127.0.0.1", store.port, random_faults(5, 0.1, longest_s=3.0)) as proxy:
        table = MarkedTable(tmp_path, "marked-faults", store, proxy.endpoint)
        for number in range(2, 14):  # checkpoints are among them
            table.change(number, chance.sample(range(table.ROWS + 20), 30), insisting=True)
        assert proxy.faults > 10
    use_storage(BUCKET, store.options())
    assert held(table.folder, store) == table.model
    marked = DeltaTable(table.folder, storage_options=store.options())
    assert with_deletion_vectors(marked)
    assert last_checkpoint(table.folder) > 0
    assert [one for one in marked.history() if one["operation"] == "MERGE"]


def test_marks_whose_answer_was_lost_are_one_commit(store: ObjectStore, tmp_path: Path) -> None:
    def lost(request: Request) -> Fault | None:
        return Fault(lose_answer=True) if request.conditional and request.method == "PUT" else None

    with FaultyStore("127.0.0.1", store.port, lost) as proxy:
        table = MarkedTable(tmp_path, "marked-lost", store, proxy.endpoint)
        table.change(2, [1, 2, 3])
        table.change(3, [3, 4, 5])
        assert proxy.faults >= 2
    assert held(table.folder, store) == table.model
    assert DeltaTable(table.folder, storage_options=store.options()).version() == 3


def test_marks_after_a_commit_of_another_writer(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = MarkedTable(tmp_path, "marked-conflict", store)
    others = iter([True])

    def late(*arguments: Any) -> Any:
        if next(others, False):
            append(table.folder, 2, [1_000_000], "other")
        return write_commit(*arguments)

    monkeypatch.setattr(deletion_vectors, "write_commit", late)
    table.change(3, [1, 2, 3])
    table.model[1_000_000] = "read 2"
    assert held(table.folder, store) == table.model
    assert len(table.vector_files(store)) == 1, "the vectors of the first attempt are removed"


def test_unused_vectors_are_removed_from_a_bucket(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = MarkedTable(tmp_path, "marked-upkept", store)
    for number in range(2, 6):
        table.change(number, [number, 10 + number])
    assert len(table.vector_files(store)) == 4
    list(upkeep._remove_files(table.folder))
    assert len(table.vector_files(store)) == 4, "old versions can be read for an hour"
    monkeypatch.setattr(deletion_vectors.time, "time", lambda: 2_000_000_000.0 + 86_400 * 20_000)
    list(upkeep._remove_files(table.folder))
    assert len(table.vector_files(store)) == 1
    assert held(table.folder, store) == table.model


def test_deletion_vectors_of_a_table_in_a_bucket(store: ObjectStore, tmp_path: Path) -> None:
    """The table is made on a disk and copied, so its first vectors are in an object that no task put there."""
    local = created(tmp_path / "marked", OWNER | {"delta.enableDeletionVectors": "true"})
    schema = pa.schema(DeltaTable(local).schema().to_arrow())
    file = write_file(
        str(local), schema, ["id", "v"], [pa.RecordBatch.from_pydict({"id": [1, 2, 3], "v": ["a", "b", "c"]})]
    )
    assert file is not None
    append_files(str(local), [file], TARGET, Commit("m", 1, "", READS), once=True)
    table = DeltaTable(local)
    (data,) = files_of(table)
    commit_marks(table, str(local), ChangedFiles([], {data: np.array([1])}), [], Commit("m", 2, ""))
    folder = f"s3://{BUCKET}/marked"
    use_storage(BUCKET, store.options())
    put(local, folder)
    assert with_deletion_vectors(delta_table(folder)) == {data.path}
    changed = pa.table({"0": [2, 3], "1": ["new", "new"], "2": [False, True]})
    assert merge_rows(folder, changed, TARGET, Commit("m", 3, ""))
    found = QueryBuilder().register("t", delta_table(folder)).execute("SELECT id, v FROM t ORDER BY id").read_all()
    assert pa.table(found).to_pylist() == [{"id": 1, "v": "a"}, {"id": 2, "v": "new"}]
