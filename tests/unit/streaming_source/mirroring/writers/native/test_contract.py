"""What every commit of a batch promises, whatever happens around it: the target is as a dictionary that had each batch
once.

A machine draws batches and what befalls them: tasks that crash before the file, between file and commit and after the
commit, that run twice side by side or come late; other writers that append, delete and OPTIMIZE; a log that is cleaned,
a process that starts again. All ways by which changes come into a table are tried: files that are written again, a
MERGE, the versions of a history whose images lack a column, and a table without a key, whose rows are counted.
"""

from __future__ import annotations

import errno
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from streaming_source.mirroring.writers.native import deletion_vectors, delta_rows, rewritten_files
from streaming_source.mirroring.writers.native.data_files import NativeWriteError, write_file
from streaming_source.mirroring.writers.native.delta_rows import (
    TargetShape,
    append_files,
    has_rows,
    merge_rows,
    refused,
    remove_rows,
)
from streaming_source.mirroring.writers.native.merge import counted_rows
from streaming_source.mirroring.writers.native.merge.counted_rows import CountedChanges, counted_files
from streaming_source.mirroring.writers.native.merge.partial_images import KEPT
from streaming_source.mirroring.writers.native.table_commits import create
from streaming_source.mirroring.writers.target_format import READS, Commit
from streaming_source.transforms.transformed_images import TargetColumn

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])
OWNER = {"mariadb.mirror": "m"}
MARKS = {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "3"}
TYPES = {
    pa.int64(): "BIGINT",
    pa.string(): "STRING",
    pa.bool_(): "BOOLEAN",
    pa.timestamp("us", "UTC"): "TIMESTAMP",
}
TARGET = TargetShape("current", ("id", "v"), ("id",), tuple(OWNER.items()))
FOREIGN = 100
"""The first key of rows that other writers append."""
KEYS = st.integers(0, 5)
CHANGES = st.dictionaries(KEYS, st.booleans(), min_size=1)
"""Keys, and whether the row is there afterwards."""
TROUBLES = (
    *("none", "no room for the file", "no room for the marks", "before the commit", "before the commit of marks"),
    *("before the checkpoint", "after the commit"),
)


def stored(folder: str) -> list[dict[str, Any]]:
    """The rows of a table, by delta-rs."""
    found = QueryBuilder().register("t", DeltaTable(folder)).execute("SELECT * FROM t")
    return pa.table(found.read_all()).to_pylist()


def broken(*_: object, **__: object) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


