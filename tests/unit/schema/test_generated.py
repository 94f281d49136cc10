"""Which servers leave out generated columns; tests/integration/rows/test_decoded_values.py asks them."""

from __future__ import annotations

import pytest

from replica.schema.catalog import omits_generated, without_generated
from replica.schema.table import ColumnSchema, TableSchema


@pytest.mark.parametrize(
    ("version", "omits"),
    [
        ("10.5.29-MariaDB-0+deb11u1", False),
        ("10.11.19-MariaDB-log", False),
        ("11.8.6-MariaDB", False),
        ("11.8.9-MariaDB-0+deb13u1", True),
        ("12.3.1-MariaDB", True),
        ("", False),
    ],
)
def test_versions(version: str, *, omits: bool) -> None:
    assert omits_generated(version) is omits


def test_a_table_without_them_has_its_key_if_that_is_none_of_them() -> None:
    a, b = (ColumnSchema(name=name, data_type="int", column_type="int(11)") for name in "ab")
    c = ColumnSchema(name="c", data_type="int", column_type="int(11)", computed=True)
    table = TableSchema(database="d", table="t", columns=(c, a, b), primary_key=(2, 1))
    assert without_generated(table) == TableSchema(database="d", table="t", columns=(a, b), primary_key=(1, 0))
    keyed = TableSchema(database="d", table="t", columns=(c, a, b), primary_key=(1, 0))
    assert without_generated(keyed).primary_key == ()
