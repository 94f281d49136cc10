"""Real binlogs through both decoders, and what a batch promises: order, ordinals, limits, statements, buffers.

The worklist: operations, updates that change nothing, groups and filters. What is left is what a full decode has, less
these rows. The oracle decodes everything and leaves rows out afterwards, in Python; `last` is the last of the selected
rows of its transaction, whether or not a filter delivers it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.errors import ConfigError, ProtocolError, ReplicaError
from replica.protocol.constants import EventType
from replica.rows.decode import slots
from replica.rows.decode.decode import DecodeOptions, RangeDecoder, count_rows
from replica.rows.tables.layout import TableTarget
from replica.rows.types.types import OutputColumn, ValuePolicy
from replica.schema.catalog import columns_query, keys_query, read_catalog
from replica.schema.patterns import ColumnMatcher
from replica.schema.table import ColumnSchema, TableSchema
from tests.fixtures.mariadb import MariaDb
from tests.kit.binlog import bodies
from tests.kit.binlog.primary import Primary
from tests.kit.binlog.rows import COMPRESSED, DELETE, INSERT, KINDS, UPDATE, Column, image, rows, table_map
from tests.unit.rows.all_types import COLUMNS, MULTI_BYTE, statements
from tests.unit.rows.twin import Tables, check_twin, kernel_rows, reference_rows

if TYPE_CHECKING:
    from replica.protocol.rows.table_map import TableMapEvent
    from replica.rows.decode.batch import Groups
    from tests.unit.rows.twin import Row

Shape = Literal["envelope", "flat", "variant"]
SHAPES: tuple[Shape, ...] = ("envelope", "flat", "variant")
MODES = (
    ("FULL", "CRC32", "FULL"),
    ("FULL", "NONE", "MINIMAL"),
    ("MINIMAL", "CRC32", "NOBLOB"),
    ("NO_LOG", "CRC32", "MINIMAL"),
    ("NO_LOG", "NONE", "FULL"),
)


class Recorded(NamedTuple):
    """A server's binlog file of one run of the statements, and its catalog at the end."""

    data: bytes
    schemas: dict[str, TableSchema]
    sets: list[str]  # what SELECT prints of the SET with an empty label, per untouched row
    known: dict[tuple[str, ValuePolicy], list[Row]]  # what the reference decoder gave, per table

    def check(self, name: str, schema: TableSchema | None, options: DecodeOptions, *, checksum: bool) -> None:
        """The plain decoder knows no shapes: what it gave once is compared with all of them."""
        tables, key = Tables({name: schema}), (name, options.policy)
        if key not in self.known:
            self.known[key] = list(reference_rows(self.data, tables, options.policy))
        check_twin(self.data, tables, options, checksum=checksum, rows=self.known[key])


