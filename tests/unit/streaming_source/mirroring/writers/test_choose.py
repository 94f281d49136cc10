"""The format of a name: folders say it, a catalog has Delta."""

from __future__ import annotations

import pytest

from streaming_source.mirroring.writers.choose import FORMATS, format_of, kinds


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("`lake`.`orders`", "delta"),
        ("`parquet`.`orders`", "delta"),
        ("`iceberg`.`orders`", "delta"),
        ("`iceberg:mine`.`lake`.`orders`", "iceberg"),
        ("`delta`.`/lake/orders`", "delta"),
        ("`parquet`.`s3://lake/a.b/orders`", "parquet"),
    ],
)
def test_a_name_has_a_format(name: str, kind: str) -> None:
    assert format_of(name) is FORMATS[kind]
    assert FORMATS[kind].name == kind


def test_a_search_by_names_knows_every_format_and_iceberg_by_its_catalogs_alone() -> None:
    assert {*FORMATS} - {*kinds()} == {"iceberg"}
    assert all(format_of(f"`{kind}`.`a`.`b`").name == "iceberg" for kind in {*kinds()} - {*FORMATS})
