from __future__ import annotations

import datetime as dt
import json

from replica.schema.table import TableSchema
from replica.snapshot.check.facts import Cascade
from streaming_source.mirroring.control.control_table import (
    COLUMNS,
    CURRENT,
    BeforeSnapshot,
    ControlRow,
    DeferredCascade,
    definition_text,
    of_columns,
    to_columns,
)
from streaming_source.schema.row_schema import spark_type

KEY = Cascade("of_order", ("shop", "orders"), ("ON DELETE CASCADE",), ("order_id",), ("id",))
AT = dt.datetime(2026, 11, 28, 1, 2, 3, 4, tzinfo=dt.UTC)


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
        definition=definition_text(table()),
        defined_at="0-1-2",
        again=None,
        rules=None,
        defaults={"n": "1"},
    )


def full() -> ControlRow:
    """Return a row with a value in every column."""
    known = row()._replace(
        foreign_keys=(KEY, KEY._replace(parent=("shop", "a`b"))),
        missed_cascade="it is read again",
        deferred_cascade=DeferredCascade("0-1-2", "0-1-3", lost=True),
        target_names={"title": "name"},
        created_at=AT,
        committed_at=AT,
        lag=0.5,
        error="e",
        again="w",
        rules="{}",
        waits_for="r",
        tries=3,
        writer="native",
        snapshot_end="0-1-4",
    )
    return known.with_before(9, known._replace(defaults={"n": None, "ü'": "NULL"}, keys=("a", "b"), batch=2))


def read_back(known: ControlRow) -> ControlRow:
    """Return a row of its columns as Spark gives them: maps as dictionaries."""

    def with_maps(values: dict[str, object]) -> dict[str, object]:
        maps = {name: dict(values[name]) for name in ("defaults", "target_names") if values[name]}  # type: ignore[call-overload]
        inner = values.get("before_snapshot")
        return {**values, **maps, **({"before_snapshot": with_maps(inner)} if isinstance(inner, dict) else {})}

    return of_columns(with_maps(to_columns(known)))


def test_every_field_is_a_column_in_the_same_order() -> None:
    assert tuple(name for name, _, _ in COLUMNS) == ControlRow._fields
    before = spark_type(next(kind for name, kind, _ in COLUMNS if name == "before_snapshot"))
    assert tuple(before.names) == BeforeSnapshot._fields  # type: ignore[attr-defined]


def test_a_row_is_what_its_columns_were_made_of() -> None:
    assert None not in full()
    assert read_back(full()) == full()
    assert read_back(row()) == row()


def test_another_definition_leaves_what_is_known_of_the_table() -> None:
    altered = full().defined(table("others"), {"n": "2"})
    assert altered == full()._replace(definition=definition_text(table("others")), defaults={"n": "2"})


def test_the_row_before_a_snapshot() -> None:
    assert row().before is None
    began, old = full().before or (0, row())
    assert (began, old.batch, old.keys, old.before) == (9, 2, ("a", "b"), None)
    assert old == full()._replace(defaults={"n": None, "ü'": "NULL"}, keys=("a", "b"), batch=2, before_snapshot=None)


def test_a_row_of_version_0_1_has_all_of_it_in_the_text_of_its_definition() -> None:
    def in_text(known: ControlRow) -> str:
        """Write the definition as version 0.1 did."""
        keys = [[*key] for key in known.foreign_keys or ()]
        more = {
            "defaults": known.defaults,
            "cascades": keys,
            "missed": known.missed_cascade,
            "put_off": known.deferred_cascade,
            "names": known.target_names,
            "made": int(AT.timestamp()),
        }
        return json.dumps(json.loads(known.definition) | more)

    wanted = full()._replace(created_at=AT.replace(microsecond=0))
    began, old = wanted.before or (0, row())
    wanted = wanted.with_before(began, old._replace(created_at=AT.replace(microsecond=0)))
    began, old = wanted.before or (0, row())
    micros = int(AT.timestamp() * 1_000_000)
    before = (began, old.keys, old.position, old.batch, old.rows, micros, in_text(old), old.defined_at)
    text = json.dumps(json.loads(in_text(wanted)) | {"before": before})
    later = ("defaults", "foreign_keys", "missed_cascade", "deferred_cascade", "target_names", "created_at")
    columns = {name: value for name, value in row()._asdict().items() if name not in (*later, "before_snapshot")}
    kept = {name: getattr(wanted, name) for name in columns}
    assert of_columns({**kept, "definition": text}) == wanted
    bare = json.dumps(json.loads(row().definition) | {"defaults": {"n": "1"}})
    assert of_columns({**columns, "definition": bare}) == row()
