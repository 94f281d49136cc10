"""Names as MariaDB compares them: what was read from servers of each kind, and what follows from it."""

from __future__ import annotations

import pytest

from replica.schema.text.naming import column_key, lowered, table_key

OLD, NEW = 101100, 110800
KELVIN, LONG_S, ANGSTROM = "\u212a", "\u017f", "\u212b"


@pytest.mark.parametrize(
    ("one", "other", "before", "since"),
    [
        ("Id", "ID", True, True),
        ("maße", "MASSE", False, False),
        ("maße", "masse", False, False),
        ("maße", "MAßE", True, True),
        ("ẞ", "ß", False, False),
        ("é", "É", True, True),
        ("é", "e", False, False),
        ("a", "a ", False, False),
        ("İ", "i", True, False),
        ("I", "\u0131", False, True),
        (LONG_S, "S", False, True),
        (KELVIN, "k", True, False),
        (ANGSTROM, "å", True, False),
        ("µ", "μ", False, True),
        ("Σ", "ς", False, True),
        ("\u03c3", "Σ", True, True),
        ("Ǆ", "ǅ", True, True),
        ("Ꙁ", "ꙁ", False, True),
        ("ᾈ", "ᾀ", True, True),
    ],
)
def test_two_columns_are_one_as_the_version_compares_them(one: str, other: str, *, before: bool, since: bool) -> None:
    assert (column_key(one, OLD) == column_key(other, OLD)) is before
    assert (column_key(one, NEW) == column_key(other, NEW)) is since
    assert (column_key(one) == column_key(other)) is (before and since)


def test_a_letter_has_its_key_whatever_stands_beside_it() -> None:
    """ASCII alone is compared in a short way, which has to agree with the long one."""
    for version in (OLD, NEW):
        for one in map(chr, range(0x21, 0x7F)):
            assert column_key(f"{one}漢", version) == f"{column_key(one, version)}漢"


def test_tables_are_compared_in_lower_case_only_where_the_server_stores_them_so() -> None:
    assert table_key(("Shop", "STRAẞE"), lower_case_table_names=True) == ("shop", "straẞe")
    assert table_key(("Shop", "STRAẞE"), lower_case_table_names=False) == ("Shop", "STRAẞE")
    assert lowered(f"İ{KELVIN}Ꙁ") == "ikꙀ"
