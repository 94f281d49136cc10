"""What the shop has written, counted up to GTID positions of one and of two domains."""

from __future__ import annotations

from demo.written import Written, covers


def test_what_lies_up_to_a_position_is_counted_by_domain() -> None:
    written = Written()
    assert written.reached("") == (0, None)
    written.add("0-1-5", 10.0, rows=4, transactions=2)
    written.add("1-1-2", 11.0, rows=1, transactions=1)
    written.add("0-1-8", 12.0, rows=6, transactions=3, told="ALTER")
    assert (written.rows, written.transactions) == (11, 6)
    assert written.told == [("0-1-8", 12.0, "ALTER")]
    assert written.reached("") == (0, 10.0)
    assert written.reached("0-1-5") == (4, 11.0)
    assert written.reached("0-1-7,1-1-2") == (5, 12.0)
    assert written.reached("1-1-2,0-1-9") == (11, None)


def test_a_transaction_lies_up_to_a_position_of_its_domain() -> None:
    assert covers("0-1-7,1-1-2", "1-3-2")
    assert covers("0-1-7,1-1-2", "0-1-7")
    assert not covers("0-1-7,1-1-2", "1-1-3")
    assert not covers("0-1-7", "1-1-1")
