"""The public readers against the reference decoder: files, relay logs, and going on where the last reading ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from replica.errors import (
    ConfigError,
    DataLossError,
    ProtocolError,
    RelayError,
    SchemaError,
    StatementDmlError,
)
from replica.protocol.events.binlog_file import decode_file
from replica.protocol.events.statement_events import QueryEvent
from replica.protocol.events.transaction_events import GtidEvent
from replica.protocol.gtid import Gtid, GtidPosition
from replica.protocol.rows.table_map import TableMapEvent
from replica.readers.arrow import FIELDS, decode_files, read_relay_log
from replica.schema.effects.history import SchemaHistory
from replica.schema.patterns import table_text
from tests.kit.oracle.rows import typed
from tests.kit.some import some
from tests.unit.commands.dump.files import vector
from tests.unit.commands.tail.relay_logs import recorded_log
from tests.unit.readers.rows.test_reading import split
from tests.unit.rows.twin import Tables, reference_rows
from tests.vectors.load import VERSIONS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pyarrow as pa

    from replica.relay_log.log import RelayLog
    from replica.schema.table import TableSchema

LOG = "11.8/transactions"
OPS = {0: "insert", 1: "update", 2: "delete"}
Rows = list[dict[str, Any]]


def rows(batches: Iterable[pa.RecordBatch]) -> Rows:
    """All rows, taken out after the last batch came: what an earlier one held has to be there still."""
    kept = list(batches)
    for batch in kept:
        batch.validate(full=True)
    return [row for batch in kept for row in batch.to_pylist()]


def known_tables(data: bytes) -> dict[str, TableSchema | None]:
    """Every table with rows, with what the DDL in the file says of it before the first of them."""
    history = SchemaHistory()
    found: dict[str, TableSchema | None] = {}
    for _, event in decode_file(data):
        if isinstance(event, QueryEvent):
            history.apply_event(event)
        elif isinstance(event, TableMapEvent):
            found.setdefault(f"{event.database}.{event.table}", history.table(event.database, event.table))
    return found


def reference(data: bytes, table: str, schema: TableSchema | None) -> Rows:
    """The same rows, event by event."""
    found = []
    for row in reference_rows(data, Tables({table: schema})):
        images: dict[str, Any] = {}
        for side, image in (("before", row.change.before), ("after", row.change.after)):
            values = [array.to_pylist()[0] for array in typed([image], row.layout)]
            named = zip((output.name for output in row.layout.outputs), values, strict=True)
            images[side] = None if image is None else dict(named)
        found.append(
            {
                "op": OPS[int(row.change.kind)],
                "gtid": "-".join(map(str, row.gtid)),
                "ordinal": row.ordinal,
                "absent_before": row.change.absent_before,
                "absent_after": row.change.absent_after,
                "history": row.change.history,
                **images,
            }
        )
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("stem", ["metadata_full", "minimal_image", "compression", "transactions"])
def test_each_table_of_a_recorded_file_is_what_the_reference_reads(version: str, stem: str) -> None:
    path = vector(f"{version}/{stem}")
    data = path.read_bytes()
    compared = 0
    for table, schema in known_tables(data).items():
        try:
            expected = reference(data, table, schema)
        except (SchemaError, ProtocolError):  # altered on the way, or of a type that is refused: other tests' business
            continue
        database, _, name_there = table.rpartition(".")  # no recorded table has a dot in its own name
        found = rows(decode_files([path], table_text((database, name_there)), on_statement_dml="skip"))
        assert [{name: row[name] for name in expected[0]} for row in found] == expected if expected else not found
        compared += len(expected)
    assert compared > 5


def test_each_row_names_its_transaction() -> None:
    (batch,) = decode_files([vector("11.8/metadata_full")], "`v.1`.simple_key")
    assert batch.schema.names == [field.name for field in FIELDS]
    first, second = batch.to_pylist()
    assert first["gtid"] == f"{first['domain_id']}-{first['server_id']}-{first['sequence_number']}"
    assert (first["ordinal"], second["ordinal"]) == (0, 1)
    assert (first["last"], second["last"]) == (False, True)
    assert first["commit_time"].timestamp() == 1_700_000_000


def test_a_part_is_asked_for_by_positions() -> None:
    whole = rows(decode_files([vector(LOG)], "v.t", on_statement_dml="skip"))
    for bound in some({row["gtid"]: row for row in whole}.values()):
        gtid, domain, number = (bound[name] for name in ("gtid", "domain_id", "sequence_number"))
        upto = [row for row in whole if row["domain_id"] == domain and row["sequence_number"] <= number]
        assert rows(decode_files([vector(LOG)], "v.t", until=gtid, on_statement_dml="skip")) == upto
        behind = decode_files([vector(LOG)], "v.t", after=GtidPosition.parse(gtid), on_statement_dml="skip")
        assert rows(behind) == [row for row in whole if row not in upto]


def test_what_was_logged_as_a_statement_ends_the_reading_behind_the_rows_before_it() -> None:
    batches = decode_files([vector("11.8/transactions")], "v.m")
    given: Rows = []
    with pytest.raises(StatementDmlError, match=r"v\.m by a statement") as caught:
        given.extend(row for batch in batches for row in batch.to_pylist())
    assert 'on_statement_dml="skip"' in caught.value.hint
    every = rows(decode_files([vector("11.8/transactions")], "v.m", on_statement_dml="skip"))
    assert every[: len(given)] == given


def test_prepared_rows_cross_files_and_are_refused_where_they_are_nowhere(tmp_path: Path) -> None:
    files = split(tmp_path, Gtid(0, 1, 13), packed=True)  # between XA PREPARE and XA COMMIT
    whole = rows(decode_files([vector(LOG)], "v.t", on_statement_dml="skip"))
    assert rows(decode_files(files, "v.t", on_statement_dml="skip")) == whole
    with pytest.raises(DataLossError, match="0-1-14 commits"):
        rows(decode_files(files[1:], "v.t", on_statement_dml="skip", schema_file=declared(tmp_path)))
    with pytest.raises(DataLossError, match="0-1-14 commits"):  # whose rows they are is not known
        rows(decode_files(files[1:], "v.nothing_of_it", on_statement_dml="skip"))
    behind = decode_files(files[1:], "v.t", after="0-1-14", on_statement_dml="skip", schema_file=declared(tmp_path))
    assert {row["gtid"] for row in rows(behind)} < {row["gtid"] for row in whole}


def declared(folder: Path) -> Path:
    path = folder / "tables.sql"
    path.write_text("CREATE DATABASE v; USE v; CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR(20)) CHARSET utf8mb4;")
    return path


def test_columns_without_names_are_refused(tmp_path: Path) -> None:
    _, second = split(tmp_path, Gtid(0, 1, 17), packed=False)
    with pytest.raises(SchemaError, match="no known names"):
        rows(decode_files([second], "v.t", on_statement_dml="skip"))


def test_wrong_calls_are_refused_at_once(tmp_path: Path) -> None:
    for table in ("orders", ".orders", ""):
        with pytest.raises(ConfigError, match=r"database\.table"):
            decode_files([], table)
    with pytest.raises(ConfigError, match="is a pattern for many tables"):
        decode_files([], "shop.*")
    with pytest.raises(ConfigError, match="invalid_dates='never' is not one of null, error, text"):
        decode_files([], "v.t", invalid_dates="never")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"after: .bin\.000001:4"):
        decode_files([], "v.t", after="bin.000001:4")
    for folder in (tmp_path / "none", tmp_path):
        with pytest.raises(RelayError, match="holds no relay log that a replica has begun"):
            read_relay_log(folder, "v.t")
    with pytest.raises(ConfigError, match="cannot be read"):
        rows(decode_files([tmp_path / "none"], "v.t"))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> RelayLog:
    return recorded_log(tmp_path_factory.mktemp("relay"), "11.8", "transactions", max_file_bytes=700)


def positions() -> list[GtidPosition]:
    """The position behind each transaction of the log."""
    found = [GtidPosition()]
    for _, event in decode_file(vector(LOG).read_bytes()):
        if isinstance(event, GtidEvent):
            found.append(found[-1].advance(event.gtid))
    return found


@pytest.mark.parametrize("table", ["v.t", "v.m"])
def test_a_relay_log_is_read_as_the_files_it_was_made_of(log: RelayLog, table: str) -> None:
    reader = read_relay_log(log.directory, table, on_statement_dml="skip")
    head = log.head()
    assert head is not None
    assert reader.position == head.position
    assert rows(reader) == rows(decode_files([vector(LOG)], table, on_statement_dml="skip"))


def test_reading_goes_on_behind_any_position(log: RelayLog) -> None:
    whole = rows(read_relay_log(log.directory, "v.t", on_statement_dml="skip"))
    for middle in some(positions()):
        first = read_relay_log(log.directory, "v.t", until=middle, on_statement_dml="skip")
        second = read_relay_log(log.directory, "v.t", after=first.position, on_statement_dml="skip")
        assert rows(first) + rows(second) == whole, middle


def test_the_end_of_the_log_and_what_was_purged_are_said(tmp_path: Path) -> None:
    log = recorded_log(tmp_path, "11.8", "transactions", max_file_bytes=700)
    with pytest.raises(RelayError, match=r"ends at .*, before 0-1-999"):
        read_relay_log(tmp_path, "v.t", until="0-1-999,7-99-1000")
    begin = log.oldest()
    log.purge_before(begin._replace(file=begin.file + 2))
    with pytest.raises(DataLossError, match="were purged"):
        read_relay_log(tmp_path, "v.t", after="0-1-1")
    with pytest.raises(ConfigError, match="no transaction of domain 5"):
        read_relay_log(tmp_path, "v.t", after="5-1-1")


def test_a_log_of_every_version_is_read(tmp_path: Path) -> None:
    for version in VERSIONS:
        log = recorded_log(tmp_path / version, version, "metadata_full")
        expected = rows(decode_files([vector(f"{version}/metadata_full")], "`v.1`.numbers"))
        assert rows(read_relay_log(log.directory, "`v.1`.numbers")) == expected
