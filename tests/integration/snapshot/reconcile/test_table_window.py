"""Rows read from real servers while they are written, moved to any place of the stream: the log's replay is the judge.

Writers move keys, swap and shift them, delete rows and put them in again, alone, in XA transactions and in several
domains. A reading knows a position that was reached a second before, and what it read; the chunk is moved to places
before and behind it.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from bisect import bisect_left
from dataclasses import replace
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pymysql
import pytest

from replica.errors import StatementDmlError
from replica.live.embedded import EmbeddedReplica
from replica.protocol.gtid import GtidPosition
from replica.protocol.rows.table_map import parse_table_map
from replica.relay_log.location import RelayLocation, relay_path
from replica.relay_log.log import RelayLog
from replica.rows.decode.decode import DecodeOptions, RangeDecoder
from replica.rows.decode.frontier import DeliveredKeys, OpenTable
from replica.rows.scan.scan import scan
from replica.rows.tables.layout import compile_layout
from replica.rows.types.keys import key_bytes_of
from replica.snapshot.connection.connection import TableConnection
from replica.snapshot.reconcile.reconciler import reconciled
from replica.snapshot.reconcile.window import BackfillWindow
from replica.snapshot.rows.kept_key import key_parts
from replica.snapshot.rows.row_block import RowBlock, TableKey
from replica.snapshot.rows.table_map import TABLE_ID
from tests.fixtures.mariadb import wait_until
from tests.fixtures.replicas import replica_config
from tests.integration.edges.log import catalog
from tests.integration.snapshot.kit.table_rows import binlog, decoded, read_rows
from tests.unit.rows.twin import Tables

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from replica.options.config import ReplicaConfig
    from replica.rows.decode.batch import ChangeBatch
    from replica.schema.table import TableSchema
    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server

KEYS = 40
WRITERS = 3
READINGS = 14
ENVELOPE = DecodeOptions()
TABLES = {
    "t": "id INT NOT NULL PRIMARY KEY, v VARCHAR(300), n BIGINT UNSIGNED",
    "c": "v VARCHAR(20), x SMALLINT NOT NULL, y VARBINARY(6) NOT NULL, b TEXT COMPRESSED, PRIMARY KEY (x, y)",
}

Rows = dict[tuple[Any, ...], tuple[Any, ...]]


class Reading(NamedTuple):
    """A part of a table as one SELECT saw it: keys behind `low` and up to `high` in the first column of the key."""

    table: str
    block: RowBlock
    lower: GtidPosition
    upper: GtidPosition
    low: int
    high: int


def write(server: MariaDb, number: int, seed: int, stop: threading.Event) -> None:
    chance = random.Random(seed)
    connection = server.connect(autocommit=True)
    with contextlib.closing(connection), connection.cursor() as cursor:
        cursor.execute(f"SET gtid_domain_id = {number}, innodb_lock_wait_timeout = 2")
        group = 0
        while not stop.is_set():
            group += 1
            xa = f"'w{number}.{group}'" if chance.random() < 0.4 else ""
            with contextlib.suppress(pymysql.MySQLError):
                cursor.execute(f"XA START {xa}" if xa else "BEGIN")
                for _ in range(chance.randint(1, 4)):
                    cursor.execute(statement(chance))
                if xa:
                    cursor.execute(f"XA END {xa}")
                    cursor.execute(f"XA PREPARE {xa}")
                    time.sleep(chance.random() / 50)
                ends = "ROLLBACK" if chance.random() < 0.1 else "COMMIT"
                cursor.execute(f"XA {ends} {xa}" if xa else ends)
                continue
            for undo in (f"XA END {xa}", f"XA ROLLBACK {xa}") if xa else ("ROLLBACK",):
                with contextlib.suppress(pymysql.MySQLError):
                    cursor.execute(undo)


def statement(chance: random.Random) -> str:
    one, two, value = chance.randrange(KEYS), chance.randrange(KEYS), chance.randrange(10**9)
    text = f"v{value}" + "-" * chance.choice((0, 0, 200))
    short = f"unhex(hex({two % 4}))"
    return chance.choice(
        (
            f"REPLACE INTO w.t VALUES ({one}, '{text}', {value})",
            f"REPLACE INTO w.t VALUES ({two}, '{text}', {value})",
            f"DELETE FROM w.t WHERE id BETWEEN {one} AND {one + 3}",
            f"UPDATE w.t SET id = {two}, n = {value} WHERE id = {one}",
            f"UPDATE w.t SET id = id + 1 WHERE id BETWEEN {one} AND {one + 5} ORDER BY id DESC",
            f"INSERT INTO w.t VALUES ({one}, 'new', 1) ON DUPLICATE KEY UPDATE n = n + 1, v = '{text}'",
            f"REPLACE INTO w.c VALUES ('{value}', {one % 9 - 4}, {short}, repeat('{value}', 30))",
            f"UPDATE w.c SET x = {two % 9 - 4} WHERE x = {one % 9 - 4} AND y = {short}",
            f"DELETE FROM w.c WHERE x = {one % 9 - 4}",
        )
    )


def read(config: ReplicaConfig, schemas: dict[str, TableSchema], stop: threading.Event) -> list[Reading]:
    chance, found, reached = random.Random(7), [], []
    with contextlib.closing(TableConnection.open(config)) as connection:
        while len(found) < READINGS:
            reached.append((time.monotonic(), connection.position()))
            old = [position for at, position in reached if at < time.monotonic() - 1]
            if not old:
                time.sleep(0.05)
                continue
            table = chance.choice(sorted(TABLES))
            schema, key = schemas[table], key_of(table)
            low, high = sorted(chance.sample(range(-1, KEYS) if table == "t" else range(-5, 6), 2))
            upper = connection.begin_snapshot()
            time.sleep(chance.random() / 30)
            first = schema.columns[key.columns[0]].name
            rows = read_rows(connection, schema, key, f"{first} > {low} AND {first} <= {high}")
            connection.end_snapshot()
            found.append(Reading(table, rows.block(), old[-1], upper, low, high))
            time.sleep(0.05)
    stop.set()
    return found


def key_of(table: str) -> TableKey:
    return TableKey("PRIMARY", (0,) if table == "t" else (1, 2), ordered=True)


def border(schema: TableSchema, table: str, value: int) -> bytes:
    """Key bytes behind those of all keys whose first column has this value, and before all others."""
    first = key_parts(schema, key_of(table))[:1]
    return key_bytes_of(first, [value.to_bytes(first[0].size, "little", signed=True)]) + b"\xff" * 16


class Truth:
    """The tables behind each group of a log, replayed from its beginning."""

    def __init__(self, log: RelayLog, schemas: dict[str, TableSchema]) -> None:
        head = log.head()
        assert head is not None
        self.places = [log.oldest()]
        self.tables: list[dict[str, Rows]] = [{name: {} for name in TABLES}]
        self.content = relay_path(log.directory, 1).read_bytes()[: head.location.offset]
        assert head.location.file == 1
        found = scan(self.content, checksum=False)
        self.places += [RelayLocation(1, end) for end in found.groups["end"].tolist()]
        self.changes: list[list[tuple[str, tuple[Any, ...] | None, tuple[Any, ...] | None]]] = [
            [] for _ in range(len(found.groups))
        ]
        maps = [parse_table_map(found.table_map_body(slot)) for slot in range(len(found.maps))]
        self.schemas, self.outputs = schemas, {}
        for name, schema in schemas.items():
            table_map = next(one for one in maps if one.table == name)
            self.outputs[name] = compile_layout(table_map, schema, None, ENVELOPE.policy).outputs
            decoder = RangeDecoder(Tables({f"w.{name}": schema}), ENVELOPE, self.outputs[name])
            for batch in decoder.decode(self.content, checksum=False):
                for group, (before, after) in zip(batch.group.tolist(), images(batch), strict=True):
                    self.changes[group].append((name, before, after))
        for changes in self.changes:
            tables = {name: dict(rows) for name, rows in self.tables[-1].items()}
            for name, before, after in changes:
                if before is not None:
                    del tables[name][identity(name, before)]
                if after is not None:
                    assert identity(name, after) not in tables[name]
                    tables[name][identity(name, after)] = after
            self.tables.append(tables)

    def follow(self, schema: TableSchema, place: int, value: int) -> None:
        """Go on behind a place with a table that is delivered up to a key, and take no row twice."""
        name = schema.table
        columns = tuple(schema.columns[column] for column in key_of(name).columns)
        delivered = DeliveredKeys(None, (OpenTable(("w", name), columns, border(schema, name, value)),))
        rows = {key: row for key, row in self.tables[place][name].items() if key[0] <= value}
        decoder = RangeDecoder(
            Tables({f"w.{one}": self.schemas[one] for one in TABLES}), DecodeOptions(shape="variant")
        )
        keyed = RangeDecoder(Tables({f"w.{name}": schema}), ENVELOPE, self.outputs[name])
        counts = []
        for reader in (decoder, keyed):
            counts.append(0)
            for batch in reader.decode(
                self.content, checksum=False, delivered=delivered, only=lambda groups: np.arange(len(groups)) >= place
            ):
                kept = np.ones(batch.rows, np.bool_) if batch.kept is None else batch.kept
                counts[-1] += int(kept.sum())
                if reader is not keyed:
                    continue
                for before, after in compress(images(batch), kept):
                    if before is not None:
                        assert rows.pop(identity(name, before)) == before
                    if after is not None:
                        assert identity(name, after) not in rows
                        rows[identity(name, after)] = after
        assert counts[0] == counts[1]
        assert rows == {key: row for key, row in self.tables[-1][name].items() if key[0] <= value}


def images(batch: ChangeBatch) -> list[tuple[tuple[Any, ...] | None, tuple[Any, ...] | None]]:
    sides = []
    for side, valid in ((batch.before, batch.before_valid), (batch.after, batch.after_valid)):
        rows = zip(*(column.to_pylist() for column in side), strict=True)
        sides.append([row if told else None for row, told in zip(rows, valid.tolist(), strict=True)])
    return list(zip(*sides, strict=True))


def identity(table: str, row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(row[column] for column in key_of(table).columns)


def content_of(blocks: list[RowBlock], schema: TableSchema) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for block in blocks:
        if block.rows:
            block = replace(block, table_map=TABLE_ID.to_bytes(6, "little") + block.table_map[6:])  # noqa: PLW2901
            rows = decoded(binlog(block), parse_table_map(block.table_map), schema, ENVELOPE, schema.name)
            found += zip(*(column.to_pylist() for column in rows.after), strict=True)
    return found


@pytest.mark.quick_on("newest")
@pytest.mark.parametrize(
    "options",
    [pytest.param((), marks=pytest.mark.slow), ("--log-bin-compress=ON", "--log-bin-compress-min-len=10")],
)
def test_a_chunk_is_the_table_at_places_before_and_behind_its_reading(
    make_server: Callable[..., MariaDb], server_version: str, tmp_path: Path, options: tuple[str, ...]
) -> None:
    server = make_server(server_version, "--binlog-row-image=FULL", *options)
    server.sql("CREATE DATABASE w", *(f"CREATE TABLE w.{name} ({columns})" for name, columns in TABLES.items()))
    known = catalog(server, "w")
    schemas = {name: known["w", name] for name in TABLES}
    stop = threading.Event()
    config = replica_config(server)
    with EmbeddedReplica(config, tmp_path) as replica:
        replica.start(GtidPosition())
        writers = [threading.Thread(target=write, args=(server, number, number + 1, stop)) for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        try:
            readings = read(config, schemas, stop)
        finally:
            stop.set()
            for writer in writers:
                writer.join(60)
        log = RelayLog(tmp_path)
        wait_until(lambda: str(getattr(log.head(), "position", "")) == server.gtid_binlog_pos(), "all is received")
    truth = Truth(log, schemas)
    assert any(len(tables["t"]) > 5 for tables in truth.tables)
    chance, touched = random.Random(11), 0
    for reading in readings:
        schema, name = schemas[reading.table], ("w", reading.table)
        lower, upper = (log.locate(position) for position in (reading.lower, reading.upper))
        assert lower is not None
        assert upper is not None
        first, last = bisect_left(truth.places, lower), bisect_left(truth.places, upper)
        behind = chance.randint(last, len(truth.places) - 1)
        for place in {last, behind, chance.randint(first, last), chance.randint(1, last)}:
            v = truth.places[place]
            window = BackfillWindow.read(
                log, min(lower, v), max(upper, v), {name: key_of(reading.table)}, {name: schema}
            )
            states = window.state_at(name, lower, v)
            touched += len(states)
            begin, end = (border(schema, reading.table, value) for value in (reading.low, reading.high))
            found = content_of(reconciled(reading.block, states, begin, end), schema)
            inside = {
                key: row
                for key, row in truth.tables[place][reading.table].items()
                if reading.low < key[0] <= reading.high
            }
            assert found == [inside[key] for key in sorted(inside)]
    assert touched
    for name, schema in schemas.items():
        for place in chance.sample(range(1, len(truth.places)), 4):
            value = chance.randrange(KEYS) if name == "t" else chance.randint(-4, 4)
            truth.follow(schema, place, value)


@pytest.mark.parametrize(
    ("statements", "concerned"),
    [
        (("ALTER TABLE w.t ADD COLUMN x INT, ALGORITHM=INSTANT",), True),
        (("ALTER TABLE w.t DROP PRIMARY KEY, ADD PRIMARY KEY (id, n)",), True),
        (("TRUNCATE w.t",), True),
        (("CREATE OR REPLACE TABLE w.t (id INT PRIMARY KEY) AS SELECT 1 AS id",), True),
        (("CREATE TABLE w.gho LIKE w.t", "RENAME TABLE w.t TO w.del, w.gho TO w.t"), True),
        (("DROP TABLE w.c, w.t",), True),
        (("DROP DATABASE w",), True),
        (("CREATE UNIQUE INDEX i ON w.t (n)", "DROP INDEX i ON w.t"), True),
        (("SET STATEMENT lock_wait_timeout=5 FOR ALTER TABLE w.t FORCE",), True),
        (("ALTER TABLE w.c ADD COLUMN x2 INT", "CREATE VIEW w.s AS SELECT * FROM w.t", "DROP TABLE w.c"), False),
        (("CREATE TEMPORARY TABLE w.tt SELECT * FROM w.t", "INSERT INTO w.t VALUES (7, '', 7)"), False),
    ],
)
def test_statements_that_real_servers_log(
    server: MariaDb, tmp_path: Path, statements: tuple[str, ...], *, concerned: bool
) -> None:
    server.sql("DROP DATABASE IF EXISTS w", "CREATE DATABASE w")
    server.sql(*(f"CREATE TABLE w.{name} ({columns})" for name, columns in TABLES.items()))
    schema = catalog(server, "w")["w", "t"]
    before = GtidPosition.parse(server.gtid_binlog_pos())
    with EmbeddedReplica(replica_config(server), tmp_path) as replica:
        replica.start(before)
        server.sql(*statements)
        log = RelayLog(tmp_path)
        wait_until(lambda: str(getattr(log.head(), "position", "")) == server.gtid_binlog_pos(), "all is received")
    head = log.head()
    assert head is not None
    window = BackfillWindow.read(log, log.oldest(), head.location, {("w", "t"): key_of("t")}, {("w", "t"): schema})
    assert window.ddl(("w", "t"), log.oldest(), head.location) is concerned


def test_sessions_that_do_not_log_rows_are_named_by_transaction(server: MariaDb, tmp_path: Path) -> None:
    server.sql("DROP DATABASE IF EXISTS w", "CREATE DATABASE w", f"CREATE TABLE w.t ({TABLES['t']})")
    server.sql("INSERT INTO w.t VALUES (1, 'a', 1), (2, 'b', 2)")
    schema, name = catalog(server, "w")["w", "t"], ("w", "t")
    before = GtidPosition.parse(server.gtid_binlog_pos())
    with EmbeddedReplica(replica_config(server), tmp_path) as replica:
        replica.start(before)
        server.sql("SET SESSION binlog_format = STATEMENT", "UPDATE w.t SET v = 'c' WHERE id = 1")
        gtid = server.gtid_binlog_pos()
        server.sql("UPDATE w.t SET v = 'd' WHERE id = 2")
        log = RelayLog(tmp_path)
        wait_until(lambda: str(getattr(log.head(), "position", "")) == server.gtid_binlog_pos(), "all is received")
    head = log.head()
    assert head is not None
    window = BackfillWindow.read(log, log.oldest(), head.location, {name: key_of("t")}, {name: schema})
    with pytest.raises(StatementDmlError, match=rf"(?<![-\d]){gtid}(?![-\d]).* w\.t"):
        window.state_at(name, log.oldest(), head.location)
    behind = log.locate(GtidPosition.parse(gtid))
    assert behind is not None
    assert len(window.state_at(name, behind, head.location)) == 1
