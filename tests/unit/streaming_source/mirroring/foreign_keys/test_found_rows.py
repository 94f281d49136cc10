from __future__ import annotations

import pyarrow as pa
import pytest

from streaming_source.mirroring.foreign_keys.lost_values import Lost
from streaming_source.mirroring.foreign_keys.stale_rows import FoundRows, Stale, merge_of_found
from streaming_source.mirroring.modes.choose import mode_of

LOST = Lost(
    pa.table({"v0": [7], "gtid": ["0-1-10"], "committed": pa.array([0], pa.timestamp("us", "UTC"))}),
    [(10, 0)],
    [0],
    [False],
)


def stale(*keys: int) -> Stale:
    return Stale(pa.table({"k0": list(keys)}), [(key,) for key in keys], [0] * len(keys), [True] * len(keys))


def test_only_rows_that_were_not_known_go_on_below() -> None:
    found = FoundRows(["id"])
    assert found.add(stale(1, 2), LOST, None).keys == [(1,), (2,)]
    assert found.add(stale(2, 3), LOST, None).keys == [(3,)]
    found.add(stale(3, 4), LOST, ["a"])
    found.add(stale(4), LOST, ["b"])
    assert found.deleted == {(1,), (2,), (3,)}
    assert found.nulls == {(3,): {"a"}, (4,): {"a", "b"}}


def test_names_may_have_braces_and_quotes() -> None:
    assert merge_of_found("lake.`a{b`", ["i`d"], ["x}"], mode_of("current", ["i`d"])) == (
        "MERGE INTO lake.`a{{b` AS target USING {gone} AS gone ON target.`i``d` <=> gone.k0 "
        "WHEN MATCHED AND gone.deleted THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET target.`x}}` = if(gone.n0, NULL, target.`x}}`)"
    )
    told = merge_of_found("t", ["a", "b"], [], mode_of("current", ["a"]))
    assert told.endswith("gone.k1 WHEN MATCHED AND gone.deleted THEN DELETE")


@pytest.mark.parametrize(
    ("mode", "keys", "actions"),
    [
        ("current", ["id"], {"CASCADE", "SET NULL"}),
        ("soft_delete", ["id"], {"CASCADE", "SET NULL"}),
        ("history", ["id"], {"CASCADE"}),
        ("append_log", ["id"], set()),
        ("current", [], set()),
    ],
)
def test_a_mode_says_which_actions_it_can_bring_in(mode: str, keys: list[str], actions: set[str]) -> None:
    one = mode_of(mode, keys)
    assert one.cascades == actions
