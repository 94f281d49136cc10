"""The judge of the snapshot: what a strict sink must not take, and how it says so."""

from __future__ import annotations

import base64
import functools
from typing import TYPE_CHECKING, Any

import pytest

from replica.protocol.gtid import GtidPosition
from replica.schema.table import ColumnSchema
from replica.snapshot.frontier import Frontier
from replica.snapshot.rows.kept_key import kept_integers, kept_key
from replica.snapshot.rows.row_block import TableKey
from streaming_source.offsets.offset import SourceOffset
from tests.kit.snapshot.result_rows import table
from tools.proofs.snapshot.frontier import delivered, parts_of, reading_tables
from tools.proofs.snapshot.judge import DELETE, INSERT, READ, UPDATE, Judge, Row, WrongRowError
from tools.proofs.snapshot.tables import TABLES, State, Table
from tools.proofs.snapshot.truth import Change

if TYPE_CHECKING:
    from collections.abc import Sequence

TABLE = next(table for table in TABLES if table.name == "neg")
OTHER = next(table for table in TABLES if table.name == "uniq")


def state(key: int, value: int = 0) -> State:
    return State(str(key), f"{key}={value}")


class Written:
    """Changes at positions that are their number: what the binlog says in a proof."""

    def __init__(self, *changes: Change) -> None:
        self.changes = list(changes)

    @staticmethod
    def up_to(position: str) -> int:
        return int(position)

    @staticmethod
    def key_of(_table: str, parts: list[bytes]) -> str:
        return str(int.from_bytes(parts[0], "little"))


class Case:
    """Keys 1 to 4 are there at first; 2 becomes 5, 1 changes, 3 goes."""

    changes = (
        Change("neg", state(2), state(5)),
        Change("neg", state(1), state(1, 9)),
        Change("neg", state(3), None),
    )

    def __init__(self) -> None:
        self.written = Written(*self.changes)
        begin = {"neg": {str(key): state(key).row for key in range(1, 5)}}
        self.judge = Judge("sink", (TABLE, OTHER), self.written, begin)  # type: ignore[arg-type]
        self._ordinal = 0

    def row(self, op: str, before: State | None = None, after: State | None = None) -> Row:
        self._ordinal += 1
        return Row(op, "neg", 0, 1, 7, self._ordinal, before, after)

    def batch(self, number: int, rows: Sequence[Row], position: int, frontier: dict[str, Any] | None) -> None:
        offset = {} if frontier is None else {"snapshot": frontier}
        extent = functools.partial(delivered, offset, self.written.key_of)
        self.judge.append(number, rows, str(position), extent)


def up_to(key: int, rows: int = 0) -> dict[str, Any]:
    """A frontier: the table is delivered up to this key."""
    kept = base64.b64encode(b"\x04\0" + key.to_bytes(4, "little")).decode()
    return {"after": ["snap", "neg"], "open": [["snap", "neg", kept]], "rows": rows}


@pytest.fixture
def case() -> Case:
    return Case()


def test_tables_then_changes(case: Case) -> None:
    case.batch(0, [], 0, {"rows": 0})
    case.batch(1, [case.row(READ, None, state(1)), case.row(READ, None, state(2))], 0, up_to(2))
    # 2 has moved out of what is delivered by now, into what is read.
    gone = case.row(DELETE, state(2))
    case.batch(2, [gone, case.row(READ, None, state(3)), case.row(READ, None, state(4))], 1, up_to(4))
    case.batch(3, [case.row(READ, None, state(5))], 1, None)
    case.batch(4, [case.row(UPDATE, state(1), state(1, 9)), case.row(DELETE, state(3))], 3, None)
    assert case.judge.held["neg"] == {"1": state(1, 9).row, "4": state(4).row, "5": state(5).row}
    assert case.judge.rows == {READ: 5, INSERT: 0, UPDATE: 1, DELETE: 2}
    case.judge.at_rest({"neg": {"1": state(1, 9).row, "4": state(4).row, "5": state(5).row}})
    with pytest.raises(WrongRowError, match=r"table neg, key '4'.*SELECT gives None"):
        case.judge.at_rest({"neg": {"1": state(1, 9).row, "5": state(5).row}})


def read(case: Case, *keys: int) -> list[Row]:
    return [case.row(READ, None, state(key)) for key in keys]


@pytest.mark.parametrize(
    ("keys", "frontier", "words"),
    [
        ((1, 3, 4), None, "3 rows at 0, the server 4 of what is delivered: 1 are lost"),
        ((1, 2, 3), None, "key '4'.*1 are lost"),
        ((1,), up_to(2), "1 rows at 0, the server 2 of what is delivered: 1 are lost"),
        ((1, 2, 3), up_to(2), "key '3'.*1 too many"),
        ((1, 2, 3, 4, 4), None, "key '4'.*already"),
    ],
)
def test_a_row_is_dropped_doubled_or_early(
    case: Case, keys: tuple[int, ...], frontier: dict[str, Any] | None, words: str
) -> None:
    with pytest.raises(WrongRowError, match=words):
        case.batch(1, read(case, *keys), 0, frontier)


def test_a_row_is_stale(case: Case) -> None:
    with pytest.raises(WrongRowError, match=r"key '1': at 2 the sink has '1=0', the server has '1=9'"):
        case.batch(1, read(case, 1, 3, 4, 5), 2, None)


