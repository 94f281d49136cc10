"""Text into tokens: quotes, escapes, comments that count and comments that do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import SchemaError
from replica.schema.text.sql_tokens import ANSI_QUOTES, NO_BACKSLASH_ESCAPES, tokenize


def texts(sql: str, *, sql_mode: int = 0, version: int = 101_118) -> list[str]:
    return [token.text for token in tokenize(sql, sql_mode=sql_mode, server_version=version)]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("a `b``c` 'd''e' \"f\"\"g\"", ["a", "b`c", "d'e", 'f"g']),
        (r"'a\'b\\' 'c\nd\0' '\%\x'", ["a'b\\", "c\nd\0", "\\%x"]),
        (r"'\''''", ["''"]),
        ("größe$1 1a .5", ["größe$1", "1a", ".", "5"]),
        ("a -- b\nc --d\n# e\nf", ["a", "c", "-", "-", "d", "f"]),
        ("a /* b ' ` */ c", ["a", "c"]),
        ("2*/* x */3", ["2", "*", "3"]),
        ("`;` ';' -- ;\n;", [";", ";", ";"]),
    ],
)
def test_words_names_strings_and_symbols(sql: str, expected: list[str]) -> None:
    assert texts(sql) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("a /*! b */ c", "a b c"),
        ("a /*!50001 b */ c", "a b c"),
        ("a /*!50701 b */ c", "a c"),  # MySQL's own
        ("a /*!99999 b */ c", "a c"),
        ("a /*!101117 b */ c", "a b c"),
        ("a /*!101119 b */ c", "a c"),
        ("a /*M!100301 b */ c", "a b c"),
        ("a /*M!110000 b */ c", "a c"),
        ("a /*M!999999\\- enable the sandbox mode */ c", "a c"),
        ("a /*!50701 b /* inner */ d */ c", "a c"),
        ("a /*! b /* inner */ d */ c", "a b d c"),
    ],
)
def test_executable_comments_count_where_a_server_executes_them(sql: str, expected: str) -> None:
    assert texts(sql) == expected.split()


def test_sql_mode_rules_double_quotes_and_backslashes() -> None:
    assert [t.kind for t in tokenize('"a"')] == ["double"]
    assert [t.kind for t in tokenize('"a"', sql_mode=ANSI_QUOTES)] == ["name"]
    assert texts(r'"a\"', sql_mode=ANSI_QUOTES) == ["a\\"]
    assert texts(r"'\' 'b\\'", sql_mode=NO_BACKSLASH_ESCAPES) == ["\\", r"b\\"]


@pytest.mark.parametrize("sql", ["a 'b", "`", '"x', "'\\'", "a /* b", "a /*!99999 b", "/*!99999 /* x */"])
def test_a_quote_or_comment_that_does_not_end_is_an_error(sql: str) -> None:
    with pytest.raises(SchemaError, match="does not end"):
        texts(sql)


@given(st.text(st.sampled_from("a'`\"\\/*!M#-\n; 5ü(")), st.sampled_from([0, ANSI_QUOTES, NO_BACKSLASH_ESCAPES]))
def test_any_text_gives_tokens_or_a_schema_error(sql: str, sql_mode: int) -> None:
    try:
        found = texts(sql, sql_mode=sql_mode)
    except SchemaError:
        return
    assert sum(map(len, found)) <= len(sql)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_what_is_quoted_comes_out_as_it_was(text: str) -> None:
    quoted = "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
    assert texts(quoted) == [text]
    assert texts("`" + text.replace("`", "``") + "`") == [text]