@pytest.fixture(scope="module")
def recorded(server_version: str) -> dict[tuple[str, str, str], Recorded]:
    """The same statements under every mode, on one server."""
    found = {}
    with MariaDb(server_version) as server:
        for number, mode in enumerate(MODES):
            metadata, checksum, row_image = mode
            database = f"d{number}"
            with server.connect() as connection, connection.cursor() as cursor:
                cursor.execute(f"SET GLOBAL binlog_row_metadata = {metadata}, GLOBAL binlog_row_image = {row_image}")
                cursor.execute(f"SET GLOBAL binlog_checksum = {checksum}")
                cursor.execute(f"SET binlog_row_image = {row_image}, sql_mode = 'ALLOW_INVALID_DATES'")
                cursor.execute("SET time_zone = '+00:00'")
                cursor.execute(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
                cursor.execute(f"USE {database}")
                cursor.execute("FLUSH BINARY LOGS")
                *before, last = statements("a", COLUMNS)
                for statement in before:
                    cursor.execute(statement)
                column = next(i for i, (declaration, _) in enumerate(COLUMNS) if declaration.startswith("SET(''"))
                cursor.execute(f"SELECT c{column} FROM a WHERE id IN (1, 2) ORDER BY id")
                sets = [row[0] for row in cursor.fetchall()]
                for statement in (last, *statements("m", MULTI_BYTE)):
                    cursor.execute(statement)
                results = []
                for query, arguments in (columns_query([(database, None)]), keys_query([(database, None)])):
                    cursor.execute(query, arguments)
                    results.append(list(cursor.fetchall()))
            current = server.binlogs()[-1]
            server.sql("FLUSH BINARY LOGS")
            catalog = read_catalog(results[0], results[1])
            found[mode] = Recorded(
                (server.datadir / current).read_bytes(),
                {f"{db}.{table}": schema for (db, table), schema in catalog.items()},
                sets,
                {},
            )
    return found


@pytest.mark.server
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mode", MODES, ids="-".join)
def test_a_real_binlog_reads_the_same_with_both_decoders(
    recorded: dict[tuple[str, str, str], Recorded], mode: tuple[str, str, str], shape: Shape
) -> None:
    run = recorded[mode]
    checksum = mode[1] == "CRC32"
    for name in run.schemas:
        schema = None if mode[0] == "FULL" else run.schemas[name]
        run.check(name, schema, DecodeOptions(shape=shape), checksum=checksum)
        if mode[0] == "FULL":  # neither depends on who names the columns
            run.check(name, schema, DecodeOptions(shape=shape, invalid_dates="text", batch_rows=3), checksum=checksum)


@pytest.mark.server
def test_a_set_with_an_empty_label_reads_as_select_prints_it(recorded: dict[tuple[str, str, str], Recorded]) -> None:
    run = recorded[MODES[0]]
    column = next(i for i, (declaration, _) in enumerate(COLUMNS) if declaration.startswith("SET(''"))
    output = [OutputColumn(f"c{column}", pa.string(), "STRING")]
    decoded = kernel_rows(run.data, RangeDecoder(Tables({"d0.a": None}), DecodeOptions(), output))
    assert decoded.after[0].to_pylist()[1:3] == run.sets


@pytest.mark.server
def test_invalid_dates_stop_the_stream_only_when_asked_to(recorded: dict[tuple[str, str, str], Recorded]) -> None:
    run = recorded[MODES[0]]
    decoder = RangeDecoder(Tables({"d0.a": None}), DecodeOptions(shape="variant", invalid_dates="error"))
    with pytest.raises(ReplicaError, match=r"column c\d+ of d0\.a holds a date that does not exist"):
        kernel_rows(run.data, decoder)


@pytest.mark.server
def test_rows_of_a_rolled_back_transaction_are_not_delivered(server: MariaDb) -> None:
    """The server logs it because a temporary table cannot be rolled back; MyISAM's rows are groups of their own."""
    server.sql(
        "SET GLOBAL binlog_row_metadata = FULL",
        "CREATE OR REPLACE DATABASE undone",
        "CREATE TABLE undone.i (a INT) ENGINE=InnoDB",
        "CREATE TABLE undone.m (a INT) ENGINE=MyISAM",
        "FLUSH BINARY LOGS",
    )
    server.sql(
        "SET SESSION binlog_row_image = FULL",
        "BEGIN",
        "INSERT INTO undone.i VALUES (11)",
        "CREATE TEMPORARY TABLE undone.t (a INT)",
        "INSERT INTO undone.m VALUES (12)",
        "INSERT INTO undone.i VALUES (13)",
        "ROLLBACK",
    )
    server.sql("INSERT INTO undone.i VALUES (14)")
    data = (server.datadir / server.binlogs()[-1]).read_bytes()
    assert b"\0ROLLBACK" in data
    output = [OutputColumn("a", pa.int32(), "INT")]
    tables = Tables({"undone.i": None, "undone.m": None})
    decoded = kernel_rows(data, RangeDecoder(tables, DecodeOptions(), output))
    assert sorted(zip(decoded.tables, decoded.after[0].to_pylist(), strict=True)) == [
        ("undone.i", 14),
        ("undone.m", 12),
    ]
    stored = {(f"undone.{t}", a) for t in "im" for (a,) in server.sql(f"SELECT a FROM undone.{t}")}
    assert stored == {("undone.i", 14), ("undone.m", 12)}
    assert sum(count_rows(data, tables, checksum=True)[1].tolist()) == 2


# -- made by hand ------------------------------------------------------------------------------------------------

ID, NAME = Column("id", 3), Column("name", 15, b"\x28\0")
OUTPUT = (OutputColumn("id", pa.int32(), "INT"), OutputColumn("name", pa.string(), "STRING"))
WANTED = Tables({"d.t": None})


def row(number: int, name: str | None = "x") -> bytes:
    text = None if name is None else bytes([len(name)]) + name.encode()
    return image([number.to_bytes(4, "little", signed=True), text])


def transactions() -> Primary:
    """Three groups; rows of an unwanted table before, between and after the wanted ones."""
    stream = Primary()
    for group in range(3):
        stream.gtid()
        stream.event(EventType.ANNOTATE_ROWS, f"statement of group {group}".encode())
        stream.event(EventType.TABLE_MAP, table_map(1, [ID, NAME]))
        stream.event(EventType.TABLE_MAP, table_map(2, [NAME, ID], table="other"))
        other = image([b"\x02ab", None])
        stream.event(INSERT, rows(2, 2, other * 3, flags=0))
        if group != 1:
            stream.event(INSERT, rows(1, 2, row(1) + row(2, None), flags=0))
            stream.event(UPDATE, rows(2, 2, other * 2, after=[True, True], flags=0))
            stream.event(UPDATE, rows(1, 2, row(1) + row(3), after=[True, True], flags=0))
            stream.event(DELETE, rows(1, 2, row(3), flags=0))
        stream.event(INSERT, rows(2, 2, other * 3))
        stream.xid()
    return stream


@pytest.mark.parametrize("batch_rows", [2, 3, 100])
def test_ordinals_count_the_rows_of_all_tables(batch_rows: int) -> None:
    data = bytes(transactions())
    decoded = kernel_rows(data, RangeDecoder(WANTED, DecodeOptions(batch_rows=batch_rows), OUTPUT))
    assert decoded.ordinals == [3, 4, 6, 7] * 2
    assert decoded.ops == [0, 0, 1, 2] * 2
    assert decoded.last == [False, False, False, True] * 2
    assert decoded.gtids == [(3, 9, 1)] * 4 + [(3, 9, 3)] * 4
    assert decoded.after[0].to_pylist() == [1, 2, 3, None] * 2
    assert decoded.before[1].to_pylist() == [None, None, "x", "x"] * 2
    flat = kernel_rows(data, RangeDecoder(WANTED, DecodeOptions(shape="flat", batch_rows=batch_rows), OUTPUT))
    assert flat.ops == [0, 0, 1, 2, 3] * 2
    assert flat.ordinals == [3, 4, 6, 6, 7] * 2
    assert flat.last == [False, False, False, False, True] * 2


def test_rows_are_counted_without_decoding_them() -> None:
    data = bytes(transactions())
    groups, counts = count_rows(data, WANTED, checksum=True)
    assert counts.tolist() == [4, 0, 4]
    assert groups.seq_no.tolist() == [1, 2, 3]
    assert count_rows(data, Tables({"d.other": None}), checksum=True)[1].tolist() == [7, 6, 7]
    assert count_rows(data, Tables({}), checksum=True)[1].tolist() == [0, 0, 0]


def test_rows_are_counted_whatever_the_catalog_says_of_them_by_now() -> None:
    column = ColumnSchema(name="x", data_type="date", column_type="date")
    altered = Tables({"d.t": TableSchema(database="d", table="t", columns=(column,))})
    assert count_rows(bytes(transactions()), altered, checksum=True)[1].tolist() == [4, 0, 4]


def test_groups_without_wanted_rows_yield_nothing_but_are_no_error() -> None:
    assert kernel_rows(bytes(transactions()), RangeDecoder(Tables({}), DecodeOptions(), OUTPUT)).ops == []
    assert kernel_rows(b"", RangeDecoder(WANTED, DecodeOptions(), OUTPUT)).ops == []


def test_a_table_is_resolved_once_for_all_ranges() -> None:
    tables = Tables({"d.t": None})
    decoder = RangeDecoder(tables, DecodeOptions(), OUTPUT)
    for _ in range(3):
        kernel_rows(bytes(transactions()), decoder)
    assert sorted(tables.resolved) == ["d.other", "d.t"]


def test_a_table_map_is_parsed_once_for_all_decoders_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []
    whole = slots.parse_table_map

    def counted(body: bytes, *, mysql: bool) -> TableMapEvent:
        parsed.append(bytes(body))
        return whole(body, mysql=mysql)

    monkeypatch.setattr(slots, "parse_table_map", counted)
    slots._parsed.cache_clear()
    for wanted in ("d.t", "d.other", "d.t"):
        kernel_rows(bytes(transactions()), RangeDecoder(Tables({wanted: None}), DecodeOptions(), OUTPUT))
    assert len(parsed) == 2


def test_columns_meet_by_name_and_missing_ones_are_null() -> None:
    stream = Primary()
    for columns, values in (([NAME, ID], [b"\x01a", b"\x05\0\0\0"]), ([ID], [b"\x06\0\0\0"])):
        stream.rows(table_map(1, columns), (INSERT, rows(1, len(columns), image(values))))
    extra = OutputColumn("added later", pa.decimal128(10, 2), "DECIMAL(10,2)")
    decoded = kernel_rows(bytes(stream), RangeDecoder(WANTED, DecodeOptions(), (*OUTPUT, extra)))
    assert [array.to_pylist() for array in decoded.after] == [[5, 6], ["a", None], [None, None]]


def test_a_text_column_that_changed_its_character_set_reads_right_on_both_sides_of_the_change() -> None:
    stream = Primary()
    for collation, text in ((45, "\u4e2d".encode()), (28, "\u4e2d".encode("gbk")), (8, b"\xe9")):
        stream.rows(
            table_map(1, [Column("name", 15, b"\x28\0", collation=collation)]),
            (INSERT, rows(1, 1, image([bytes([len(text)]) + text]))),
        )
    decoded = kernel_rows(bytes(stream), RangeDecoder(WANTED, DecodeOptions(), OUTPUT[1:]))
    assert decoded.after[0].to_pylist() == ["\u4e2d", "\u4e2d", "\u00e9"]


@pytest.mark.parametrize("shape", SHAPES)
def test_reused_buffers_give_the_same_rows_one_batch_at_a_time(shape: Shape) -> None:
    data = bytes(transactions())
    output = None if shape == "variant" else OUTPUT
    fresh = kernel_rows(data, RangeDecoder(WANTED, DecodeOptions(shape=shape, batch_rows=2), output))
    decoder = RangeDecoder(WANTED, DecodeOptions(shape=shape, batch_rows=2, reuse_buffers=True), output)
    seen: list[list[object]] = [[], []]
    for batch in decoder.decode(data, checksum=True):
        for side, arrays, valid in (
            (seen[0], batch.before or batch.columns, batch.before_valid),
            (seen[1], batch.after or batch.columns, batch.after_valid),
        ):
            values = [array.to_pylist() for array in arrays]
            present = valid.tolist() if shape == "envelope" else [True] * batch.rows
            side.extend(tuple(c[i] if present[i] else None for c in values) for i in range(batch.rows))
    expected = [
        list(zip(*(a.to_pylist() for a in side), strict=True))
        for side in (fresh.before or fresh.columns, fresh.after or fresh.columns)
    ]
    assert seen == expected


def test_batches_that_are_kept_keep_their_rows() -> None:
    batches = list(
        RangeDecoder(WANTED, DecodeOptions(batch_rows=2), OUTPUT).decode(bytes(transactions()), checksum=True)
    )
    assert [batch.rows for batch in batches] == [2, 2, 2, 2]
    assert [batch.after[0].to_pylist() for batch in batches] == [[1, 2], [3, None]] * 2


def test_statements_come_along_when_asked_for() -> None:
    options = DecodeOptions(want_sql=True)
    (batch,) = RangeDecoder(WANTED, options, OUTPUT).decode(bytes(transactions()), checksum=True)
    assert batch.sql.to_pylist() == ["statement of group 0"] * 4 + ["statement of group 2"] * 4


def test_rows_that_are_only_prepared_do_not_come() -> None:
    stream = Primary()
    stream.gtid()
    stream.event(EventType.TABLE_MAP, table_map(1, [ID, NAME]))
    stream.event(INSERT, rows(1, 2, row(1)))
    stream.event(EventType.XA_PREPARE, bytes(13))
    assert kernel_rows(bytes(stream), RangeDecoder(WANTED, DecodeOptions(), OUTPUT)).ops == []
    assert count_rows(bytes(stream), WANTED, checksum=True)[1].tolist() == [0]


def test_the_rows_before_an_event_that_must_not_be_passed_come_first() -> None:
    stream = transactions()
    at = stream.event(EventType.INCIDENT, b"\1\0\4lost")
    stream.gtid()
    ordinals: list[int] = []
    with pytest.raises(ProtocolError, match="INCIDENT") as caught:
        ordinals.extend(
            ordinal
            for batch in RangeDecoder(WANTED, DecodeOptions(), OUTPUT).decode(bytes(stream), checksum=True)
            for ordinal in batch.ordinal.tolist()
        )
    assert caught.value.offset == at
    assert ordinals == [3, 4, 6, 7] * 2


def test_version_2_events_step_over_their_extra_data() -> None:
    stream = Primary()
    stream.gtid()
    stream.event(EventType.TABLE_MAP, table_map(1, [ID, NAME]))
    body = rows(1, 2, row(4))
    stream.event(EventType.WRITE_ROWS, body[:8] + b"\x05\0abc" + body[8:])
    stream.xid()
    assert len(list(reference_rows(stream.binlog(), WANTED))) == 1
    assert kernel_rows(bytes(stream), RangeDecoder(WANTED, DecodeOptions(), OUTPUT)).after[0].to_pylist() == [4]


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="output columns"):
        RangeDecoder(WANTED, DecodeOptions(shape="variant"), OUTPUT)
    with pytest.raises(ConfigError, match="output columns"):
        RangeDecoder(WANTED, DecodeOptions(shape="flat"))
    with pytest.raises(ConfigError, match="two rows"):
        DecodeOptions(batch_rows=1)


