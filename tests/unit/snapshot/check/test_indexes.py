from __future__ import annotations

from replica.snapshot.check.facts import IndexPart, TableIndex, ask_indexes, read_indexes
from tests.unit.handshake.steps import converse


# SELECT * FROM information_schema.STATISTICS, as 10.11 answers; 10.5 has no last column.
def row(
    name: str, column: str, *, prefix: str | None = None, order: str = "A", ignored: str = "NO"
) -> tuple[str | None, ...]:
    where = ("def", "shop", "t", "0", "shop")
    return (*where, name, "1", column, order, "0", prefix, None, "", "BTREE", "", "", ignored)


ROWS = [
    row("PRIMARY", "b"),
    row("PRIMARY", "a", order="D"),
    row("short", "t", prefix="10", ignored="YES"),
]
PRIMARY = TableIndex(
    name="PRIMARY",
    unique=True,
    kind="BTREE",
    ignored=False,
    parts=(IndexPart("b", False, False), IndexPart("a", False, True)),
)


def test_indexes_have_their_columns_in_key_order() -> None:
    (indexes,) = read_indexes(ROWS).values()
    assert indexes[0] == PRIMARY
    assert (indexes[1].ignored, indexes[1].parts) == (True, (IndexPart("t", True, False),))


def test_a_server_that_ignores_no_index_does_not_say_so() -> None:
    (indexes,) = read_indexes(one[:-1] for one in ROWS).values()
    assert [one.ignored for one in indexes] == [False, False]


def test_one_question_asks_for_all_databases() -> None:
    said, found = converse(ask_indexes([("shop", None), ("crm", None)]), {"SELECT s.*": ROWS})
    assert len(said) == 1
    assert str(said[0]).count("s.TABLE_SCHEMA = %s") == 2
    assert list(found) == [("shop", "t")]
    assert "s.TABLE_NAME = %s" in str(converse(ask_indexes([("shop", "t")]), {})[0][0])
    assert converse(ask_indexes([]), {}) == ([], {})
