"""INCIDENT: a real server whose cache was too small for a statement says so, and reading stops there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.errors import ProtocolError
from replica.rows.decode.decode import DecodeOptions, RangeDecoder
from tests.unit.rows.twin import Tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server


def test_reading_stops_at_an_incident_after_the_rows_before_it(
    make_server: Callable[..., MariaDb], server_version: str
) -> None:
    small = ("--max-binlog-stmt-cache-size=4096", "--binlog-stmt-cache-size=4096", "--binlog-row-metadata=FULL")
    server = make_server(server_version, *small)
    server.sql("CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY, b CHAR(100)) ENGINE=MyISAM")
    server.sql("INSERT INTO d.t VALUES (1, 'before')")
    with pytest.raises(Exception, match="max_binlog_stmt_cache_size"):
        server.sql("USE d", "INSERT INTO t SELECT seq, REPEAT('x', 100) FROM seq_10_to_1000")
    server.sql("INSERT INTO d.t VALUES (2, 'after')")
    data = (server.datadir / server.binlogs()[0]).read_bytes()
    decoder = RangeDecoder(Tables({"d.t": None}), DecodeOptions(shape="variant"))
    rows: list[int] = []
    with pytest.raises(ProtocolError, match=r"INCIDENT\): incident 1, 'error writing to the binary log'") as caught:
        rows.extend(batch.rows for batch in decoder.decode(data, checksum=True))
    assert rows == [1]
    assert caught.value.offset is not None
    assert data[caught.value.offset + 4] == 26
    assert caught.value.hint
