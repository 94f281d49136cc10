"""Character sets met with their surroundings, and tables put together from parts."""

from __future__ import annotations

import contextlib

import pytest

from replica.errors import SchemaError
from replica.schema.definition.column import Column
from replica.schema.definition.definition import UNKNOWN, Encoding, Key, own_encoding, period_key, place, with_keys

GBK = Encoding("gbk", "gbk_bin")
INT = Column(name="a", data_type="int")


@pytest.mark.parametrize(
    ("charset", "collation", "expected"),
    [
        (None, None, None),
        ("latin1", None, Encoding("latin1")),
        ("utf8", None, Encoding("utf8mb3")),
        ("binary", None, Encoding("binary")),
        ("default", None, Encoding("gbk")),
        (None, "latin1_bin", Encoding("latin1", "latin1_bin")),
        (None, "utf8_bin", Encoding("utf8mb3", "utf8mb3_bin")),
        (None, "binary", Encoding("binary", "binary")),
        (None, "uca1400_ai_ci", Encoding("gbk", "gbk_uca1400_ai_ci")),
        ("ucs2", "uca1400_ai_ci", Encoding("ucs2", "ucs2_uca1400_ai_ci")),
        ("latin1", "default", Encoding("latin1")),
        ("utf8mb4", "utf8mb4_0900_ai_ci", Encoding("utf8mb4", "utf8mb4_0900_ai_ci")),
    ],
)
def test_what_was_written_and_what_it_stands_in(
    charset: str | None, collation: str | None, expected: Encoding | None
) -> None:
    assert own_encoding(charset, collation, GBK) == expected


@pytest.mark.parametrize(("charset", "collation"), [("klingon", None), (None, "klingon_bin")])
def test_a_set_that_is_not_known(charset: str | None, collation: str | None) -> None:
    with pytest.raises(SchemaError, match="klingon"):
        own_encoding(charset, collation, GBK)


def test_names_meet_without_regard_to_case() -> None:
    columns = [INT, Column(name="Größe", data_type="int")]
    assert place(columns, "GRÖßE") == 1
    for other in ("z", "GRÖSSE"):
        with pytest.raises(SchemaError, match=f"no column {other}"):
            place(columns, other)


def test_two_names_that_casefold_makes_one_are_two_columns() -> None:
    columns = [Column(name="maße", data_type="int"), Column(name="masse", data_type="int")]
    key = Key(name="PRIMARY", parts=(("MASSE", None), ("MAßE", None)), primary=True)
    assert with_keys(columns, [key], UNKNOWN, versioned=False).schema("d", "t").primary_key == (1, 0)


@pytest.mark.parametrize(("version", "one"), [(101100, False), (110800, True)])
def test_two_names_are_one_column_as_the_version_has_it(version: int, *, one: bool) -> None:
    columns = [Column(name="s", data_type="int"), Column(name="\u017f", data_type="int")]
    with pytest.raises(SchemaError, match="same name") if one else contextlib.nullcontext():
        with_keys(columns, [], UNKNOWN, versioned=False, server_version=version)


def test_a_primary_key_makes_its_columns_not_null_for_good() -> None:
    key = Key(name="PRIMARY", parts=(("A", None),), primary=True)
    assert with_keys([INT], [key], UNKNOWN, versioned=False).columns[0].nullable is False


def test_a_key_without_overlaps_ends_with_its_period_backwards() -> None:
    columns = [INT, Column(name="s", data_type="date"), Column(name="e", data_type="date")]
    period = Key(name=period_key("P"), parts=(("s", None), ("e", None)), period=True)
    key = Key(name="PRIMARY", parts=(("a", None), (period_key("p"), None)), primary=True)
    assert with_keys(columns, [period, key], UNKNOWN, versioned=False).schema("d", "t").primary_key == (0, 2, 1)
