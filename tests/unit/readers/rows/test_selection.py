from __future__ import annotations

import numpy as np

from replica.protocol.gtid import GtidPosition
from replica.readers.rows.reading import ChosenTransactions
from replica.rows.decode.batch import Groups
from replica.rows.scan.records import GroupRecord


def groups(*rows: tuple[int, int, int]) -> Groups:
    """(domain, sequence, time)"""
    records = np.zeros(len(rows), GroupRecord.dtype)
    for record, (domain, sequence, time) in zip(records, rows, strict=True):
        record["domain"] = domain
        record["sequence"] = np.uint64(sequence).astype(np.int64)
        record["timestamp"] = time
    return Groups(records)


LOG = groups((0, 1, 100), (0, 2, 200), (7, 1, 200), (0, 3, 300), (7, 2, 400))


def test_everything_is_shown_unless_asked_otherwise() -> None:
    selection = ChosenTransactions()
    assert selection.everything
    assert selection.shown(LOG).all()
    assert not selection.finished


def test_the_start_is_what_the_reader_has() -> None:
    shown = ChosenTransactions(start=GtidPosition.parse("0-1-2")).shown(LOG)
    assert shown.tolist() == [False, False, True, True, True]


def test_the_stop_is_shown_and_other_domains_are_not() -> None:
    selection = ChosenTransactions(stop=GtidPosition.parse("0-1-2"))
    assert selection.shown(LOG).tolist() == [True, True, False, False, False]
    assert selection.finished


def test_reading_ends_when_every_domain_has_reached_its_stop() -> None:
    selection = ChosenTransactions(stop=GtidPosition.parse("0-1-2,7-1-5"))
    selection.shown(LOG)
    assert not selection.finished
    selection.shown(groups((7, 6, 1)))
    assert selection.finished


def test_times_are_of_the_commit_start_included() -> None:
    shown = ChosenTransactions(start_time=200, stop_time=300).shown(LOG)
    assert shown.tolist() == [False, True, True, False, False]


def test_sequence_numbers_are_unsigned() -> None:
    top = (1 << 64) - 1
    shown = ChosenTransactions(start=GtidPosition.parse("0-1-5")).shown(groups((0, 5, 0), (0, top, 0)))
    assert shown.tolist() == [False, True]
