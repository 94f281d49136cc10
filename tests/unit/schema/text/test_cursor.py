"""The cursor over tokens: keywords, names, and what it says when something else stands there."""

from __future__ import annotations

import pytest

from replica.errors import SchemaError
from replica.schema.text.cursor import Tokens
from replica.schema.text.sql_tokens import tokenize


def cursor(sql: str) -> Tokens:
    return Tokens(tokenize(sql))


def test_keywords_are_taken_all_or_none_and_never_quoted() -> None:
    tokens = cursor("if not exists `if` IF")
    assert not tokens.accept("IF", "NOT", "NULL")
    assert tokens.accept("IF", "NOT", "EXISTS")
    assert not tokens.accept("IF")
    assert tokens.name() == "if"
    assert tokens.accept_any("ELSE", "IF") == "IF"
    assert tokens.at_end
    assert tokens.accept_any("IF") == ""


def test_table_names() -> None:
    tokens = cursor('a b.c `d.e`.`f` . g "h".i')
    assert [tokens.table_name("x") for _ in range(3)] == [("x", "a"), ("b", "c"), ("d.e", "f")]
    assert [tokens.table_name("x") for _ in range(2)] == [("x", "g"), ("h", "i")]


def test_numbers_and_parentheses() -> None:
    tokens = cursor("(10, 2) x (1 + (2), 'a)') end")
    assert tokens.numbers() == (10, 2)
    assert tokens.numbers() == ()
    tokens.take()
    tokens.skip_parenthesis()
    assert tokens.accept("END")


def test_an_item_ends_at_its_comma_or_the_end_of_its_list() -> None:
    tokens = cursor("a (b, c) d, e) f")
    tokens.skip_item()
    assert tokens.accept(",")
    tokens.skip_item()
    assert tokens.accept(")")


@pytest.mark.parametrize(
    ("sql", "method"),
    [("'x'", "name"), ("(", "name"), ("x", "string"), ("x", "number"), ("", "take"), ("(a", "numbers")],
)
def test_what_stands_there_instead_is_an_error(sql: str, method: str) -> None:
    with pytest.raises(SchemaError):
        getattr(cursor(sql), method)()


def test_a_missing_word_is_named() -> None:
    with pytest.raises(SchemaError, match="TO TABLE was expected before 'x'"):
        cursor("x").expect("TO", "TABLE")
    with pytest.raises(SchemaError, match="ends too early"):
        cursor("(a, (b)").skip_parenthesis()


def test_the_head_can_be_read_before_a_damaged_body() -> None:
    tokens = cursor("ALTER TABLE a ADD 'x")
    assert tokens.accept("ALTER", "TABLE")
    assert tokens.name() == "a"
    with pytest.raises(SchemaError, match="does not end"):
        tokens.skip_item()
