"""The verdict: equal only if every row is, and nothing came twice or not at all."""

from __future__ import annotations

from dataclasses import replace

from demo.proof import Verdict, compare

SERVER = {(1,): {"id": 1, "status": "new"}, (2,): {"id": 2, "status": "paid"}}
EQUAL = Verdict("0-1-9", (compare("orders", SERVER, dict(SERVER), 2),), written=2, arrived=2)


def test_equal() -> None:
    assert EQUAL.equal
    assert EQUAL.tables[0].server_rows == EQUAL.tables[0].rebuilt_rows == 2


def test_a_missing_a_foreign_and_a_different_row_are_told() -> None:
    rebuilt = {(2,): {"id": 2, "status": "sent"}, (3,): {"id": 3}}
    verdict = compare("orders", SERVER, rebuilt, 2)
    assert verdict.differing == 3
    assert verdict.examples == (
        "row 1 is only on the server",
        "row 2 differs in status: 'paid' on the server, 'sent' in the stream",
        "row 3 is only in the stream",
    )
    assert not replace(EQUAL, tables=(verdict,)).equal


def test_a_lost_change_a_fault_or_an_extra_one_is_not_equal() -> None:
    assert not replace(EQUAL, arrived=1).equal
    assert not replace(EQUAL, arrived=3).equal
    assert not replace(EQUAL, faults=("arrived twice",)).equal