MARKED_COLUMNS = [Column("a", 3), Column("b", 15, struct.pack("<H", 40)), Column("c", 3)]
MARKED_OUTPUT = [OutputColumn("a", pa.int32(), "INT"), OutputColumn("b", pa.string(), "STRING")]

Row = tuple[int | None, str | None, int | None]


class Only(NamedTuple):
    """A resolver of d.t alone, or of all tables of the stream."""

    target: TableTarget
    others: TableTarget | None = None

    def resolve(self, table_map: TableMapEvent) -> TableTarget | None:
        return self.target if table_map.table == "t" else self.others


_rows = st.tuples(
    st.none() | st.integers(0, 1), st.none() | st.sampled_from(["", "x", "long enough"]), st.integers(0, 1)
)
_event = st.tuples(
    st.sampled_from("tu"),
    st.integers(0, 2),
    st.booleans(),
    st.lists(st.tuples(_rows, _rows), min_size=1, max_size=3),
)
_groups = st.lists(st.lists(_event, max_size=4), min_size=1, max_size=4)


def encoded(row: Row) -> bytes:
    number, text, other = row
    return image(
        [
            None if number is None else struct.pack("<i", number),
            None if text is None else bytes([len(text)]) + text.encode(),
            None if other is None else struct.pack("<i", other),
        ]
    )


