"""Rows of XA transactions are delivered where they are committed, once, with the ordinals and GTID of the commit."""

from __future__ import annotations

import random
from typing import Literal

import pyarrow as pa
import pytest

from replica.errors import DataLossError, ProtocolError
from replica.protocol.constants import EventType, GtidFlag
from replica.protocol.gtid import Gtid
from replica.rows.decode.decode import DecodeOptions, RangeDecoder, count_rows
from replica.rows.scan import windows
from replica.rows.scan.scan import scan
from replica.rows.scan.xa import CarriedGroup, XaAction, XaGroup, deliver, find_xa_groups, xa_groups
from replica.rows.types.types import OutputColumn
from tests.kit.binlog.bodies import xa_fields, xa_id
from tests.kit.binlog.primary import Primary
from tests.kit.binlog.real_rows import TABLE, insert, prepare, transaction
from tests.kit.binlog.rows import INSERT, Column, image, rows, table_map
from tests.unit.rows.twin import Tables, check_twin

WANTED = Tables({"d.t": None})


def decoded(
    stream: Primary | bytes,
    *,
    carried: list[CarriedGroup] | None = None,
    unprepared: list[XaGroup] | None = None,
    batch_rows: int = 1000,
    checksum: bool = True,
) -> list[tuple[int, int, int, bool]]:
    """(sequence number, ordinal, value, last) of every row."""
    decoder = RangeDecoder(WANTED, DecodeOptions(batch_rows=batch_rows), [OutputColumn("a", pa.int32(), "INT")])
    found = []
    for batch in decoder.decode(bytes(stream), checksum=checksum, carried=carried or (), unprepared=unprepared):
        numbers = batch.groups.seq_no[batch.group].tolist()
        values = batch.after[0].to_pylist()
        found += list(zip(numbers, batch.ordinal.tolist(), values, batch.last.tolist(), strict=True))
    return found


@pytest.mark.parametrize("checksum", [True, False])
def test_rows_come_at_the_commit_under_its_gtid(*, checksum: bool) -> None:
    stream = Primary(checksum=checksum)
    transaction(stream, 1)  # 1
    prepare(stream, "x", 2, 3)  # 2
    transaction(stream, 4, 5)  # 3
    stream.xa_end("x")  # 4
    transaction(stream, 6)  # 5
    found = decoded(stream, checksum=checksum)
    assert found == [
        (1, 0, 1, True),
        (3, 0, 4, False),
        (3, 1, 5, True),
        (4, 0, 2, False),
        (4, 1, 3, True),
        (5, 0, 6, True),
    ]


def test_rows_rolled_back_or_never_ended_do_not_come() -> None:
    stream = Primary()
    prepare(stream, "gone", 1)
    transaction(stream, 2)
    prepare(stream, "open", 3)
    stream.xa_end("gone", "ROLLBACK")
    assert decoded(stream) == [(2, 0, 2, True)]


def test_interleaved_transactions_are_told_apart_by_all_of_their_id() -> None:
    stream = Primary()
    prepare(stream, "a", 1)
    prepare(stream, "b", 2)
    stream.xa_end("b")
    stream.xa_end("a")
    assert decoded(stream) == [(3, 0, 2, True), (4, 0, 1, True)]


def test_an_id_may_be_used_again() -> None:
    stream = Primary()
    prepare(stream, "x", 1)
    stream.xa_end("x")
    prepare(stream, "x", 2)
    stream.xa_end("x", "ROLLBACK")
    prepare(stream, "x", 3)  # the server lost it in a crash
    prepare(stream, "x", 4)
    stream.xa_end("x")
    assert decoded(stream) == [(2, 0, 1, True), (7, 0, 4, True)]


def test_groups_before_an_event_that_must_not_be_passed_are_delivered() -> None:
    stream = Primary()
    prepare(stream, "x", 1)
    stream.xa_end("x")
    stream.event(EventType.INCIDENT, b"\1\0\4lost")
    prepare(stream, "y", 2)
    stream.xa_end("y")
    decoder = RangeDecoder(WANTED, DecodeOptions(), [OutputColumn("a", pa.int32(), "INT")])
    batches = decoder.decode(bytes(stream), checksum=True)
    assert next(batches).after[0].to_pylist() == [1]
    with pytest.raises(ProtocolError, match="lost"):
        next(batches)


def test_one_phase_is_an_ordinary_transaction() -> None:
    stream = Primary()
    prepare(stream, "x", 1, one_phase=True)
    transaction(stream, 2)
    assert decoded(stream) == [(1, 0, 1, True), (2, 0, 2, True)]


def test_the_commit_may_be_a_compressed_query() -> None:
    stream = Primary()
    prepare(stream, "x", 1)
    stream.xa_end("x", compressed=True)
    assert decoded(stream) == [(2, 0, 1, True)]


def test_statements_of_several_tables_and_tiny_batches() -> None:
    other = table_map(2, [Column("a", 3)], table="u")
    stream = Primary()
    stream.begin(xa="x")
    insert(stream, 1)
    insert(stream, 8, 9, body=other.replace(b"\2", b"\1", 1))
    insert(stream, 2, 3, 4)
    stream.xa_prepared("x")
    stream.xa_end("x")
    transaction(stream, 5)
    found = decoded(stream, batch_rows=2)
    # Rows of the unwanted table count in the ordinals.
    assert found == [(2, 0, 1, False), (2, 3, 2, False), (2, 4, 3, False), (2, 5, 4, True), (3, 0, 5, True)]


