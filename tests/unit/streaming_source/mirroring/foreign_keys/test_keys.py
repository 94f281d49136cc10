from __future__ import annotations

import pytest

from replica.schema.effects.effect import StatementEffect
from replica.snapshot.check.facts import Cascade
from streaming_source.mirroring.foreign_keys.keys import Link, keys_after

LINES = Cascade("of_order", ("shop", "orders"), ("ON DELETE CASCADE", "ON UPDATE SET NULL"), ("order_id",), ("id",))
NOTES = Cascade("of_note", ("shop", "notes"), ("ON DELETE SET NULL",), ("note",), ("id",))


def test_an_action_is_of_its_event() -> None:
    link = Link(("shop", "order_lines"), LINES)
    assert (link.action("DELETE"), link.action("UPDATE")) == ("CASCADE", "SET NULL")
    assert Link(("shop", "order_lines"), NOTES).action("UPDATE") is None


@pytest.mark.parametrize(
    ("known", "now", "texts", "behind"),
    [
        (None, [LINES], [], [LINES]),
        ([LINES], [LINES, NOTES], ["ALTER TABLE order_lines ADD COLUMN x INT"], [LINES]),
        ([LINES], [LINES, NOTES], ["ALTER TABLE l ADD FOREIGN KEY (note) REFERENCES notes (id)"], [LINES, NOTES]),
        ([LINES, NOTES], [LINES], ["ALTER TABLE l ADD COLUMN x INT"], [LINES, NOTES]),
        ([LINES, NOTES], [LINES], ["ALTER TABLE l DROP FOREIGN KEY OF_NOTE"], [LINES]),
        ([LINES, NOTES], [], ["DROP TABLE l"], []),
        ([LINES, NOTES], [], ["SET STATEMENT lock_wait_timeout=5 FOR DROP /* x */ TABLE l"], []),
        ([LINES, NOTES], [], ["DROP DATABASE shop"], []),
        ([LINES, NOTES], [], ["ALTER TABLE l COMMENT 'drop table of_notes, references'"], [LINES, NOTES]),
        ([LINES, NOTES], [], ["DROP TABLE /* it does not end"], []),
        ([LINES, NOTES], [LINES], ["CREATE OR REPLACE TABLE l (id INT)"], [LINES]),
        ([LINES], [LINES._replace(parent=("shop", "old"))], ["RENAME TABLE orders TO old"], None),
    ],
)
def test_a_key_comes_and_goes_with_the_statement_that_names_it(
    known: list[Cascade] | None, now: list[Cascade], texts: list[str], behind: list[Cascade] | None
) -> None:
    """The server tells of now, which is later than the statements of a batch it may be."""
    assert keys_after(known, now, map(StatementEffect, texts)) == tuple(now if behind is None else behind)
