from __future__ import annotations

import pyarrow as pa

from streaming_source.mirroring.foreign_keys.lost_values import Lost
from streaming_source.mirroring.foreign_keys.stale_rows import Stale, lost_with, unchanged_since

AT = pa.array([0, 1], pa.timestamp("us", "UTC"))
LOST = Lost(
    pa.table({"v0": [7, 8], "gtid": ["0-1-10", "0-1-20"], "committed": AT}),
    [(10, 0), (20, 5)],
    [0, 0],
    [False, False],
)


def stale(*rows: tuple[int, int, bool]) -> Stale:
    """Rows by key: which value they name, and whether exactly."""
    keys = [(key,) for key, _, _ in rows]
    table = pa.table({"k0": [key for key, _, _ in rows], "r0": [key * 100 for key, _, _ in rows]})
    return Stale(table, keys, [lost for _, lost, _ in rows], [alike for _, _, alike in rows])


def test_rows_that_were_changed_behind_the_loss_stay_and_so_does_one_that_names_itself() -> None:
    rows = stale((1, 0, True), (2, 0, True), (3, 1, True), (4, 1, True))
    changes = {(1,): ((9, 9), {0}), (2,): ((10, 1), {0}), (3,): ((20, 5), {0})}
    assert unchanged_since(rows, LOST, changes) == ([0, 3], set())
    assert unchanged_since(rows, LOST, changes, {(4,)}) == ([0], set())


def test_what_no_order_or_only_a_collation_tells_is_in_doubt() -> None:
    assert unchanged_since(stale((1, 0, True)), LOST, {(1,): ((99, 0), {1})}) == ([0], {0})
    assert unchanged_since(stale((1, 0, False)), LOST, {}) == ([0], {0})
    doubted = LOST._replace(doubt=[True, False])
    assert unchanged_since(stale((1, 0, True)), doubted, {}) == ([0], {0})
    assert unchanged_since(stale((1, 0, True)), doubted, {(1,): ((11, 0), {0})}) == ([], set())


def test_what_goes_takes_the_values_along_that_others_name_it_by() -> None:
    below = lost_with(stale((3, 1, True), (4, 0, True)), LOST, ["id"])(["id"])
    assert below.values.select(["v0", "gtid"]).to_pydict() == {"v0": [300, 400], "gtid": ["0-1-20", "0-1-10"]}
    assert below.at == [(20, 5), (10, 0)]
