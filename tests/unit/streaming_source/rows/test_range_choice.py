"""Bounds keep the groups and rows a replayed batch had, and no others."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.rows.decode.batch import Groups
from replica.rows.scan.records import GroupRecord
from streaming_source.rows.partition import GroupBounds, wanted_groups

_groups = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 20)), max_size=30)
_bounds = st.none() | st.dictionaries(st.integers(0, 3), st.integers(0, 20)).map(lambda d: tuple(d.items()))


@settings(max_examples=100)
@given(_groups, _bounds, _bounds)
def test_bounds_are_lower_excluded_upper_included_per_domain(
    groups: list[tuple[int, int]], lower: tuple[tuple[int, int], ...] | None, upper: tuple[tuple[int, int], ...] | None
) -> None:
    records = np.zeros(len(groups), GroupRecord.dtype)
    for record, (domain, seq_no) in zip(records, groups, strict=True):
        record["domain"], record["sequence"] = domain, seq_no
    above, below = dict(lower or ()), dict(upper or ())
    expected = [
        seq_no > above.get(domain, -1) and (upper is None or seq_no <= below.get(domain, -1))
        for domain, seq_no in groups
    ]
    assert wanted_groups(GroupBounds(lower, upper), Groups(records)).tolist() == expected
