"""The extent of a range covers its transactions, and that of two ranges covers both."""

from __future__ import annotations

import numpy as np

from replica.rows.decode.batch import Groups
from replica.rows.scan.records import GroupRecord
from streaming_source.selection.pushed_filters import GroupExtent, extent_of


def groups_of(*rows: tuple[int, int, int]) -> Groups:
    """(domain, sequence number, second) of each."""
    records = np.zeros(len(rows), GroupRecord.dtype)
    for record, values in zip(records, rows, strict=True):
        for field, value in zip(("domain", "sequence", "timestamp"), values, strict=True):
            record[field] = value
    return Groups(records)


def test_an_extent_has_both_ends_of_each_domain_and_of_time() -> None:
    found = extent_of(groups_of((7, 5, 120), (0, 9, 100), (7, 3, 90)))
    assert found == GroupExtent(((0, 9, 9), (7, 3, 5)), (90, 120))


def test_two_ranges_together() -> None:
    first, second = GroupExtent(((0, 9, 12),), (90, 100)), GroupExtent(((0, 2, 10), (4, 1, 1)), (95, 130))
    assert first.joined(second) == second.joined(first) == GroupExtent(((0, 2, 12), (4, 1, 1)), (90, 130))
    assert first.joined(GroupExtent(((1, 1, 1),))).seconds is None


def test_sequence_numbers_have_no_sign() -> None:
    found = extent_of(groups_of((0, 5, 1), (0, 2**63 - 1, 2), (0, -(2**63) + 1, 3)))
    assert found.domains == ((0, 5, 2**63 + 1),)
