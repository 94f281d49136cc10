"""The list of tables: their order, what is read ahead, and what is thrown away when a reading begins again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.protocol.gtid import Gtid, GtidPosition
from replica.relay_log.location import RelayLocation
from replica.schema.table import ColumnSchema, TableSchema
from replica.snapshot.chunks import schedule as reading_list
from replica.snapshot.chunks.schedule import ReadingList
from replica.snapshot.frontier import NOTHING
from replica.snapshot.rows.chunk import ReadTable, TableChunk
from replica.snapshot.rows.row_block import TableKey
from replica.snapshot.spool.spool import Spool
from tests.unit.snapshot.blocks import block_of

if TYPE_CHECKING:
    from pathlib import Path

    from replica.snapshot.chunks.table_reading import TableReading

A, B, C = ("d", "a"), ("d", "b"), ("d", "c")
HERE = RelayLocation(1, 100)
U = GtidPosition.parse("0-1-1")


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path, most_bytes=1 << 30, min_free_bytes=0)


def chunk(spool: Spool, begin: bytes = NOTHING, end: bytes | None = b"1", *, ordered: bool = True) -> TableChunk:
    columns = (ColumnSchema(name="id", data_type="int", column_type="int(11)"),)
    table = ReadTable(TableSchema(database="d", table="t", columns=columns), TableKey("PRIMARY", (0,), ordered))
    return TableChunk(table, begin, end, HERE, U, 3, 100, (spool.store(block_of(range(20_000))),))


def take(tables: ReadingList) -> TableReading:
    table = tables.take(HERE, 0)
    assert table is not None
    return table


def partly_delivered(tables: ReadingList, spool: Spool) -> TableReading:
    """Add a table, deliver its first chunk, and take it for the next one."""
    tables.add([A])
    table = take(tables)
    tables.put(table, table.life, chunk(spool))
    tables.delivered(table, list(table.chunks))
    return take(tables)


def divided(tables: ReadingList, spool: Spool) -> tuple[TableReading, TableReading]:
    """Add a table, read its first chunk, and take the two lanes that are left of it."""
    tables.add([A])
    table = take(tables)
    tables.put(table, table.life, chunk(spool), [b"4"])
    return take(tables), take(tables)


def test_threads_take_tables_in_order_and_go_on_with_those_begun() -> None:
    tables = ReadingList()
    tables.add([C, A])
    tables.add([B, A])
    assert tables.total == 3
    first, second = take(tables), take(tables)
    assert (first.name, second.name) == (A, B)
    tables.give_back(first)
    assert take(tables) is first
    assert take(tables).name == C
    assert tables.take(HERE, 0) is None
    assert tables.known() == [A, B, C]
    assert tables.all_begun
    assert not tables.finished


def test_chunks_are_delivered_in_order_until_the_table_is_done(spool: Spool) -> None:
    tables = ReadingList()
    tables.add([A])
    table = take(tables)
    assert tables.deliverable() == []
    assert tables.put(table, table.life, chunk(spool))
    assert tables.deliverable() == [table]
    assert take(tables).kept == b"1"
    tables.put(table, table.life, chunk(spool, b"1", None))
    assert tables.take(HERE, 0) is None
    tables.delivered(table, [table.chunks[0]])
    assert table.delivered == b"1"
    tables.delivered(table, [table.chunks[0]])
    assert tables.finished
    assert list(spool.folder.iterdir()) == []


def test_a_reading_that_began_again_takes_no_chunk_of_its_earlier_life(spool: Spool) -> None:
    tables = ReadingList()
    tables.add([A], {A: b"0"})
    table, life = take(tables), 0
    tables.put(table, life, chunk(spool, b"0", b"1"))
    tables.delivered(table, list(table.chunks))
    take(tables)
    tables.restart(table, not_before=RelayLocation(2, 0))
    assert not tables.put(table, life, chunk(spool, b"1", b"2"))
    assert (table.kept, table.chunks) == (b"1", type(table.chunks)())
    assert list(spool.folder.iterdir()) == []
    assert tables.take(HERE, 0) is None
    assert tables.take(RelayLocation(2, 0), 0) is table


def test_a_table_whose_key_is_changed_before_a_row_of_it_is_delivered_begins_again(spool: Spool) -> None:
    tables = ReadingList()
    tables.add([A])
    table = take(tables)
    tables.put(table, table.life, chunk(spool), [b"4"])
    lane, life = take(tables), take(tables).life
    assert not tables.rekey(lane, life)
    assert tables.rekeyed == ()
    assert not tables.put(lane, life, chunk(spool, b"1", b"4")), "of the life before"
    assert list(spool.folder.iterdir()) == []
    assert take(tables).kept == NOTHING


@pytest.mark.parametrize("read_on", [False, True])
def test_a_table_that_began_again_while_a_batch_took_its_chunks_goes_on_behind_them(
    spool: Spool, *, read_on: bool
) -> None:
    tables = ReadingList()
    table, other = divided(tables, spool)
    tables.give_back(table)
    taken = list(table.chunks)
    assert not tables.rekey(other, other.life)
    if read_on:
        one = take(tables)
        tables.put(one, one.life, chunk(spool, end=b"2"))
    tables.delivered(table, taken)
    assert (table.delivered, list(table.chunks), tables.known()) == (b"1", [], [A])
    assert take(tables).kept == b"1", "where the thread finds that the key is another one"
    assert tables.rekey(table, table.life)
    assert list(spool.folder.iterdir()) == []


def test_a_table_that_began_again_while_a_batch_took_the_last_of_it_is_done(spool: Spool) -> None:
    tables = ReadingList()
    first, last = divided(tables, spool)
    tables.put(first, first.life, chunk(spool, b"1", b"4"))
    tables.put(last, last.life, chunk(spool, b"4", None))
    taken = [(lane, list(lane.chunks)) for lane in tables.deliverable()]
    tables.restart(first)
    late = take(tables)
    life = late.life
    for lane, chunks in taken:
        tables.delivered(lane, chunks)
    assert tables.finished
    assert not tables.put(late, life, chunk(spool)), "of a table that is done"
    assert list(spool.folder.iterdir()) == []


def test_no_lane_is_left_of_a_table_that_is_taken_away(spool: Spool) -> None:
    tables = ReadingList()
    _, last = divided(tables, spool)
    tables.remove(A)
    assert (tables.finished, tables.deliverable()) == (True, [])
    assert not tables.put(last, 0, chunk(spool, b"4", None))
    assert list(spool.folder.iterdir()) == []


def test_a_table_whose_key_is_changed_behind_delivered_rows_waits_until_it_is_asked_for(spool: Spool) -> None:
    tables = ReadingList()
    table = partly_delivered(tables, spool)
    assert tables.rekey(table, table.life)
    assert (tables.rekeyed, tables.finished, tables.may_yield(HERE)) == ((A,), False, False)
    assert tables.take(HERE, 0) is None
    tables.follow({A: b"1"})
    assert tables.rekeyed == (A,), "as it was delivered"
    tables.follow({A: NOTHING})
    assert (tables.rekeyed, tables.may_yield(HERE)) == ((), True)
    assert take(tables).kept == NOTHING


def test_a_table_that_cannot_be_read_is_gone_for_the_delivery_until_it_is_asked_for(spool: Spool) -> None:
    tables = ReadingList()
    table = partly_delivered(tables, spool)
    tables.refuse(table, table.life - 1, "of a life before")
    assert take(tables) is table
    tables.refuse(table, table.life, "it has no key")
    assert ([one.refused for one in tables.deliverable()], tables.may_yield(HERE)) == (["it has no key"], False)
    assert tables.take(HERE, 0) is None
    tables.add([A])
    assert table.refused, "that it is there tells nothing"
    tables.remove(A)
    assert tables.finished
    tables.follow({A: NOTHING})
    assert (take(tables).refused, table.absent_at) == ("", GtidPosition())


def test_what_is_read_ahead_is_bounded(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_list, "BYTES_AHEAD", 200)
    tables = ReadingList()
    tables.add([A, B])
    table = take(tables)
    tables.put(table, 0, chunk(spool))
    tables.put(take(tables), 0, chunk(spool, b"1", b"2"))
    assert tables.take(HERE, 0) is None
    tables.delivered(table, [table.chunks[0]])
    assert take(tables) is table
    monkeypatch.setattr(reading_list, "CHUNKS_AHEAD", 1)
    tables.give_back(table)
    assert tables.take(HERE, 0) is None


def test_a_table_that_is_delivered_as_a_whole_is_read_on_and_waits_for_its_end(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_list, "BYTES_AHEAD", 50)
    tables = ReadingList()
    tables.add([A])
    table = take(tables)
    tables.put(table, 0, chunk(spool, ordered=False))
    assert tables.deliverable() == []
    assert take(tables) is table
    tables.put(table, 0, chunk(spool, b"1", None, ordered=False))
    assert tables.deliverable() == [table]


def test_tables_begun_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_list, "TABLES_AHEAD", 1)
    tables = ReadingList()
    tables.add([A, B])
    assert take(tables).name == A
    assert tables.take(HERE, 0) is None


def test_a_table_that_is_gone_waits_to_be_taken_off_and_may_come_back(spool: Spool) -> None:
    tables = ReadingList()
    tables.add([A])
    table = take(tables)
    tables.put(table, 0, chunk(spool))
    tables.give_back(take(tables), absent_at=U, life=table.life)
    assert tables.deliverable() == [table]
    assert (table.absent_at, len(table.chunks)) == (U, 0)
    tables.add([A])  # made again
    assert table.absent_at is None
    assert take(tables) is table
    tables.give_back(table, absent_at=U, life=table.life)
    tables.remove(A)
    assert tables.finished


def test_a_table_that_a_thread_found_gone_before_it_was_made_again_is_read_again(spool: Spool) -> None:
    tables = ReadingList()
    table = partly_delivered(tables, spool)
    tables.make([A], Gtid(0, 1, 2))
    tables.give_back(table, absent_at=GtidPosition.parse("0-1-1"), life=table.life)
    assert table.absent_at is None
    assert take(tables).kept == b"1"
    tables.give_back(table, absent_at=GtidPosition.parse("0-1-3"), life=table.life)
    assert (table.absent_at, tables.deliverable()) == (GtidPosition.parse("0-1-3"), [table])
    tables.make([A], Gtid(0, 1, 4))
    assert table.absent_at is None
    tables.refuse(take(tables), table.life, "it has no key")
    tables.make([A], Gtid(0, 1, 5))
    assert (table.absent_at, table.refused) == (None, "")


def test_a_frontier_that_says_otherwise_is_followed(spool: Spool) -> None:
    tables = ReadingList()
    tables.add([A, B], {A: b"5"})
    table = take(tables)
    assert table.delivered == b"5"
    tables.put(table, 0, chunk(spool, b"5", b"6"))
    tables.follow({A: b"5", B: NOTHING})
    assert len(table.chunks) == 1
    tables.follow({A: NOTHING, C: b"7", B: NOTHING})
    assert (len(table.chunks), table.kept, tables.total) == (0, NOTHING, 3)
    assert tables.known() == [A, B, C]
    assert [take(tables).kept for _ in range(3)] == [NOTHING, NOTHING, b"7"]


def test_a_closed_list_gives_no_table_and_keeps_no_chunk(spool: Spool) -> None:
    tables = ReadingList()
    tables.add([A])
    table = take(tables)
    tables.put(table, 0, chunk(spool))
    take(tables)
    tables.close()
    assert not tables.put(table, 0, chunk(spool, b"1"))
    assert tables.take(HERE, 60) is None
    assert list(spool.folder.iterdir()) == []


def test_lanes_are_read_side_by_side_and_delivered_one_behind_the_other(spool: Spool) -> None:
    tables = ReadingList()
    tables.add([A])
    first = take(tables)
    tables.put(first, 0, chunk(spool), [b"4", b"7"])
    one, second, third = take(tables), take(tables), take(tables)
    assert [(lane.kept, lane.upto) for lane in (one, second, third)] == [(b"1", b"4"), (b"4", b"7"), (b"7", None)]
    tables.put(third, 0, chunk(spool, b"7", None))
    tables.put(second, 0, chunk(spool, b"4", b"7"))
    assert tables.deliverable() == [first]
    tables.put(first, 0, chunk(spool, b"1", b"4"))
    assert tables.deliverable() == [first, second, third]
    tables.delivered(first, list(first.chunks))
    tables.delivered(second, list(second.chunks))
    tables.follow({A: b"7"})
    assert tables.deliverable() == [third]
    tables.delivered(third, list(third.chunks))
    assert tables.finished


def test_a_table_that_is_read_again_has_one_lane_until_it_is_divided_again(spool: Spool) -> None:
    tables = ReadingList()
    tables.add([A])
    first = take(tables)
    tables.put(first, 0, chunk(spool), [b"4"])
    first, second = take(tables), take(tables)
    tables.delivered(first, list(first.chunks))
    tables.restart(second)
    assert not tables.put(second, 0, chunk(spool, b"4", None))
    assert (first.kept, first.upto, first.divided, tables.known()) == (b"1", None, False, [A])
    assert list(spool.folder.iterdir()) == []


def test_the_first_lane_is_read_on_when_others_have_taken_all_room(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = ReadingList()
    tables.add([A, B])
    first = take(tables)
    tables.put(first, 0, chunk(spool), [b"4"])
    first, second = take(tables), take(tables)
    monkeypatch.setattr(reading_list, "CHUNKS_AHEAD", 1)
    tables.put(second, 0, chunk(spool, b"4", b"5"))
    tables.delivered(first, list(first.chunks))
    tables.give_back(first)
    assert take(tables) is first
    assert tables.take(HERE, 0) is None


def test_the_log_is_kept_from_what_a_chunk_in_the_middle_of_its_reading_sees(spool: Spool) -> None:
    tables = ReadingList()
    tables.add([A, B])
    later, last = RelayLocation(2, 100), RelayLocation(3, 100)
    reading = take(tables)
    assert tables.needed_from(later) == HERE, "what the thread took holds the log, though later ones see more"
    assert tables.put(reading, reading.life, chunk(spool))
    assert tables.needed_from(last) == HERE, "so does its chunk that waits"
    tables.delivered(reading, list(reading.chunks))
    assert tables.needed_from(last) == last


def test_no_table_is_taken_with_a_place_that_the_log_was_let_go_up_to(spool: Spool) -> None:
    tables = ReadingList()
    tables.add([A])
    later = RelayLocation(2, 100)
    assert tables.needed_from(later) == later
    assert tables.take(HERE, 0) is None, "a thread that looked at the lower position before it moved"
    table = tables.take(later, 0)
    assert table is not None
    assert table.name == A
    assert tables.needed_from(None) == later


def test_nothing_comes_of_tables_that_are_read_to_their_ends_gone_or_wait_for_a_later_place(spool: Spool) -> None:
    tables = ReadingList()
    tables.add([A, B])
    later = RelayLocation(2, 100)
    first = take(tables)
    assert tables.put(first, first.life, chunk(spool, end=None))
    assert tables.may_yield(HERE), "no thread has begun the other one"
    second = take(tables)
    assert tables.may_yield(HERE), "a thread reads it"
    tables.give_back(second)
    tables.restart(second, not_before=later)
    assert not tables.may_yield(HERE)
    assert tables.may_yield(later)
    assert tables.take(later, 0) is second
    tables.give_back(second, absent_at=U, life=second.life)
    assert not tables.may_yield(later)
    assert not tables.finished
