"""A mode that is another one than that of the target."""

from __future__ import annotations

import datetime as dt

import pytest

from replica.errors import ConfigError
from streaming_source.mirroring.arguments import ARGUMENTS
from streaming_source.mirroring.control.control_table import ControlRow
from streaming_source.mirroring.reading.rules import check_modes
from streaming_source.mirroring.settings import mirror_settings


def row(**other: object) -> ControlRow:
    told: dict[str, object] = dict.fromkeys(ControlRow._fields)
    told |= {"source_database": "shop", "source_table": "orders", "target": "`lake`.`orders`", "mode": "history"}
    told |= {"state": "current", "updated_at": dt.datetime.now(dt.UTC), "again": "monday"}
    return ControlRow(**{**told, **other})  # type: ignore[arg-type]


def check(one: ControlRow, mode: str, **source: object) -> None:
    given = {argument.name: argument.default for argument in ARGUMENTS}
    given |= {"tables": "shop.*", "into": "lake.{table}", "checkpointLocation": "/c"}
    settings = mirror_settings(given | {"rules": {"shop.*": {"mode": mode}}}, {"host": "db1", "user": "repl", **source})
    check_modes([one], settings)


def test_another_mode_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"holds shop.orders in the mode history, and its rule says current") as told:
        check(row(), "current")
    assert "resnapshot=shop.orders@WORD" in str(told.value)
    with pytest.raises(ConfigError, match="in the mode history"):
        check(row(), "current", resnapshot="shop.orders@monday")  # that word has been used


def test_the_same_mode_a_new_beginning_and_a_dropped_table_go_on() -> None:
    check(row(), "history")
    check(row(), "current", resnapshot="shop.orders@tuesday")
    check(row(state="dropped"), "current")