@pytest.mark.parametrize("checksum", [True, False])
def test_groups_prepared_before_the_range_are_carried(*, checksum: bool) -> None:
    before = Primary()
    places = [prepare(before, "x", 1, 2), prepare(before, "y", 3), prepare(before, "z", 4)]
    carried = [CarriedGroup(bytes(before)[start:stop], checksum=True) for start, stop in places]
    stream = Primary(checksum=checksum, sequence=3)
    transaction(stream, 5)  # 4
    stream.xa_end("y")  # 5
    stream.xa_end("z", "ROLLBACK")  # 6
    transaction(stream, 6)  # 7
    prepare(stream, "y", 7)  # 8
    stream.xa_end("y")  # 9
    stream.xa_end("x")  # 10
    found = decoded(stream, carried=carried, checksum=checksum)
    assert found == [
        *((4, 0, 5, True), (5, 0, 3, True), (7, 0, 6, True), (9, 0, 7, True)),
        *((10, 0, 1, False), (10, 1, 2, True)),
    ]
    groups, counts = count_rows(bytes(stream), WANTED, checksum=checksum, carried=carried)
    assert dict(zip(groups.seq_no.tolist(), counts.tolist(), strict=True)) == {
        4: 1,
        5: 1,
        6: 0,
        7: 1,
        8: 0,
        9: 1,
        10: 2,
    }


def test_positions_stay_those_of_the_range() -> None:
    before = Primary()
    carried = [CarriedGroup(bytes(before)[slice(*prepare(before, "x", 1))], checksum=True)]
    stream = Primary()
    transaction(stream, 2)
    start = len(bytes(stream))
    stream.xa_end("x")
    found = scan(bytes(stream), checksum=True)
    parts = deliver(found, [CarriedGroup(bytes(before), checksum=True)])
    assert carried
    assert [len(part.events) for part in parts] == [1, 1]
    assert all(part.groups is found.groups for part in parts)
    assert int(found.groups["start"][1]) == start


def test_a_commit_without_its_rows_is_an_error_or_listed() -> None:
    stream = Primary()
    transaction(stream, 1)
    stream.xa_end("x")
    with pytest.raises(DataLossError, match=r"3-9-2 commits the XA transaction X'78',X'',1, .* not available"):
        decoded(stream)
    listed: list[XaGroup] = []
    assert decoded(stream, unprepared=listed) == [(1, 0, 1, True)]
    assert [(xa.xid, xa.gtid) for xa in listed] == [(xa_id("x"), Gtid(3, 9, 2))]
    assert count_rows(bytes(stream), WANTED, checksum=True)[1].tolist() == [1, 0]


def test_a_rollback_of_what_is_not_known_is_nothing() -> None:
    stream = Primary()
    stream.xa_end("x", "ROLLBACK")
    transaction(stream, 1)
    assert decoded(stream) == [(2, 0, 1, True)]


def test_the_end_of_a_transaction_must_say_which() -> None:
    stream = Primary()
    stream.gtid(None, GtidFlag.COMPLETED_XA | GtidFlag.STANDALONE, xa_fields(xa_id("x")))
    stream.query(b"DROP TABLE t")
    with pytest.raises(ProtocolError, match="DROP TABLE t"):
        decoded(stream)


def test_errors_in_a_carried_group_say_so() -> None:
    before = Primary()
    before.begin(xa="x")
    before.event(EventType.TABLE_MAP, TABLE)
    event = before.event(INSERT, rows(1, 1, image([b"\1\2"])))
    before.xa_prepared("x")
    stream = Primary()
    stream.xa_end("x")
    with pytest.raises(ProtocolError, match="ends beyond its event") as caught:
        decoded(stream, carried=[CarriedGroup(bytes(before), checksum=True)])
    assert (caught.value.offset or 0) > event
    assert "prepared before the range" in caught.value.__notes__[0]


@pytest.mark.parametrize("shape", ["envelope", "flat", "variant"])
def test_random_streams_as_the_plain_decoder_reads_them(shape: Literal["envelope", "flat", "variant"]) -> None:
    for seed in range(10):
        chance, opened, stream = random.Random(seed), set[str](), Primary()
        transaction(stream, 0)
        for value in range(60):
            name = chance.choice("abcdef")
            if name in opened and chance.random() < 0.5:
                stream.xa_end(name, chance.choice(("COMMIT", "ROLLBACK")), compressed=chance.random() < 0.3)
                opened.discard(name)
            elif chance.random() < 0.5:
                prepare(stream, name, *range(value, value + chance.randrange(1, 5)))
                opened.add(name)
            else:
                transaction(stream, value)
        check_twin(stream.binlog(), WANTED, DecodeOptions(shape=shape, batch_rows=chance.choice((2, 7, 1000))))


@pytest.mark.parametrize("window", [1, 100, 16 << 20])
def test_groups_are_found_with_their_places(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "WINDOW_BYTES", window)
    stream = Primary()
    transaction(stream, 1)
    assert find_xa_groups(bytes(stream), checksum=True) == []
    start, stop = prepare(stream, "x", 2)
    stream.xa_end("x", "ROLLBACK")
    found = find_xa_groups(bytes(stream), checksum=True)
    assert [(xa.action, xa.xid, xa.gtid) for xa in found] == [
        (XaAction.PREPARE, xa_id("x"), Gtid(3, 9, 2)),
        (XaAction.ROLLBACK, xa_id("x"), Gtid(3, 9, 3)),
    ]
    assert found[0][3:] == (start, stop, -1)
    assert found[1][3:] == (stop, len(bytes(stream)), -1)
    scanned = xa_groups(scan(bytes(stream), checksum=True))
    assert scanned == [xa._replace(number=number) for number, xa in enumerate(found, 1)]
    # In a file: behind magic and FORMAT_DESCRIPTION.
    head = len(stream.binlog()) - len(bytes(stream))
    assert [xa.start for xa in find_xa_groups(stream.binlog(), checksum=True)] == [head + start, head + stop]
