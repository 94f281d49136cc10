"""What every commit of a batch promises, whatever happens around it: the target is as a dictionary that had each batch
once.

A machine draws batches and what befalls them: tasks that crash before the file, between file and commit and after the
commit, that run twice side by side or come late; other writers that append, delete and OPTIMIZE; a log that is cleaned,
a process that starts again. All ways by which changes come into a table are tried.
"""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from streaming_source.mirroring.writers.native import delta_rows, open_tables, rewritten_files
from streaming_source.mirroring.writers.native.data_files import NativeWriteError, write_file
from streaming_source.mirroring.writers.native.delta_rows import (
    TargetShape,
    append_files,
    has_rows,
    merge_rows,
    remove_rows,
)
from streaming_source.mirroring.writers.versions import READS, Commit

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])
OWNER = {"mariadb.mirror": "m"}
TARGET = TargetShape("current", ("id", "v"), ("id",), tuple(OWNER.items()))
FOREIGN = 100
"""The first key of rows that other writers append."""
KEYS = st.integers(0, 5)
CHANGES = st.dictionaries(KEYS, st.booleans(), min_size=1)
"""Keys, and whether the row is there afterwards."""
TROUBLES = ("none", "no room for the file", "before the commit", "after the commit")


def broken(*_: object, **__: object) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


class TargetUnderTrouble(RuleBasedStateMachine):
    """One target, and the dictionary that it has to equal."""

    def __init__(self) -> None:
        super().__init__()
        self.place = tempfile.TemporaryDirectory()
        self.folder = str(Path(self.place.name, "t"))
        self.model: dict[int, str | None] = {}
        self.number = 0
        self.foreign = FOREIGN

    def teardown(self) -> None:
        self.place.cleanup()

    @initialize()
    def make(self) -> None:
        DeltaTable.create(self.folder, SCHEMA, configuration=OWNER, raise_if_key_not_exists=False)

    def commit(self, number: int, part: str = "changes") -> Commit:
        return Commit("m", number, f"0-1-{number}", part)

    def merge(self, changes: dict[int, bool], number: int) -> bool:
        columns = [
            pa.array(list(changes), pa.int64()),
            pa.array([f"of {number}" for _ in changes], pa.string()),
            pa.array([not there for there in changes.values()], pa.bool_()),
        ]
        return merge_rows(self.folder, pa.table(columns, names=["0", "1", "2"]), TARGET, self.commit(number))

    def take(self, changes: dict[int, bool], number: int) -> None:
        for key, there in changes.items():
            self.model.pop(key, None)
            if there:
                self.model[key] = f"of {number}"

    def suffer(self, trouble: str, work: Callable[[], object]) -> None:
        """Do work as a task that meets trouble, and again as the one that Spark starts after it."""
        place, name = {
            "no room for the file": (rewritten_files, "write_file"),
            "before the commit": (delta_rows, "_commit_properties"),
            "after the commit": (delta_rows, "keep"),
        }.get(trouble, (delta_rows, ""))
        with pytest.MonkeyPatch.context() as patch:
            if name:
                patch.setattr(place, name, broken)
            try:
                work()
            except NativeWriteError as refused:
                assert "No space left on device" in str(refused)  # noqa: PT017  (no trouble is fine, too)
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
        write_deltalake(self.folder, pa.table([[key], ["foreign"]], SCHEMA), mode="append")
        self.model[key] = "foreign"

    def beside(self, deed: Callable[[], object], work: Callable[[], object]) -> None:
        """Do work during which something else is done, once, right before its commit."""
        whole = delta_rows._commit_properties

        def first(*arguments: Any, **more: Any) -> Any:
            delta_rows._commit_properties = whole
            deed()
            return whole(*arguments, **more)

        delta_rows._commit_properties = first
        try:
            work()
        finally:
            delta_rows._commit_properties = whole

    @rule(trouble=st.sampled_from(TROUBLES), rows=st.integers(1, 3))
    def first_rows(self, trouble: str, rows: int) -> None:
        """Rows that were read, with keys that no change has."""
        self.number += 1
        keys = [1000 * self.number + place for place in range(rows)]
        file = write_file(self.folder, SCHEMA, SCHEMA.names, pa.table([keys, ["read"] * rows], SCHEMA).to_batches())
        assert file is not None
        commit = self.commit(self.number, READS)
        self.suffer(trouble, lambda: append_files(self.folder, [file], TARGET, commit, once=True))
        self.model |= dict.fromkeys(keys, "read")

    @rule()
    def emptied(self) -> None:
        remove_rows(self.folder, TARGET, self.commit(self.number).metadata)
        self.model.clear()

    @rule()
    def foreign_append(self) -> None:
        self.foreign += 1
        write_deltalake(self.folder, pa.table([[self.foreign], ["foreign"]], SCHEMA), mode="append")
        self.model[self.foreign] = "foreign"

    @rule(key=KEYS)
    def foreign_delete(self, key: int) -> None:
        DeltaTable(self.folder).delete(f"id = {key}")
        self.model.pop(key, None)

    @rule()
    def foreign_optimize(self) -> None:
        DeltaTable(self.folder).optimize.compact()

    @rule()
    def another_process(self) -> None:
        open_tables._kept.clear()

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
        found = pa.table(DeltaTable(self.folder).to_pyarrow_table()).to_pylist()
        assert sorted((row["id"], row["v"]) for row in found) == sorted(self.model.items())


@pytest.mark.parametrize("way", ["small", "rewritten", "merged"])
def test_each_batch_is_in_the_target_once(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    if way == "rewritten":
        monkeypatch.setattr(rewritten_files, "SMALL_BYTES", -1)
    if way == "merged":
        monkeypatch.setattr(delta_rows, "is_rewritable", lambda *_: False)
    run_state_machine_as_test(
        TargetUnderTrouble, settings=settings(max_examples=15, stateful_step_count=15, deadline=None)
    )
