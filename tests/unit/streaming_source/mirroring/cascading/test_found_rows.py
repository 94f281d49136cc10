from __future__ import annotations

import pyarrow as pa

from streaming_source.mirroring.cascading.found_rows import FoundRows, merge_of_found
from streaming_source.mirroring.cascading.stale_rows import Stale


def stale(*keys: int) -> Stale:
    return Stale(pa.table({"k0": list(keys)}), [(key,) for key in keys], [0] * len(keys), [True] * len(keys))


def test_only_rows_that_were_not_known_go_on_below() -> None:
    found = FoundRows(["id"])
    assert found.add(stale(1, 2), None).keys == [(1,), (2,)]
    assert found.add(stale(2, 3), None).keys == [(3,)]
    found.add(stale(3, 4), ["a"])
    found.add(stale(4), ["b"])
    assert found.gone == {(1,), (2,), (3,)}
    assert found.nulls == {(3,): {"a"}, (4,): {"a", "b"}}


def test_names_may_have_braces_and_quotes() -> None:
    assert merge_of_found("lake.`a{b`", ["i`d"], ["x}"]) == (
        "MERGE INTO lake.`a{{b` AS target USING {gone} AS gone ON target.`i``d` <=> gone.k0 "
        "WHEN MATCHED AND gone.deleted THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET target.`x}}` = if(gone.n0, NULL, target.`x}}`)"
    )
    assert merge_of_found("t", ["a", "b"], []).endswith("gone.k1 WHEN MATCHED AND gone.deleted THEN DELETE")
