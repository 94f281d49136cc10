"""What the last rows of a relay log say about their table, from the binlogs of real servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.errors import SchemaError
from replica.protocol.events.binlog_file import encode_rotate
from replica.relay_log.log import RelayLog
from replica.relay_writer.writer import RelayWriter
from replica.rows.types.types import ValuePolicy, output_column
from replica.schema.definition.definition import table_of
from streaming_source.attached import table as attached_table
from streaming_source.attached.table import newest_table
from tests.kit.binlog.primary import CRC32, packet
from tests.kit.relay.driving import receive
from tests.vectors.load import columns, raw_events

if TYPE_CHECKING:
    from pathlib import Path

POLICY = ValuePolicy("null", "replace", "binary")


def _received(folder: Path, version: str, *binlogs: str) -> RelayLog:
    with RelayWriter.open(folder) as relay:
        for number, stem in enumerate(binlogs, 1):
            rotate = encode_rotate(f"bin.{number:06d}", 4, server_id=1, checksum=CRC32)
            receive(relay, b"".join(map(packet, [rotate, *raw_events(version, stem)])))
    return RelayLog(folder)


@pytest.fixture(scope="module", params=["10.5", "11.8"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory, version: str) -> RelayLog:
    """One file with column names behind one without."""
    return _received(tmp_path_factory.mktemp("relay"), version, "minimal_image", "metadata_full")


@pytest.mark.parametrize("stretch", [1, 8 << 20])
@pytest.mark.parametrize("table", ["signs", "simple_key", "numbers", "compressed_columns"])
def test_the_columns_are_the_servers(
    log: RelayLog, version: str, table: str, stretch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attached_table, "STRETCH_BYTES", stretch)
    found = newest_table(log, ("v.1", table), POLICY).columns
    assert [column.name for column in found] == [str(column[0]) for column in columns(version)[table]]


def test_types_come_with_the_names(log: RelayLog) -> None:
    types = {column.name: column.type for column in newest_table(log, ("v.1", "signs"), POLICY).columns}
    assert (types["a"], types["h"], types["t"], types["d"]) == ("INT", "DECIMAL(20,0)", "SMALLINT", "DECIMAL(9,2)")


@pytest.mark.parametrize("table", ["signs", "simple_key", "numbers", "compressed_columns"])
def test_the_table_is_known_well_enough_to_follow_its_ddl(log: RelayLog, table: str) -> None:
    found = newest_table(log, ("v.1", table), POLICY)
    again = table_of(found.schema).schema("v.1", table)
    outputs = [output_column(column, POLICY) for column in again.columns]
    assert [(output.name, output.spark) for output in outputs] == [(c.name, c.type) for c in found.columns]


def test_rows_without_names_need_a_server(log: RelayLog) -> None:
    with pytest.raises(SchemaError, match=r"rows of v\.keyed .*do not name their columns.*host and user.*FULL"):
        newest_table(log, ("v", "keyed"), POLICY)


def test_a_table_without_rows_is_nowhere(log: RelayLog) -> None:
    with pytest.raises(SchemaError, match=r"no rows of `v\.1`\.sings,.*Did you mean .*`v\.1`\.signs"):
        newest_table(log, ("v.1", "sings"), POLICY)
    with pytest.raises(SchemaError, match=r"no rows of shop\.orders,.*Set host and user"):
        newest_table(log, ("shop", "orders"), POLICY)


def test_an_empty_log_tells_nothing(tmp_path: Path) -> None:
    RelayWriter.open(tmp_path).close()
    with pytest.raises(SchemaError, match=r"no rows of shop\.orders"):
        newest_table(RelayLog(tmp_path), ("shop", "orders"), POLICY)
