"""The audits that a mirror does by itself: when the next one is, and the line about each."""

from __future__ import annotations

import datetime as dt
import logging

import pytest

from streaming_source.auditing.result import AuditResult, LeftOut, TableAudit
from streaming_source.mirroring.control.scheduled_audit import outcome, seconds_left

NOW = dt.datetime(2026, 11, 23, tzinfo=dt.UTC)


def audited(table: str, **counts: int) -> TableAudit:
    hashes = {"source_hash": "0" * 32, "target_hash": "0" * 32, "source_rows": 1, "target_rows": 1}
    return TableAudit(
        table=table,
        target="t",
        version=1,
        position="0-1-5",
        buckets=256,
        differing_buckets=len(counts),
        counts=counts,
        differences=(),
        keys=("id",),
        seconds=0.1,
        **hashes,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("ago_s", "left_s"),
    [(None, 60.0), (0.0, 60.0), (20.0, 40.0), (60.0, 0.0), (3600.0, 0.0), (-3600.0, 60.0)],  # a clock that was put back
)
def test_the_next_audit_is_an_interval_behind_the_last(ago_s: float | None, left_s: float) -> None:
    last = None if ago_s is None else NOW - dt.timedelta(seconds=ago_s)
    assert seconds_left(last, NOW, 60.0) == left_s


def test_the_line_tells_what_differs_and_what_was_left_out() -> None:
    equal = AuditResult("0-1-5", (audited("shop.a"), audited("shop.b")))
    assert outcome(equal) == (logging.INFO, "audit at 0-1-5: 2 of 2 tables are equal")
    part = AuditResult("0-1-5", (audited("shop.a"),), (LeftOut("shop.b", "failed"),))
    assert outcome(part) == (logging.WARNING, "audit at 0-1-5: 1 of 2 tables are equal; left out: shop.b")
    wrong = AuditResult("0-1-5", (audited("shop.a"), audited("shop.b", missing=2, doubled=1)))
    level, text = outcome(wrong)
    assert level == logging.ERROR
    assert text == "audit at 0-1-5: 1 of 2 tables are equal; NOT EQUAL are shop.b: 2 missing, 1 doubled"
    many = AuditResult("", tuple(audited(f"shop.t{number}", extra=1) for number in range(12)))
    assert outcome(many)[1].endswith("shop.t9: 1 extra and 2 more")
