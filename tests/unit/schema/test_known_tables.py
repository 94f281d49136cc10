"""Bookkeeping of tables: known, forgotten, moved, distrusted, and those that another place knows."""

from __future__ import annotations

from replica.schema.definition.column import Column
from replica.schema.definition.definition import Table
from replica.schema.known_tables import NEVER_SEEN, KnownTables

A, B, C = ("d", "a"), ("d", "b"), ("e", "c")


def table(name: str) -> Table:
    return Table(columns=(Column(name=name, data_type="int"),))


def test_a_table_is_known_until_it_is_forgotten_or_distrusted() -> None:
    known = KnownTables()
    assert (known.get(A), known.reason(A)) == (None, NEVER_SEEN)
    known.define(A, table("x"))
    assert (known.get(A), known.reason(A), A in known) == (table("x"), "", True)
    known.distrust(A, "because")
    assert (known.get(A), known.reason(A), A in known) == (None, "because", False)
    known.define(A, table("y"))
    known.forget(A)
    assert (known.get(A), known.reason(A)) == (None, NEVER_SEEN)


def test_moving_takes_the_assumption_or_the_reason_along() -> None:
    known = KnownTables()
    known.define(A, table("x"))
    known.assumptions[A] = "taken for granted"
    known.move(A, C)
    assert (known.get(A), known.get(C), known.assumptions) == (None, table("x"), {C: "taken for granted"})
    known.distrust(A, "because")
    known.move(A, C)
    assert known.reason(C) == "it comes from d.a: because"
    assert known.assumptions == {}
    known.define(B, table("y"))
    known.move(B, B)
    assert known.get(B) == table("y")


def test_a_base_answers_for_what_was_never_spoken_of() -> None:
    base = KnownTables()
    base.define(A, table("x"))
    base.define(("", "any"), table("z"))
    known = KnownTables(base)
    assert (known.get(A), A in known) == (table("x"), False)
    assert known.get(("whatever", "any")) == table("z")
    known.distrust(A, "because")
    assert known.get(A) is None
    assert base.get(A) == table("x")


def test_all_at_once() -> None:
    known = KnownTables()
    for name in (A, B, C):
        known.define(name, table("x"))
    known.distrust(B, "because")
    assert known.in_database("d") == (A, B)
    assert known.distrust_all("of everything") == (A, C)
    assert known.names() == []
    assert [known.reason(name) for name in (A, B, C)] == ["of everything", "because", "of everything"]