class TargetUnderTrouble(RuleBasedStateMachine):
    """One target, and the dictionary that it has to equal."""

    schema = SCHEMA
    target = TARGET
    part = "changes"

    def __init__(self) -> None:
        super().__init__()
        self.place = tempfile.TemporaryDirectory()
        self.folder = str(Path(self.place.name, "t"))
        self.model: dict[Any, Any] = {}
        self.number = 0
        self.foreign = FOREIGN

    def teardown(self) -> None:
        self.place.cleanup()

    @initialize()
    def make(self) -> None:
        columns = [TargetColumn(one.name, TYPES[one.type], nullable=one.nullable, comment="") for one in self.schema]
        create(self.folder, columns, "", OWNER | MARKS, "{}")

    def commit(self, number: int, part: str | None = None) -> Commit:
        return Commit("m", number, f"0-1-{number}", part or self.part)

    def rows(self, *rows: tuple[Any, ...]) -> pa.Table:
        return pa.table([list(column) for column in zip(*rows, strict=True)], self.schema)

    def row(self, key: int, value: str) -> tuple[Any, ...]:
        """A row as others append it."""
        return key, value

    def put(self, key: int, value: str) -> None:
        self.model[key] = value

    def drop(self, key: int) -> None:
        self.model.pop(key, None)

    def held(self) -> dict[Any, Any]:
        rows = stored(self.folder)
        assert len({row["id"] for row in rows}) == len(rows)
        return {row["id"]: row["v"] for row in rows}

    def merge(self, changes: dict[int, bool], number: int) -> bool:
        columns = [
            pa.array(list(changes), pa.int64()),
            pa.array([f"of {number}" for _ in changes], pa.string()),
            pa.array([not there for there in changes.values()], pa.bool_()),
        ]
        return merge_rows(self.folder, pa.table(columns, names=["0", "1", "2"]), TARGET, self.commit(number))

    def take(self, changes: dict[int, bool], number: int) -> None:
        for key, there in changes.items():
            self.drop(key)
            if there:
                self.put(key, f"of {number}")

    def suffer(self, trouble: str, work: Callable[[], object]) -> None:
        """Do work as a task that meets trouble, and again as the one that Spark starts after it."""
        place, name = {
            "no room for the file": (rewritten_files, "write_file"),
            "no room for the marks": (deletion_vectors, "write_vectors"),
            "before the commit of marks": (deletion_vectors, "write_commit"),
            "before the checkpoint": (DeltaTable, "create_checkpoint"),
            "before the commit": (delta_rows, "_commit_properties"),
            "after the commit": (delta_rows, "keep"),
        }.get(trouble, (delta_rows, ""))
        with pytest.MonkeyPatch.context() as patch:
            if name:
                patch.setattr(place, name, broken)
            try:
                work()
            except NativeWriteError as error:
                assert "No space left on device" in str(error)  # noqa: PT017  (no trouble is fine, too)
        work()

    @rule(changes=CHANGES, trouble=st.sampled_from(TROUBLES))
    def batch(self, changes: dict[int, bool], trouble: str) -> None:
        self.number += 1
        before = dict(self.model)
        self.suffer(trouble, lambda: self.merge(changes, self.number))
        self.take(changes, self.number)
        # A MERGE that finds nothing to do makes no commit.
        assert has_rows(self.folder, self.commit(self.number)) or self.model == before
        assert not has_rows(self.folder, self.commit(self.number + 1))

    @rule(changes=CHANGES, data=st.data())
    def late_task(self, changes: dict[int, bool], data: st.DataObject) -> None:
        last = DeltaTable(self.folder).transaction_version(self.commit(0).writer)
        if last is not None:
            assert not self.merge(changes, data.draw(st.integers(1, last)))

    @rule(changes=CHANGES)
    def twins(self, changes: dict[int, bool]) -> None:
        """Two tasks with the same work: the second one begins and ends while the first one has its rows ready."""
        self.number += 1
        done: list[bool] = []
        self.beside(lambda: done.append(self.merge(changes, self.number)), lambda: self.merge(changes, self.number))
        assert done == [True]
        self.take(changes, self.number)

    @rule(changes=CHANGES, deed=st.sampled_from(("append", "optimize", "the same keys")))
    def other_writer_meanwhile(self, changes: dict[int, bool], deed: str) -> None:
        self.number += 1
        key = min(changes)
        changes[key] |= deed == "the same keys"  # who deletes a row that is not there yet came first
        deeds: dict[str, Callable[[], None]] = {
            "append": self.foreign_append,
            "optimize": self.foreign_optimize,
            "the same keys": lambda: self.foreign_row(key),
        }
        self.beside(deeds[deed], lambda: self.merge(changes, self.number))
        self.take(changes, self.number)

    def foreign_row(self, key: int) -> None:
        self.foreign_delete(key)
        write_deltalake(self.folder, self.rows(self.row(key, "foreign")), mode="append")
        self.put(key, "foreign")

    def beside(self, deed: Callable[[], object], work: Callable[[], object]) -> None:
        """Do work during which something else is done, once, right before its commit."""
        places = {delta_rows: "_commit_properties", deletion_vectors: "write_commit"}
        whole = {module: getattr(module, name) for module, name in places.items()}

        def restore() -> None:
            for module, name in places.items():
                setattr(module, name, whole[module])

        def first(module: ModuleType, *arguments: Any, **more: Any) -> Any:
            restore()
            deed()
            return whole[module](*arguments, **more)

        for module, name in places.items():
            setattr(module, name, partial(first, module))
        try:
            work()
        finally:
            restore()

    @rule(trouble=st.sampled_from(TROUBLES), rows=st.integers(1, 3))
    def first_rows(self, trouble: str, rows: int) -> None:
        """Rows that were read, with keys that no change has."""
        self.number += 1
        keys = [1000 * self.number + place for place in range(rows)]
        read, commit = self.rows(*(self.row(key, "read") for key in keys)), self.commit(self.number, READS)

        def append() -> None:
            file = write_file(self.folder, self.schema, self.schema.names, read.to_batches())
            assert file is not None
            append_files(self.folder, [file], self.target, commit, once=True)

        self.suffer(trouble, append)
        for key in keys:
            self.put(key, "read")

    @rule()
    def emptied(self) -> None:
        remove_rows(self.folder, self.target, self.commit(self.number).metadata)
        self.model.clear()

    @rule()
    def foreign_append(self) -> None:
        self.foreign += 1
        write_deltalake(self.folder, self.rows(self.row(self.foreign, "foreign")), mode="append")
        self.put(self.foreign, "foreign")

    @rule(key=KEYS)
    def foreign_delete(self, key: int) -> None:
        DeltaTable(self.folder).delete(f"id = {key}")
        self.drop(key)

    @rule()
    def foreign_optimize(self) -> None:
        DeltaTable(self.folder).optimize.compact()

    @rule()
    def another_process(self) -> None:
        delta_rows._kept.clear()

    @rule()
    def cleaned_log(self) -> None:
        table = DeltaTable(self.folder)
        table.create_checkpoint()
        for number in range(table.version()):
            Path(self.folder, "_delta_log", f"{number:020d}.json").unlink(missing_ok=True)

    @invariant()
    def equals_the_dictionary(self) -> None:
        if not os.path.exists(self.folder):  # noqa: PTH110  (before `make`)
            return
        assert self.held() == self.model