def stream_of(groups: list[list[tuple[str, int, bool, list[tuple[Row, Row]]]]]) -> bytes:
    stream = Primary()
    for events in groups:
        stream.gtid()
        for table, op, compressed, pairs in events:
            number = 1 + "tu".index(table)
            stream.event(EventType.TABLE_MAP, table_map(number, MARKED_COLUMNS, table=table))
            images = b"".join(encoded(b) + (encoded(a) if op == 1 else b"") for b, a in pairs)
            if compressed:
                images = bodies.block(images)
            kinds = COMPRESSED if compressed else KINDS
            stream.event(kinds[op], rows(number, 3, images, after=[True] * 3 if op == 1 else None))
        stream.xid()
    return bytes(stream)


def decoded(data: bytes, resolver: Only, only: object = None, *, shape: str = "envelope") -> list[tuple[object, ...]]:
    """(group, table, op, ordinal, before, after, last) of each row; batches of three rows end anywhere."""
    options = DecodeOptions(shape=shape, batch_rows=3)  # type: ignore[arg-type]
    decoder = RangeDecoder(resolver, options, None if shape == "variant" else MARKED_OUTPUT)
    found: list[tuple[object, ...]] = []
    for batch in decoder.decode(data, checksum=True, only=only):  # type: ignore[arg-type]
        names = [batch.tables[number].table for number in batch.table]
        sides = [
            list(zip(*(column.to_pylist() for column in side), strict=True)) for side in (batch.before, batch.after)
        ]
        found += zip(
            batch.group.tolist(),
            names,
            batch.op.tolist(),
            batch.ordinal.tolist(),
            *sides,
            batch.last.tolist(),
            strict=True,
        )
    return found


