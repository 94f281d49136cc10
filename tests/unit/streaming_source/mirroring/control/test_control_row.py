from __future__ import annotations

import datetime as dt

from replica.schema.table import TableSchema
from replica.table_reader.cascades import Cascade
from streaming_source.mirroring.control.control_row import CURRENT, ControlRow, defined

KEY = Cascade("of_order", ("shop", "orders"), ("ON DELETE CASCADE",), ("order_id",), ("id",))


def table(name: str = "lines") -> TableSchema:
    return TableSchema(database="shop", table=name, columns=(), primary_key=())


def row() -> ControlRow:
    return ControlRow(
        mirror="m",
        source_database="shop",
        source_table="lines",
        target="lake.lines",
        mode="current",
        state=CURRENT,
        keys=("id",),
        position="0-1-5",
        batch=3,
        rows=7,
        committed_at=None,
        lag=None,
        updated_at=dt.datetime(2026, 11, 28, tzinfo=dt.UTC),
        error=None,
        definition=defined(table(), {"n": "1"}),
        defined_at="0-1-2",
        again=None,
        rules=None,
    )


def test_foreign_keys_and_what_was_missed_stay_with_the_definition() -> None:
    known = row().with_cascades([KEY]).with_missed("it is read again")
    assert known.cascades == (KEY,)
    assert known.missed == "it is read again"
    assert known.defaults == {"n": "1"}
    altered = known.defined(table(), {"n": "2"})
    assert (altered.cascades, altered.missed, altered.defaults) == ((KEY,), "it is read again", {"n": "2"})


def test_a_row_of_an_earlier_version_does_not_know_its_foreign_keys() -> None:
    assert row().cascades is None
    assert row().with_cascades([]).cascades == ()
    assert row().missed is None
    named = row()._replace(definition=row().definition.replace('"lines"', '"cascades"'), source_table="cascades")
    assert named.cascades is None


def test_names_in_the_target_stay_with_the_definition() -> None:
    assert row().names is None
    named = row().with_names({"title": "name"})
    assert named.names == {"title": "name"}
    assert named.defined(table(), {"n": "2"}).names == {"title": "name"}
