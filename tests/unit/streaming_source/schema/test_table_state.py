"""What tables look like, as text in an offset: over restarts with any catalog, and what is refused."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace

import pytest

from replica.errors import ConfigError
from replica.protocol.gtid import Gtid, GtidPosition
from replica.schema.known_tables import tables_to_json
from streaming_source.schema.table_state import TableState, state_from_text, state_to_text, with_changes
from tests.unit.schema.ddl import table

OLD = table("id INT, a INT")
NEW = table("id INT, b INT")
T, U, V = ("d", "t"), ("d", "u"), ("d", "v")
U_NEW = replace(NEW, table="u")
V_OLD = replace(OLD, table="v")
POSITION = GtidPosition.parse("0-1-10,1-1-5")


def everything(_: tuple[str, str]) -> bool:
    return True


def test_the_text_stands_for_the_tables_whatever_the_catalog_is_later() -> None:
    state = TableState({U: U_NEW}, {"d": "latin1_bin"}, POSITION, {U: GtidPosition.parse("0-1-12")})
    text = state_to_text(state, {T: OLD}, everything)
    for catalog in ({}, {T: OLD}, {T: NEW, V: V_OLD}, {T: OLD, U: U_NEW}):
        again = state_from_text(text, catalog)
        assert with_changes(catalog, tuple(again.changes.items())) == {T: OLD, U: U_NEW}
        assert again.databases == {"d": "latin1_bin"}
        assert again.includes(T, Gtid(0, 1, 10))
        assert not again.includes(T, Gtid(0, 1, 11))
        assert again.includes(U, Gtid(0, 1, 12))
        assert not again.includes(U, Gtid(2, 1, 1))
        if V in catalog:
            assert again.changes[V] is None


def test_what_a_statement_settled_stays_settled() -> None:
    state = TableState({T: NEW}, as_of=POSITION)
    for catalog in ({T: OLD}, {T: NEW}):
        again = state_from_text(state_to_text(state, catalog, everything), catalog)
        assert not again.includes(T, Gtid(0, 1, 5))
        assert with_changes(catalog, tuple(again.changes.items())) == {T: NEW}


def test_only_kept_tables_are_in_the_text_and_equal_states_have_equal_text() -> None:
    kept = state_to_text(TableState({U: U_NEW}), {T: OLD}, lambda name: name == T)
    assert state_from_text(kept, {}).changes == {T: OLD}
    assert kept == state_to_text(TableState(), {T: OLD}, everything)


def test_a_table_of_many_columns_is_short() -> None:
    wide = table(", ".join(f"column_{n} VARCHAR({n + 1}) COMMENT 'number {n}'" for n in range(100)))
    assert len(state_to_text(TableState(), {T: wide}, everything)) < 3000


DOTTED = ("a.b", "t"), ("a", "b.t")


def test_two_tables_whose_dots_stand_elsewhere_are_two() -> None:
    tables = {name: replace(OLD, database=name[0], table=name[1]) for name in DOTTED}
    read_at = {DOTTED[0]: GtidPosition.parse("0-1-12"), DOTTED[1]: GtidPosition.parse("0-1-14")}
    again = state_from_text(state_to_text(TableState(tables, as_of=POSITION, read_at=read_at), {}, everything), {})
    assert again.read_at == read_at
    exact = state_to_text(TableState(tables, as_of=POSITION, read_at={DOTTED[0]: POSITION}), {}, everything)
    assert state_from_text(exact, {}).read_at == {DOTTED[0]: POSITION}


def test_an_older_text_without_backquotes_is_read() -> None:
    tables = {DOTTED[0]: replace(OLD, database="a.b", table="t")}
    older = stored({"tables": tables_to_json(tables), "read_at": {"a.b.t": "0-1-12"}})
    assert state_from_text(older, {}).read_at == {DOTTED[0]: GtidPosition.parse("0-1-12")}


def stored(value: object) -> str:
    return base64.b64encode(zlib.compress(json.dumps(value).encode())).decode()


@pytest.mark.parametrize(
    "text",
    ["", "=", "abcd", stored([]), stored({}), stored({"tables": "{}"}), stored({"tables": 5}), kept[:-8]]
    if (kept := state_to_text(TableState(), {T: OLD}, everything))
    else [],
    ids=range(8),
)
def test_damage(text: str) -> None:
    with pytest.raises(ConfigError, match="the tables stored with the checkpoint's offset are damaged"):
        state_from_text(text, {})


def test_a_position_that_is_none() -> None:
    text = stored({"tables": '{"v":1,"tables":[]}', "as_of": "no position"})
    with pytest.raises(ConfigError):
        state_from_text(text, {})


def test_changes_of_wanted_tables_alone() -> None:
    state = TableState({U: U_NEW, T: None})
    assert state.only(everything) == ((T, None), (U, U_NEW))
    assert state.only(lambda name: name == U) == ((U, U_NEW),)
    catalog = {T: OLD}
    assert with_changes(catalog, ()) is catalog
    assert with_changes(catalog, state.only(everything)) == {U: U_NEW}