def expected(
    everything: list[tuple[object, ...]], operations: int, delivered: int, groups: set[int], *, skip: bool
) -> list[tuple[object, ...]]:
    selected = [
        row
        for row in everything
        if row[1] == "t"
        and row[0] in groups
        and operations >> int(row[2]) & 1  # type: ignore[call-overload]
        and not (skip and row[2] == 1 and row[4] == row[5])
    ]
    last = {row[0]: row[3] for row in selected}
    return [
        (*row[:6], last[row[0]] == row[3])
        for row in selected
        if delivered >> int(row[2]) & 1  # type: ignore[call-overload]
    ]


@pytest.mark.parametrize("shape", ["envelope", "variant"])
@settings(max_examples=60)
@given(
    groups=_groups,
    operations=st.integers(1, 7),
    delivered=st.integers(1, 7),
    skip=st.booleans(),
    chosen=st.integers(0, 15),
)
def test_what_is_left_is_what_a_full_decode_has(
    shape: str,
    groups: list[list[tuple[str, int, bool, list[tuple[Row, Row]]]]],
    operations: int,
    delivered: int,
    chosen: int,
    *,
    skip: bool,
) -> None:
    data = stream_of(groups)
    columns = ColumnMatcher(["a", "b"]) if shape == "variant" else None
    whole = TableTarget(columns=columns)
    everything = decoded(data, Only(whole, whole), shape=shape)
    target = TableTarget(None, operations, delivered, columns, skip_unchanged=skip)

    def choose(found: Groups) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return np.array([chosen >> number & 1 for number in range(len(found))], np.bool_)

    wanted = {number for number in range(4) if chosen >> number & 1}
    assert decoded(data, Only(target), choose, shape=shape) == expected(
        everything, operations, delivered, wanted, skip=skip
    )


