"""What an audit takes from a control table: the copies, and the tables above them, by both forms of the table."""

from __future__ import annotations

import datetime as dt
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import Row

from replica.schema.known_tables import tables_to_json
from replica.schema.table import ColumnSchema, TableSchema
from replica.snapshot.check.facts import Cascade
from streaming_source.auditing.mirror import from_mirror
from streaming_source.auditing.mirror.from_mirror import mirrored_copies
from streaming_source.mirroring.control.control_table import ControlRow, to_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLD_KEY = ["of_parent", ["shop", "parents"], ["ON DELETE CASCADE"], ["parent"], ["id"]]


def row(table: str, *keys: Cascade) -> ControlRow:
    column = ColumnSchema(name="id", data_type="int", column_type="int(11)")
    return ControlRow(
        mirror="mirror",
        source_database="shop",
        source_table=table,
        target=f"lake.{table}",
        mode="current",
        state="current",
        keys=("id",),
        position="0-1-5",
        batch=3,
        rows=10,
        committed_at=None,
        lag=None,
        updated_at=dt.datetime.now(dt.UTC),
        error=None,
        definition=tables_to_json({("shop", table): TableSchema(database="shop", table=table, columns=(column,))}),
        defined_at="0-1-1",
        again=None,
        rules=None,
        foreign_keys=keys,
    )


def session(rows: list[dict[str, Any]]) -> SparkSession:
    """A session that has a control table of these rows alone."""

    def select(*names: str) -> Any:
        found = [Row(**{name: _as_spark(one[name]) for name in names}) for one in rows]
        return SimpleNamespace(collect=lambda: found)

    return cast("SparkSession", SimpleNamespace(table=lambda _: SimpleNamespace(select=select, columns=list(rows[0]))))


def _as_spark(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_spark(one) for one in value]
    return Row(**value) if isinstance(value, dict) else value


@pytest.fixture(autouse=True)
def version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_mirror, "version_of", lambda *_: 7)


@pytest.mark.parametrize("form", ["columns", "version 0.1"])
def test_tables_above_a_copy_are_those_of_its_foreign_keys(form: str) -> None:
    key = Cascade("of_parent", ("shop", "parents"), ("ON DELETE CASCADE",), ("parent",), ("id",))
    rows = [to_columns(row("children", key)), to_columns(row("parents"))]
    if form == "version 0.1":
        for one, keys in zip(rows, ([OLD_KEY], []), strict=True):
            del one["foreign_keys"]
            one["definition"] = json.dumps(json.loads(one["definition"]) | {"cascades": keys})
    copies, left_out = mirrored_copies(session(rows), "lake.mirror_control")
    assert left_out == []
    assert {copy.table: (copy.ancestors, copy.unknown) for copy in copies} == {
        "shop.children": (frozenset({("shop", "parents")}), False),
        "shop.parents": (frozenset(), False),
    }


def test_a_target_that_is_gone_leaves_its_table_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def version_of(_: SparkSession, target: str, *__: object) -> int:
        if target == "lake.lost":
            raise AnalysisException("The table `lake`.`lost` cannot be found.\nIts plan.")
        return 7

    monkeypatch.setattr(from_mirror, "version_of", version_of)
    copies, left_out = mirrored_copies(session([to_columns(row("lost")), to_columns(row("kept"))]), "lake.control")
    assert [copy.table for copy in copies] == ["shop.kept"]
    (lost,) = left_out
    assert (lost.table, lost.reason) == (
        "shop.lost",
        "its target cannot be read: The table `lake`.`lost` cannot be found.",
    )
