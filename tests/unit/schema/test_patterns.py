"""Tables and columns by name and pattern: `*` is any text within a part, backquotes hold a name as it is."""

from __future__ import annotations

import random

import pytest

from replica.schema.patterns import (
    ColumnMatcher,
    all_of,
    matcher,
    table_named,
    table_pattern,
    table_patterns,
    table_text,
)

SEED, NAMES = 20261129, 3000


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        (("shop", "orders"), True),
        (("shop", "line\nend"), True),
        (("shop", "a.b"), True),
        (("shop.a", "b"), False),
        (("shops", "orders"), False),
        (("Shop", "orders"), False),
        (("crm", "customer"), True),
        (("crm", "accounts"), False),
        (("any.thing", "audit"), True),
        (("any", "thing.audit"), False),
        (("odd", "a+b"), True),
        (("odd", "aab"), False),
        (("my.shop", "a*b"), True),
        (("my.shop", "a-b"), False),
    ],
)
def test_names(name: tuple[str, str], *, wanted: bool) -> None:
    patterns = matcher(["shop.*", "crm.cust*", "*.audit", "odd.a+b", "`my.shop`.`a*b`"])
    assert patterns.fits(name) is wanted


@pytest.mark.parametrize(
    ("text", "patterns"),
    [
        ("shop.orders", ("shop.orders",)),
        (" shop.* , crm.customer ", ("shop.*", "crm.customer")),
        ("`a.b`.t,a.`b.t`", ("`a.b`.t", "a.`b.t`")),
        ("`shop`.`orders`", ("shop.orders",)),
        ("`a,b`.`c``d`,`e`.*", ("`a,b`.`c``d`", "e.*")),
        ("a`b.c", ("`a``b`.c",)),
    ],
)
def test_patterns_of_an_option(text: str, patterns: tuple[str, ...]) -> None:
    assert table_patterns(text) == patterns
    assert table_patterns(",".join(patterns)) == patterns


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.b.t", r"has several dots: write a name that holds a dot in backquotes, `my\.shop`\.orders"),
        ("shop.orders,a.b.t", "holds 'a.b.t', which has several dots"),
        ("shop", r"is not of the form database\.table"),
        ("shop.", "is not of the form"),
        ("`shop.orders", "is not of the form"),
        ("shop.orders,", "holds '', which is not of the form"),
        ("", "is not of the form"),
    ],
)
def test_other_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        table_patterns(text)


def test_one_table_is_no_pattern() -> None:
    assert table_named("`a*`.t") == ("a*", "t")
    with pytest.raises(ValueError, match="is a pattern for many tables"):
        table_named("a*.t")


def test_what_a_pattern_says_of_its_database() -> None:
    assert table_pattern("`a.b`.t*").one_database == "a.b"
    assert table_pattern("a*.t").one_database is None
    assert matcher(["a.x", "`b.c`.*", "d*.t"]).databases == ("a", "b.c", None)
    assert matcher(["a.x", "d*.t"]).fits_database("d.1")
    assert not matcher(["a.x", "d*.t"]).fits_database("b")
    assert all_of("a.b") == "`a.b`.*"
    assert not matcher([]).fits(("a", "b"))


def test_a_pattern_covers_what_it_matches_as_text() -> None:
    assert matcher(["crm.cust*", "`a.b`.t"]).covers("crm.customer")
    assert matcher(["crm.cust*"]).covers("crm.customer_*")
    assert not matcher(["crm.cust*"]).covers("crm.*")
    assert not matcher(["a.*"]).covers("`a.b`.t")


def test_every_name_comes_back_from_its_text() -> None:
    """Names of what text is written with, where two differ in the place of a dot too."""
    chance = random.Random(SEED)

    def random_name() -> tuple[str, str]:
        first, second = ("".join(chance.choices("ab.`*, \"'@é", k=chance.randint(1, 4))) for _ in range(2))
        return first, second

    for _ in range(NAMES):
        one, other = random_name(), random_name()
        assert table_named(table_text(one)) == one
        assert table_patterns(f"{table_text(one)},{table_text(other)}") == (table_text(one), table_text(other))
        assert matcher([table_text(one)]).fits(other) is (one == other)


def test_columns_are_compared_as_the_server_does() -> None:
    columns = ColumnMatcher(["MASSE", "größe*"])
    assert [columns.fits(name) for name in ("masse", "maße", "GRÖßEN", "grössen")] == [True, False, True, False]
