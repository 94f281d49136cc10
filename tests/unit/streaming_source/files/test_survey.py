"""What the look through the files finds: where wanted rows are, what they are called there, and whose XA rows come."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from replica.errors import DataLossError, ProtocolError, RelayError, SchemaError
from streaming_source.files import partition, survey
from tests.kit.binlog.primary import Primary
from tests.kit.binlog.real_rows import TABLE, prepare, transaction
from tests.kit.binlog.rows import Column, table_map
from tests.unit.streaming_source.feeds.binlog_files import BARE, crash, ddl, load, rows, values

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OTHER = table_map(1, [Column("a", 3)], table="other")


@pytest.fixture(params=[False, True], ids=["plain", "gzip"])
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Path]:
    """Writes streams as files bin.000001 and so on; gives their folder."""

    def written(*streams: Primary) -> Path:
        for number, stream in enumerate(streams, 1):
            content = stream.binlog()
            name = f"bin.{number:06d}"
            (tmp_path / name).write_bytes(gzip.compress(content) if request.param else content)
        return tmp_path

    return written


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (partition, survey):
        monkeypatch.setattr(module, "RANGE_BYTES", 300)


def test_small_partitions_hold_every_row_once_and_in_order(write: Callable[..., Path], small_ranges: None) -> None:
    first, second = Primary(), Primary(checksum=False)
    for number in range(20):
        transaction(first, number, -number)
    second.sequence = first.sequence
    for number in range(20, 30):
        transaction(second, number)
    folder = write(first, second)
    loaded = load(folder)
    assert values(loaded) == [
        *((i + 1, a) for i in range(20) for a in (i, -i)),
        *((i + 1, i) for i in range(20, 30)),
    ]
    plain = (folder / "bin.000001").read_bytes()[:1] == b"\xfe"
    assert len(loaded.partitions) > 10 if plain else len(loaded.partitions) == 2


def test_stretches_without_wanted_rows_are_nobodys_work(write: Callable[..., Path], small_ranges: None) -> None:
    stream, empty = Primary(), Primary()
    for number in range(30):
        transaction(stream, number, body=TABLE if number in (3, 17) else OTHER)
        transaction(empty, number, body=OTHER)
    loaded = load(write(empty, stream, empty))
    assert values(loaded) == [(4, 3), (18, 17)]
    read = sum(s.end - s.start for partition in loaded.partitions for s in partition.stretches)
    assert read < len(bytes(stream)) / 3
    assert {partition.file for partition in loaded.partitions} == {"bin.000002"}
    assert load(write(empty), tables="d.nothing*").partitions == ()


@pytest.mark.parametrize("ranges", ["small", "large"])
def test_xa_rows_come_at_their_commit_wherever_they_were_prepared(
    write: Callable[..., Path], ranges: str, request: pytest.FixtureRequest
) -> None:
    if ranges == "small":
        request.getfixturevalue("small_ranges")
    first, second = Primary(), Primary()
    prepare(first, "across", 1, 2)  # 1
    prepare(first, "undone", 3)  # 2
    transaction(first, 4)  # 3
    prepare(first, "near", 5)  # 4
    for number in range(10):
        transaction(first, 100 + number)  # 5 to 14
    first.xa_end("near")  # 15
    second.sequence = first.sequence
    transaction(second, 6)  # 16
    second.xa_end("undone", "ROLLBACK")  # 17
    second.xa_end("across", compressed=True)  # 18
    prepare(second, "across", 7)  # 19, the name once more
    second.xa_end("across")  # 20
    prepare(second, "open", 8)
    expected = [
        (3, 4),
        *((5 + number, 100 + number) for number in range(10)),
        (15, 5),
        (16, 6),
        (18, 1),
        (18, 2),
        (20, 7),
    ]
    assert values(load(write(first, second))) == expected


def test_an_xa_commit_without_its_rows_is_refused_unless_they_are_nobodys(write: Callable[..., Path]) -> None:
    first, second = Primary(), Primary()
    prepare(first, "x", 1)
    second.xa_end("x")
    transaction(second, 2)
    folder = write(first, second)
    assert len(rows(load(folder))) == 2
    alone = next(folder.glob("*2"))
    with pytest.raises(DataLossError, match=r"bin.000002: 3-9-1 commits the XA transaction X'78'.*skipUnpreparedXa"):
        load(alone)
    assert values(load(alone, skipUnpreparedXa=True)) == [(2, 2)]


def test_xa_rows_of_other_tables_are_left_out_like_any_others(write: Callable[..., Path]) -> None:
    first, second = Primary(), Primary()
    prepare(first, "x", 1)
    second.sequence = 1
    transaction(second, 5, body=OTHER)
    second.xa_end("x")
    assert [(i, a) for i, a in values(load(write(first, second), table="d.other"))] == [(2, 5)]


def test_rows_without_names_are_called_what_the_ddl_before_them_said(write: Callable[..., Path]) -> None:
    first, second = Primary(), Primary()
    ddl(first, b"CREATE TABLE t (old INT)")
    transaction(first, 1, body=BARE)
    second.sequence = first.sequence
    ddl(second, b"ALTER TABLE t CHANGE old new INT UNSIGNED")
    transaction(second, -1, body=BARE)
    folder = write(first, second)
    shown = [row["after"]["metadata"] for row in rows(load(folder, tables="d.*"))]
    assert [b"old" in shown[0], b"new" in shown[1]] == [True, True]
    typed = load(folder)
    assert [(c.name, c.type) for c in typed.plan.columns or ()] == [("new", "BIGINT")]
    assert [row["after"] for row in rows(typed)] == [{"new": None}, {"new": 2**32 - 1}]


def test_rows_that_nothing_names_are_refused_with_the_reason(write: Callable[..., Path], tmp_path: Path) -> None:
    stream = Primary()
    transaction(stream, 1, body=BARE)
    folder = write(stream)
    with pytest.raises(SchemaError, match=r"d\.t have no known names: its CREATE TABLE is not among.*schemaFile"):
        load(folder)
    schema = tmp_path / "schema.sql"
    schema.write_text("USE d; CREATE TABLE t (given INT);")
    assert [row["after"] for row in rows(load(folder, schemaFile=schema))] == [{"given": 1}]
    schema.write_text("USE d; CREATE TABLE t (one INT, two INT);")
    with pytest.raises(SchemaError, match="columns"):
        load(folder, schemaFile=schema)


def test_the_newest_definition_of_a_table_makes_the_columns(write: Callable[..., Path]) -> None:
    first, second = Primary(), Primary()
    transaction(first, 1)
    second.sequence = first.sequence
    transaction(second, 2, body=table_map(1, [Column("b", 3)]))
    loaded = load(write(first, second))
    assert [c.name for c in loaded.plan.columns or ()] == ["b"]
    assert [row["after"] for row in rows(loaded)] == [{"b": None}, {"b": 2}]


def unsigned(stream: Primary, number: int) -> None:
    """A row of the table as it is with INT UNSIGNED, which is BIGINT in Spark."""
    transaction(stream, number, body=table_map(1, [Column("a", 3, unsigned=True)]))


def test_a_type_that_changed_is_refused_before_any_task(write: Callable[..., Path]) -> None:
    first, second = Primary(), Primary()
    unsigned(first, 1)
    transaction(second, 2)
    loaded = load(write(first, second))
    with pytest.raises(SchemaError, match=r"Column a of table d\.t is BIGINT in the binlog and INT in the query"):
        loaded.check(loaded.plan)


def test_older_rows_of_a_narrower_type_fit_into_the_newest(write: Callable[..., Path]) -> None:
    first, second = Primary(), Primary()
    transaction(first, 1)
    unsigned(second, 2)
    loaded = load(write(first, second))
    loaded.check(loaded.plan)
    assert [(row["after"]["a"], row["transaction"]["ordinal"]) for row in rows(loaded)] == [(1, 0), (2, 0)]


def test_a_file_that_ends_inside_a_transaction_gives_what_was_committed(
    write: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    stream = Primary()
    transaction(stream, 1)
    crash(stream)
    assert values(load(write(stream))) == [(1, 1)]
    assert "ends inside a transaction" in caplog.text


def test_damage_behind_the_beginning_of_a_transaction_is_an_error(write: Callable[..., Path]) -> None:
    stream = Primary()
    transaction(stream, 1)
    crash(stream)
    stream.events.append(b"\0" * 40)
    with pytest.raises(ProtocolError):
        load(write(stream))


def test_a_file_that_changed_since_it_was_looked_through_is_refused(write: Callable[..., Path]) -> None:
    long, short = Primary(), Primary()
    for number in range(5):
        transaction(long, number)
    transaction(short, 1)
    loaded = load(write(long))
    write(short)
    with pytest.raises(RelayError, match="is not the file that load"):
        rows(loaded)
    (partition,) = loaded.partitions
    (write(short) / "bin.000001").unlink()
    with pytest.raises(RelayError, match=r"cannot be read.*storage that the driver and all executors can read"):
        list(partition.pieces())
