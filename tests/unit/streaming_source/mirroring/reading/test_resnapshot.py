"""The tables that mirror_resnapshot() is asked for: those of the mirror."""

from __future__ import annotations

import pytest

from replica.errors import ConfigError
from streaming_source.mirroring.control.control_table import ControlRow
from streaming_source.mirroring.reading.resnapshot import chosen_tables


def row(table: str, keys: tuple[str, ...] = ("id",), mode: str = "current") -> ControlRow:
    told: dict[str, object] = dict.fromkeys(ControlRow._fields)
    told |= {"source_database": "shop", "source_table": table, "state": "failed", "keys": keys, "mode": mode}
    return ControlRow(**told)  # type: ignore[arg-type]


ROWS = [row("a"), row("b"), row("c", ()), row("log", (), "append_log")]


def test_tables_are_taken_in_any_state_once_each() -> None:
    assert chosen_tables(["shop.b", "shop.a", "shop.b"], ROWS) == [("shop", "a"), ("shop", "b")]
    assert chosen_tables({"shop.log", "shop.c"}, ROWS) == [("shop", "c"), ("shop", "log")], "it may have a key by now"


@pytest.mark.parametrize(
    ("tables", "why"),
    [
        ("shop.a", "tables='shop.a' is not a list of tables"),
        ([], r"tables=\[\] is not a list"),
        (["shop.a", "shop.x", "shop.b.c"], "'shop.b.c' has several dots"),
        (["shop.a", "shop.x", "`a.b`.c"], "`a.b`.c, shop.x: not among the mirror's tables"),
    ],
)
def test_what_cannot_be_read_again_is_refused(tables: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){why}"):
        chosen_tables(tables, ROWS)