def partial(before: list[bool], after: list[bool], images: bytes) -> bytes:
    stream = Primary()
    stream.rows(table_map(1, MARKED_COLUMNS), (UPDATE, rows(1, 3, images, before=before, after=after)))
    return bytes(stream)


def test_a_column_that_was_not_set_is_unchanged_and_one_without_its_old_value_is_changed() -> None:
    """binlog_row_image=MINIMAL logs the key before, and what the statement set after; FULL_NODUP what changed."""
    key, number = struct.pack("<i", 7), struct.pack("<i", 1)
    skip = Only(TableTarget(skip_unchanged=True))
    only_key = [True, False, False]
    set_c = partial(only_key, [False, False, True], image([key]) + image([number]))
    assert decoded(set_c, skip) == []  # c is not asked for, and nothing else was set
    set_b = partial(only_key, [False, True, False], image([key]) + image([b"\1x"]))
    assert [row[5] for row in decoded(set_b, skip)] == [(None, "x")]
    set_key = partial(only_key, only_key, image([key]) + image([key]))
    assert decoded(set_key, skip) == []


def test_where_no_column_is_read_every_update_comes() -> None:
    data = partial([True] * 3, [True] * 3, encoded((1, "x", 1)) * 2)
    decoder = RangeDecoder(Only(TableTarget(skip_unchanged=True)), DecodeOptions(shape="flat"), [])
    assert [batch.rows for batch in decoder.decode(data, checksum=True)] == [2]


@settings(max_examples=30)
@given(_groups)
def test_flat_rows_are_those_of_the_envelope(
    groups: list[list[tuple[str, int, bool, list[tuple[Row, Row]]]]],
) -> None:
    data = stream_of(groups)
    resolver = Only(TableTarget(None, skip_unchanged=True))
    rows_of_group = {(row[0], row[3]): row for row in decoded(data, resolver)}
    decoder = RangeDecoder(resolver, DecodeOptions(shape="flat", batch_rows=3), MARKED_OUTPUT)
    found = []
    for batch in decoder.decode(data, checksum=True):
        found += zip(batch.group.tolist(), batch.ordinal.tolist(), batch.op.tolist(), batch.last.tolist(), strict=True)
    assert list(dict.fromkeys((group, ordinal) for group, ordinal, *_ in found)) == list(rows_of_group)
    assert [last for *_, op, last in found if op != 1] == [row[6] for row in rows_of_group.values()]
    assert not any(last for *_, op, last in found if op == 1)
