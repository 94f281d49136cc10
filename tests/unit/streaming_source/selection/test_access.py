"""The warning of generated columns: for whom it is, and that it is as short with a thousand tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.schema.table import ColumnSchema, TableSchema
from streaming_source.options.source_options import SourceOptions
from streaming_source.selection.access import SHOWN, warn_of_generated

if TYPE_CHECKING:
    import pytest


def table(name: str, *, computed: bool) -> TableSchema:
    key = ColumnSchema(name="id", data_type="int", column_type="int(11)")
    twice = ColumnSchema(name="twice", data_type="int", column_type="int(11)", computed=computed)
    return TableSchema(database="shop", table=name, columns=(key, twice))


def said(caplog: pytest.LogCaptureFixture, *tables: TableSchema, version: str = "11.8.9-MariaDB", **given: str) -> str:
    options = SourceOptions.parse({"host": "h", "user": "u", "password": "p", "tables": "shop.*", **given})
    warn_of_generated(options, {("shop", one.table): one for one in tables}, version)
    return caplog.text


def test_it_names_the_columns_and_the_version(caplog: pytest.LogCaptureFixture) -> None:
    text = said(caplog, table("orders", computed=True), table("lines", computed=False))
    assert "shop.orders.twice arrive with inserts only" in text
    assert "11.8.9-MariaDB" in text


def test_no_one_is_told_who_does_not_get_them(caplog: pytest.LogCaptureFixture) -> None:
    assert not said(caplog, table("orders", computed=False))
    assert not said(caplog, table("orders", computed=True), version="11.8.6-MariaDB")
    assert not said(caplog, table("orders", computed=True), columns="id")


def test_it_is_short(caplog: pytest.LogCaptureFixture) -> None:
    text = said(caplog, *(table(f"t{number:04}", computed=True) for number in range(1000)))
    assert text.count("twice") == SHOWN
    assert f"and {1000 - SHOWN} more" in text