def test_a_row_is_that_of_a_later_time(case: Case) -> None:
    rows = [*read(case, 3, 4, 5), case.row(READ, None, state(1, 9))]
    with pytest.raises(WrongRowError, match=r"key '1'.*the sink has '1=9', the server has '1=0'"):
        case.batch(1, rows, 1, None)


def test_a_change_is_missing(case: Case) -> None:
    case.batch(1, read(case, 1, 2, 3, 4), 0, None)
    with pytest.raises(WrongRowError, match=r"batch 2, table neg, key '[25]'"):
        case.batch(2, [], 1, None)


@pytest.mark.parametrize(
    ("op", "before", "after", "words"),
    [
        (INSERT, None, state(4), "already"),
        (READ, None, state(4), "already"),
        (UPDATE, state(6), state(6, 1), "not there"),
        (UPDATE, state(4, 8), state(4, 9), "held is '4=0'"),
        (UPDATE, state(4), state(3), "already"),
        (DELETE, state(6), None, "not there"),
        (DELETE, state(4, 8), None, "held is '4=0'"),
        (UPDATE, None, state(4), "do not fit"),
    ],
)
def test_a_change_does_not_fit(case: Case, op: str, before: State | None, after: State | None, words: str) -> None:
    case.batch(1, read(case, 1, 2, 3, 4), 0, None)
    with pytest.raises(WrongRowError, match=words):
        case.batch(2, [case.row(op, before, after)], 0, None)


def test_an_identity_comes_again(case: Case) -> None:
    rows = read(case, 1, 2, 3, 4)
    case.batch(1, rows, 0, None)
    with pytest.raises(WrongRowError, match="came before"):
        case.batch(2, [rows[0]], 0, None)


def test_what_a_merge_left(case: Case) -> None:
    extent = functools.partial(delivered, {}, case.written.key_of)
    rows = [("neg", state(key)) for key in range(1, 5)]
    case.judge.merged(1, (), rows, "0", extent)
    case.judge.merged(2, [("neg", state(2))], [("neg", state(5))], "1", extent)
    with pytest.raises(WrongRowError, match=r"key '1'.*the server has '1=9'"):
        case.judge.merged(3, (), (), "2", extent)
    with pytest.raises(WrongRowError, match="never added"):
        case.judge.merged(3, [("neg", state(1, 9))], (), "2", extent)
    with pytest.raises(WrongRowError, match="twice"):
        case.judge.merged(3, (), [("neg", state(4))], "3", extent)


def test_how_an_offset_says_what_is_delivered(case: Case) -> None:
    def of(offset: dict[str, Any], table: Table = TABLE) -> bool | None:
        return delivered(offset, case.written.key_of, table).has(table, "7")

    assert [of({}), of({"snapshot": {"rows": 0}}), of({"snapshot": {"rows": 0, "done": True}})] == [True, False, True]
    assert [of({"snapshot": up_to(7)}), of({"snapshot": up_to(6)})] == [True, False]
    assert [of({"snapshot": up_to(7)}, OTHER), of({"snapshot": {"after": ["snap", "uniq"], "rows": 0}}, OTHER)] == [
        False,
        True,
    ]
    assert of({"snapshot": {"after": ["snap", "neg"], "open": [["snap", "neg", ""]], "rows": 0}}) is False
    ident = next(table for table in TABLES if table.name == "ident")
    frontier = {"after": ["snap", "neg"], "open": [["snap", "ident", up_to(7)["open"][0][2]]], "rows": 0}
    assert of({"snapshot": frontier}, ident) is None, "only the server knows how UUIDs are sorted"
    assert parts_of(b"\x02\0ab\0\0\x01\0c") == [b"ab", b"", b"c"]
    assert [reading_tables({}), reading_tables({"gtid": ""}), reading_tables({"snapshot": {}})] == [True, False, True]
    assert not reading_tables({"snapshot": {"done": True}})
    assert reading_tables({"snapshot": {"done": True, "open": [["snap", "neg", ""]]}})


def test_the_judge_reads_the_keys_of_an_offset_that_the_product_wrote(case: Case) -> None:
    number = ColumnSchema(name="k", data_type="int", column_type="int(11)", nullable=False)
    text = ColumnSchema(name="k2", data_type="varchar", column_type="varchar(20)", octets=80, charset="utf8mb4")
    pair = kept_key(table([number, text]), TableKey("PRIMARY", (0, 1), ordered=False), b"\xfc" + b"\7\0\0\0" + b"\2ab")
    (integer,) = kept_integers(table([number]), TableKey("PRIMARY", (0,), ordered=True), [7])
    assert [parts_of(pair), parts_of(integer)] == [[b"\7\0\0\0", b"ab"], [b"\7\0\0\0"]]
    frontier = Frontier().begin([("snap", TABLE.name)]).advance(("snap", TABLE.name), integer, 7)
    position = GtidPosition.parse("0-1-7")
    extent = delivered(SourceOffset(position, position, snapshot=frontier).json(), case.written.key_of, TABLE)
    assert [extent.has(TABLE, key) for key in ("-1", "7", "8")] == [True, True, False]


def test_the_judge_refuses_a_kept_key_of_another_format() -> None:
    for kept in (b"\xff\xfe" + bytes(8) + b"\1\0a", b"\4\0abc", b"\4"):
        with pytest.raises(AssertionError, match="a format that the judge does not know"):
            parts_of(kept)
