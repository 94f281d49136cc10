"""Names and texts of a server as SQL: what a session could read as something else is not in it."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_source.sinks.sql_text import (
    SUBSTITUTE,
    braced,
    identifier,
    literal,
    text_value,
    without_substitution,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXTS)
def test_a_literal_has_nothing_but_letters_digits_blanks_and_escapes(text: str) -> None:
    written = literal(text)
    assert re.fullmatch(r"'(?:[A-Za-z0-9 _]|\\u[0-9A-F]{4}|\\U[0-9A-F]{8})*'", written)
    read = re.sub(r"\\(?:u(.{4})|U(.{8}))", lambda code: chr(int(code[1] or code[2], 16)), written[1:-1])
    assert read == text


@given(TEXTS)
def test_a_value_is_its_bytes(text: str) -> None:
    found = re.fullmatch(r"CAST\(X'([0-9a-f]*)' AS STRING\)", text_value(text))
    assert found is not None
    assert bytes.fromhex(found[1]).decode() == text


@given(TEXTS)
def test_a_name_ends_where_it_ends(text: str) -> None:
    written = identifier(text)
    assert re.fullmatch(r"`(?:[^`]|``)*`", written)
    assert written[1:-1].replace("``", "`") == text


@given(TEXTS)
def test_braces_are_no_parameters(text: str) -> None:
    assert braced(text).format() == text


class Conf:
    """The settings of a session."""

    def __init__(self, **settings: str) -> None:
        self.all = settings

    def get(self, name: str, default: str) -> str:
        return self.all.get(name, default)

    def set(self, name: str, value: str) -> None:
        self.all[name] = value


@pytest.mark.parametrize("before", ["true", "false"])
def test_substitution_is_off_while_a_block_runs_and_then_as_it_was(before: str) -> None:
    conf = Conf(**{SUBSTITUTE: before})
    spark = cast("SparkSession", SimpleNamespace(conf=conf))
    with without_substitution(spark):
        assert conf.all == {SUBSTITUTE: "false"}
    assert conf.all == {SUBSTITUTE: before}
