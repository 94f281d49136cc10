"""A manifest says of a partition what reading all of its rows would: counted, and with the rows where it says."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streaming_source.mirroring.batch.manifest import (
    DELETES,
    INSERTS,
    KNOWN,
    LOST,
    RANGE,
    STATEMENT,
    TOUCHED,
    UPDATES,
    manifest_schema,
    read_manifest,
)
from streaming_source.mirroring.batch.manifest import numbered as numbered_parts
from streaming_source.mirroring.batch.table_rows import RowsOfTable, numbered
from streaming_source.rows.partition import ChangePartition, MappedRange, ReadRows
from streaming_source.rows.read_plan import ReadPlan
from streaming_source.rows.reader import read_changes
from streaming_source.schema.row_schema import TableColumn, arrow_schema, envelope_schema
from streaming_source.selection.resolver import SelectedTables
from tests.kit.some import some

FILE = Path(__file__).resolve().parents[4] / "vectors" / "11.8" / "metadata_full.binlog"
PLAN = ReadPlan("variant", SelectedTables(("*.*",), {}, include_ddl=True), None, "127.0.0.1:3306")
READ = ReadRows(0, 1, 77, 1_700_000_000, 5)
KEYED = (TableColumn("a", "INT"), TableColumn("b", "INT"), TableColumn("c", "STRING"))


def partition(read: ReadRows | None = None) -> ChangePartition:
    part = MappedRange(str(FILE), 4, FILE.stat().st_size, checksum=True, file=FILE.name, read=read)
    return ChangePartition((part, part) if read is None else (part,))


def rows(read: ReadRows | None = None) -> list[dict[str, Any]]:
    return [row for batch in read_changes(partition(read), PLAN) for row in batch.to_pylist()]


def manifest(read: ReadRows | None = None) -> list[dict[str, Any]]:
    (batch,) = read_manifest(partition(read), PLAN)
    assert batch.schema == arrow_schema(manifest_schema())
    return list(batch.to_pylist())


def test_numbers_are_those_of_the_rows() -> None:
    expected = Counter((row["database"], row["table"]) for row in rows() if row["op"] != "ddl")
    first, *found = manifest()
    tables = [row for row in found if row[KNOWN] is not None]
    assert first[RANGE] is not None
    assert first["table"] is None
    assert len(expected) > 10
    assert {(row["database"], row["table"]): row["changes"] for row in tables} == expected
    assert {row["reads"] for row in tables} == {0}
    size = partition().size
    assert size - len(tables) <= sum(row["bytes"] for row in tables) <= size
    assert {row["partial"] for row in tables} == {False}
    assert {tuple(row["domains"]) for row in tables} == {(0,)}
    for row in tables:
        times = [
            one["transaction"]["commit_timestamp"].timestamp()
            for one in rows()
            if (one["database"], one["table"], one["op"] != "ddl") == (row["database"], row["table"], True)
        ]
        assert row["committed_us"] == max(times) * 1_000_000


def test_statements_are_those_of_the_rows() -> None:
    expected = [
        (row["database"], row["table"], at["gtid"], str(at["sequence_number"]), at["ordinal"], row["source"]["sql"])
        for row in rows()
        if row["op"] == "ddl"
        for at in [row["transaction"]]
    ]
    found = [
        (row["database"], row["table"], one["gtid"], one["number"], one["ordinal"], one["sql"])
        for row in manifest()
        if (one := row[STATEMENT]) is not None
    ]
    assert len(expected) > 10
    assert found == expected


def test_rows_that_were_read_count_as_such_and_bring_no_statement() -> None:
    _, *found = manifest(READ)
    assert sum(row["reads"] for row in found) == len(rows(READ)) > 10
    assert {row["changes"] for row in found} == {0}
    assert {tuple(row["domains"]) for row in found} == {()}
    assert {row["committed_us"] for row in found} == {1_700_000_000_000_000}
    assert all(row[STATEMENT] is None for row in found)


def test_of_tables_that_are_not_selected_it_tells_what_is_done_to_them_and_no_more() -> None:
    """A foreign key of a table that is selected may cascade it."""
    bits = {"insert": INSERTS, "update": UPDATES, "delete": DELETES}
    expected: Counter[tuple[str, str]] = Counter()
    for row in rows():
        if row["op"] != "ddl":
            expected[row["database"], row["table"]] |= bits[row["op"]]
    assert {bits & (DELETES | UPDATES) for bits in expected.values()} > {0, DELETES | UPDATES}
    nothing = ReadPlan("variant", SelectedTables(("none.*",), {}, include_ddl=True), None, "")
    for plan, tables in ((PLAN, len(expected)), (nothing, 0)):
        (batch,) = read_manifest(partition(), plan)
        found = batch.to_pylist()
        assert {(row["database"], row["table"]): row[TOUCHED] for row in found if row[TOUCHED] is not None} == expected
        assert sum(row[KNOWN] is not None for row in found) == tables
        assert sum(row[RANGE] is not None for row in found) == bool(tables)


@pytest.mark.parametrize("read", [None, READ])
def test_the_rows_of_a_table_come_from_the_manifest(read: ReadRows | None) -> None:
    batches = list(read_manifest(partition(read), PLAN))
    names = {(row["database"], row["table"]) for row in rows(read) if row["op"] != "ddl"}
    for name in some(sorted(names)):
        found = [row for batch in RowsOfTable(*name, None)(_only(batches, name)) for row in batch.to_pylist()]
        expected = [row for row in rows(read) if (row["database"], row["table"]) == name and row["op"] != "ddl"]
        for row in (*found, *expected):
            row["transaction"].pop("is_last")  # of the selected tables' rows
        assert found == expected


def test_typed_rows_have_the_tables_columns() -> None:
    name = ("v.1", "simple_key")
    batches = list(RowsOfTable(*name, KEYED)(_only(list(read_manifest(partition(), PLAN)), name)))
    assert {batch.schema == arrow_schema(envelope_schema(KEYED)) for batch in batches} == {True}
    found = [(row["op"], row["after"]) for batch in batches for row in batch.to_pylist()]
    assert len(found) == 4
    assert all(op == "insert" and set(after) == {"a", "b", "c"} for op, after in found)


def test_tables_whose_snapshot_rows_are_lost_come_with_the_reason_into_tasks() -> None:
    planned = [replace(partition(), lost=((("shop", "orders"), "it was altered"),)).inline()]
    (part,) = numbered_parts(planned)
    (row,) = [row for batch in part.manifest(PLAN) for row in batch.to_pylist() if row[LOST] is not None]
    assert (row["database"], row["table"], row[LOST]) == ("shop", "orders", "it was altered")
    assert row[RANGE] is row[KNOWN] is row[TOUCHED] is None


def test_values_of_read_rows_come_alone_and_those_of_changes_do_not_come() -> None:
    name = ("v.1", "simple_key")
    both = ChangePartition((*partition().ranges, *partition(READ).ranges))
    of_changes, of_both = (list(read_manifest(one, PLAN)) for one in (partition(), both))
    typed = RowsOfTable(*name, KEYED, values=True)
    assert list(typed(_only(of_changes, name))) == []
    batches = list(typed(_only(of_both, name)))
    assert {batch.schema == arrow_schema(numbered(KEYED)) for batch in batches} == {True}
    found = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    read = [row for batch in RowsOfTable(*name, KEYED)(_only(of_both, name)) for row in batch.to_pylist()]
    expected = [tuple(row["after"].values()) for row in read if row["op"] == "read"]
    assert found == expected
    assert len(found) == 2


def _only(batches: list[Any], name: tuple[str, str]) -> list[Any]:
    """Leave what Spark leaves of a manifest: its partition, and one table."""
    kept = []
    for batch in batches:
        mask = pa.array(
            row[RANGE] is not None or ((row["database"], row["table"]) == name and row[KNOWN] is not None)
            for row in batch.to_pylist()
        )
        kept.append(batch.filter(mask))
    return kept
