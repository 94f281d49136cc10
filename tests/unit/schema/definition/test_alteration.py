"""The table after an `Alteration` that was put together by hand."""

from __future__ import annotations

import pytest

from replica.errors import SchemaError
from replica.schema.definition.alter import Alteration, altered
from replica.schema.definition.column import Column
from replica.schema.definition.definition import ColumnItem, Encoding, Key, Table, with_keys

LATIN1 = Encoding("latin1")
TABLE = Table(
    columns=tuple(Column(name=name, data_type="int", digits=(11,)) for name in "abc"),
    keys=(Key(name="PRIMARY", parts=(("a", None), ("b", None)), primary=True),),
    encoding=LATIN1,
)


def item(name: str, position: str | None = None) -> ColumnItem:
    return ColumnItem(column=Column(name=name, data_type="text"), position=position)


def names(change: Alteration) -> list[str]:
    return [column.name for column in altered(TABLE, change, LATIN1).columns]


def test_nothing_asked_for_changes_nothing() -> None:
    assert altered(TABLE, Alteration(), LATIN1).columns[2:] == TABLE.columns[2:]


def test_changes_come_before_additions_and_moves_in_their_order() -> None:
    change = Alteration(
        added=[(None, item("new", "z")), ("a", item("z", "c"))],
        changed={"a": item("z", "c")},
        dropped={"b": False},
    )
    assert names(change) == ["new", "c", "z"]
    assert altered(TABLE, change, LATIN1).keys[0].parts == (("z", None),)


def test_what_was_conditional_may_be_missing_or_there() -> None:
    change = Alteration(
        added=[(None, item("a")), ("x", item("x", ""))],
        changed={"x": item("x", "")},
        dropped={"y": True},
        if_exists={"x"},
        if_not_exists={"a"},
    )
    assert names(change) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "change", [Alteration(dropped={"x": False}), Alteration(renamed={"x": "y"}), Alteration(changed={"x": item("x")})]
)
def test_what_is_missing_is_named(change: Alteration) -> None:
    with pytest.raises(SchemaError, match="no column x"):
        altered(TABLE, change, LATIN1)


def test_added_text_takes_the_tables_set_also_one_set_by_the_same_statement() -> None:
    change = Alteration(added=[(None, item("t"))], convert=("ucs2", None))
    assert altered(TABLE, Alteration(added=[(None, item("t"))]), LATIN1).columns[-1].charset == "latin1"
    assert altered(TABLE, change, LATIN1).columns[-1].charset == "ucs2"
    assert altered(TABLE, change, LATIN1).encoding.charset == "ucs2"


@pytest.mark.parametrize(("version", "found"), [(101100, False), (110800, True)])
def test_names_of_the_statement_are_compared_as_its_server_does(version: int, *, found: bool) -> None:
    """Long s and `s` are one column since 11.5; `maße` and `masse` are two for every version."""
    table = with_keys(
        [Column(name=name, data_type="int") for name in ("s", "maße", "masse")], [], LATIN1, versioned=False
    )
    change = Alteration(server_version=version)
    change.renamed = {change.key("MASSE"): "b", change.key("MAßE"): "a"}
    change.dropped = {change.key("\u017f"): True}
    assert [column.name for column in altered(table, change, LATIN1).columns] == ["s", "a", "b"][found:]