class HistoryUnderTrouble(TargetUnderTrouble):
    """A history: `model` has the value, the column that images lack, and the end of each version, by its key and its
    beginning.
    """

    schema = pa.schema(
        [
            *(pa.field("id", pa.int64()), pa.field("v", pa.string()), pa.field("w", pa.string())),
            *(pa.field(name, pa.timestamp("us", "UTC")) for name in ("_valid_from", "_valid_to")),
            *(pa.field(name, pa.string()) for name in ("_from_gtid", "_to_gtid", "_from_sequence", "_to_sequence")),
            pa.field("_current", pa.bool_()),
        ]
    )
    target = TargetShape("history", tuple(schema.names), ("id",), tuple(OWNER.items()))

    def row(self, key: int, value: str) -> tuple[Any, ...]:
        return key, value, "w", None, None, value, None, value, None, True

    def merge(self, changes: dict[int, bool], number: int) -> bool:
        at = self.commit(number).position
        closing = [
            (key, None, None, None, None, *((at if there else None, at) * 2), False, True, False)
            for key, there in changes.items()
        ]
        opening = [
            (key, f"of {number}", None, None, None, at, None, at, None, True, False, True)
            for key, there in changes.items()
            if there
        ]
        fields = [*self.schema, pa.field("close", pa.bool_()), pa.field("kept", pa.bool_())]
        columns = zip(zip(*closing, *opening, strict=True), fields, strict=True)
        names = [*map(str, range(len(self.schema) + 1)), f"{KEPT}2"]
        rows = pa.table([pa.array(values, field.type) for values, field in columns], names)
        return merge_rows(self.folder, rows, self.target, self.commit(number))

    def take(self, changes: dict[int, bool], number: int) -> None:
        at = self.commit(number).position
        for key, there in changes.items():
            kept = None
            for version in [one for one, (_, _, end) in self.model.items() if one[0] == key and end is None]:
                value, kept, _ = self.model[version]
                self.model[version] = value, kept, at
            if there:
                self.model[key, at] = f"of {number}", kept, None

    def put(self, key: int, value: str) -> None:
        self.model[key, value] = value, "w", None

    def drop(self, key: int) -> None:
        for version in [one for one in self.model if one[0] == key]:
            del self.model[version]

    def held(self) -> dict[Any, Any]:
        rows = stored(self.folder)
        assert all(row["_current"] == (row["_to_gtid"] is None) for row in rows)
        found = {(row["id"], row["_from_gtid"]): (row["v"], row["w"], row["_to_gtid"]) for row in rows}
        assert len(found) == len(rows)
        return found


class CountsUnderTrouble(TargetUnderTrouble):
    """A table without a key: the driver commits what a task wrote."""

    target = TARGET._replace(keys=())
    part = READS

    def merge(self, changes: dict[int, bool], number: int) -> bool:
        """Do a batch, again if another writer took files away meanwhile. Rows that a batch took away lack if it comes
        again: its token tells why.
        """
        gone = [(key, self.model[key], -1) for key in changes if key in self.model]
        comes = [(key, f"of {number}", 1) for key, there in changes.items() if there]
        keys, values, more = zip(*gone, *comes, strict=True) if gone or comes else ((), (), ())
        counted = CountedChanges(pa.table([keys, values], SCHEMA), np.array(more, np.int64))
        commit = self.commit(number)
        while True:
            try:
                with refused(self.folder):
                    files, replaced = counted_files(delta_rows.opened(self.folder), self.folder, counted)
                return append_files(self.folder, files, self.target, commit, once=True, replaced=replaced)
            except NativeWriteError as error:
                if "lacks a changed row" in str(error) and has_rows(self.folder, commit):
                    return False
                if "another writer changed files" not in str(error):
                    raise

    def foreign_row(self, key: int) -> None:  # noqa: ARG002  (that of the other targets)
        """Append another row: one that has to go cannot be changed by others without a loss."""
        self.foreign_append()


MACHINES = {"versions": HistoryUnderTrouble, "counted": CountsUnderTrouble, "counted in files": CountsUnderTrouble}


@pytest.mark.parametrize("way", ["small", "rewritten", "marked", "merged", *MACHINES])
def test_each_batch_is_in_the_target_once(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    if way in ("rewritten", "marked"):
        monkeypatch.setattr(rewritten_files, "SMALL_BYTES", -1)
    if way == "marked":
        monkeypatch.setattr(rewritten_files, "MARKED_BYTES", 0)
        monkeypatch.setattr(rewritten_files, "MOST_MARKED", 0.7)
    if way == "merged":
        monkeypatch.setattr(delta_rows, "is_rewritable", lambda *_: False)
    if way == "counted in files":
        monkeypatch.setattr(counted_rows, "SMALL_BYTES", -1)
    run_state_machine_as_test(
        MACHINES.get(way, TargetUnderTrouble),
        settings=settings(max_examples=15, stateful_step_count=15, deadline=None),
    )
