"""Runs of rows with one table map, and tables whose rows cannot be decoded beside others that can."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest

from replica.errors import SchemaError
from replica.protocol.rows.table_map import parse_table_map
from streaming_source.mirroring.batch.manifest import read_manifest
from streaming_source.rows.partition import ChangePartition, MappedRange
from streaming_source.rows.read_plan import ReadPlan
from streaming_source.rows.reader import read_changes
from streaming_source.selection.resolver import SelectedTables
from tests.unit.schema.ddl import table
from tests.unit.streaming_source.mirroring.batch.test_manifest import FILE, PLAN, READ, partition, rows

if TYPE_CHECKING:
    from streaming_source.mirroring.batch.manifest import TableMapRun

BARE = FILE.with_name("transactions.binlog")


def met(plan: ReadPlan = PLAN, **more: Any) -> dict[tuple[str, str], tuple[list[TableMapRun], int]]:
    (batch,) = read_manifest(partition(**more), plan)
    return {
        (row["database"], row["table"]): (pickle.loads(row["maps"]), row["reads"] + row["changes"])  # noqa: S301
        for row in batch.to_pylist()
        if row["maps"] is not None
    }


def test_each_run_has_the_places_of_its_rows_and_the_table_map_that_they_came_with() -> None:
    found = met()
    places: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for row in rows():
        if row["op"] != "ddl":
            at = row["transaction"]
            places.setdefault((row["database"], row["table"]), []).append((at["sequence_number"], at["ordinal"]))
    assert found.keys() == places.keys()
    for name, (runs, _) in found.items():
        assert [run.fault for run in runs] == [""] * len(runs)
        assert runs[0].first == places[name][0]
        for run in runs:
            table_map = parse_table_map(bytes(8) + run.content)
            assert (table_map.database, table_map.table) == name
            assert run.first in places[name]
            assert run.last in places[name]
            assert not run.read


def test_rows_that_were_read_are_runs_of_their_own() -> None:
    assert {run.read for runs, _ in met(read=READ).values() for run in runs} == {True}


def test_a_definition_that_does_not_fit_is_the_fault_of_its_table_and_ends_nothing() -> None:
    name = next(name for name, (runs, _) in met().items() if len(runs) == 1)
    wrong = {name: table("x INT, y INT, z INT, more VARCHAR(7)")}
    bare = ReadPlan("variant", SelectedTables(("*.*",), wrong, include_ddl=True), None, "")
    found = met(bare)
    assert found.keys() == met().keys()
    assert {one: count for one, (_, count) in found.items()} == {one: count for one, (_, count) in met().items()}


@pytest.mark.parametrize("lenient", [True, False])
def test_rows_without_names_and_without_a_definition(lenient: bool) -> None:  # noqa: FBT001
    """Beside a table that is known, they are the fault of their own table; a query without a mirror ends."""
    part = MappedRange(str(BARE), 4, BARE.stat().st_size, checksum=True, file=BARE.name)
    plan = ReadPlan("variant", SelectedTables(("*.*",), {}, include_ddl=True), None, "")
    if not lenient:
        with pytest.raises(SchemaError):
            list(read_changes(ChangePartition((part,)), plan))
        return
    (batch,) = read_manifest(ChangePartition((part,)), plan)
    maps = [pickle.loads(row["maps"]) for row in batch.to_pylist() if row["maps"] is not None]  # noqa: S301
    assert maps
    assert all("do not name their columns" in run.fault for runs in maps for run in runs)
