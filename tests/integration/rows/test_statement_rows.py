"""onStatementDml=row: changes that a real server logs as statements come as rows of DDL, and what is read meanwhile is
read behind them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import VariantVal

from streaming_source.files.load_files import load_files
from streaming_source.files.partition import read_file_changes
from streaming_source.rows.reader import read_changes
from tests.integration.schema.schema_stream import Stream
from tests.integration.schema.test_statement_dml import CASES, MIXED, STATEMENT, Shop
from tests.integration.snapshot.kit.query import SnapshotQuery
from tests.integration.snapshot.kit.tables import METADATA, SMALL_CHUNKS, fill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from streaming_source.offsets.offset import SourceOffset
    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server

ROWS = {"includeDdl": "true", "onStatementDml": "row"}


@pytest.fixture
def shop(any_server: MariaDb) -> Iterator[Shop]:
    made = Shop(any_server)
    yield made
    any_server.sql(f"DROP DATABASE {made.name}")


class KernelFacts(Stream):
    """A stream that keeps the statements it delivers: table, text, and the place in the transaction."""

    def __init__(self, *args: Any, **options: str) -> None:
        super().__init__(*args, **options)
        self.told: list[tuple[str | None, str]] = []
        self.rows: list[Any] = []

    def replay(self, start: SourceOffset, end: SourceOffset) -> None:
        for partition in self.open().partitions(start, end):
            assert self.plan is not None
            for batch in read_changes(partition, self.plan):
                for row in batch.to_pylist():
                    ordinal = row["transaction"]["ordinal"]
                    if row["op"] == "ddl":
                        assert ordinal < 0
                        self.told.append((row["table"], row["source"]["sql"]))
                    else:
                        self.rows.append(row)


def test_each_statement_that_counts_comes_as_a_row(shop: Shop, tmp_path: Path) -> None:
    file = tmp_path / "load.csv"
    file.write_text("x\ny\n")
    stream = KernelFacts(shop.server, tmp_path, shop.start, tables=shop.tables, **ROWS)
    for expected, statements in CASES:
        stream.told.clear()
        texts = [text.replace("{name}", shop.name).replace("{file}", str(file)) for text in statements]
        with shop.server.connect(database=shop.name, local_infile=True) as connection, connection.cursor() as cursor:
            for text in texts:
                cursor.execute(text)
        before = len(stream.rows)
        stream.read(shop.row("row"))
        assert len(stream.rows) > before, "what is behind a statement comes, too"
        changes = [(table, text) for table, text in stream.told if not _defines(text)]
        if expected:
            assert len(changes) >= expected or any(_defines(text) for _, text in stream.told), statements
        assert all(table in {"t", "m", None} for table, _ in changes), statements
        if not expected and not any("TEMPORARY" in text for text in statements):
            assert changes == [], statements  # a task does not know which tables are temporary
    stream.stop()


def _defines(text: str) -> bool:
    return text.upper().startswith(("CREATE", "DROP", "ALTER", "TRUNCATE", "RENAME"))


@pytest.mark.slow
def test_a_large_transaction_has_its_statement_before_its_rows(shop: Shop, tmp_path: Path) -> None:
    stream = KernelFacts(shop.server, tmp_path, shop.start, tables=shop.tables, **ROWS)
    stream.begin()
    many = "INSERT INTO t (v) SELECT CONCAT(REPEAT('x', 900), UUID()) FROM mysql.seq_1_to_20000"
    stream.read(shop.run(MIXED, "BEGIN", many, "DELETE FROM t WHERE id = 1", "COMMIT"))
    assert [one for one in stream.told if not _defines(one[1])] == [("t", "DELETE FROM t WHERE id = 1")]
    assert len(stream.rows) == 20_000
    stream.stop()


@pytest.mark.slow
@pytest.mark.parametrize("version", ["10.5", "11.8"])
def test_what_is_still_to_be_read_is_read_behind_the_statement(
    version: str, make_server: Callable[..., MariaDb], tmp_path: Path
) -> None:
    source = make_server(version, METADATA)
    fill(source, "s.t", 600)
    with SnapshotQuery(source, tmp_path, "s.*", **SMALL_CHUNKS, **ROWS) as query:
        seen: dict[int, int] = {}
        told, behind = 0, set()
        for number in range(400):
            if not query.reading:
                break
            if number in (5, 20):
                source.sql(STATEMENT, "UPDATE s.t SET v = v + 1000 WHERE id > 0")
            start, end = query.plan()
            for row in query.rows(start, end):
                if row["op"] == "ddl":
                    told += 1
                    behind.clear()
            for row in query.rows(start, end):
                if row["op"] == "read":
                    image = query_image(row)
                    seen[image["id"]] = image["v"]
                    behind.add(image["id"])
            query.committed(end)
        assert not query.reading
        assert told == 2
        now = dict(source.sql("SELECT id, v FROM s.t"))
        assert set(seen) == set(now), "each row came"
        assert behind, "rows came behind the last statement"
        assert {key: seen[key] for key in behind} == {key: now[key] for key in behind}


XA_TEXT = "INSERT INTO t (v) VALUES ('told')"


@pytest.mark.parametrize("bounds", [{}, {"maxRowsPerTrigger": "1"}])
def test_statements_of_an_xa_transaction_come_where_it_is_committed(
    shop: Shop, tmp_path: Path, bounds: dict[str, str]
) -> None:
    """Also where it was prepared in an earlier batch, before a restart or in an earlier file; rolled back they never
    come.
    """
    shop.server.sql("FLUSH BINARY LOGS")
    first = str(shop.server.value("SHOW MASTER STATUS"))
    shop.start = shop.server.gtid_binlog_pos()
    stream = KernelFacts(shop.server, tmp_path, shop.start, tables=shop.tables, **ROWS, **bounds)
    for ending in ("ROLLBACK", "COMMIT"):
        with shop.server.connect(database=shop.name) as connection, connection.cursor() as cursor:
            for text in (STATEMENT, "XA START 'x'", XA_TEXT, "XA END 'x'", "XA PREPARE 'x'"):
                cursor.execute(text)
            stream.read(shop.row("row 1"))
            stream.stop()
            shop.server.sql("FLUSH BINARY LOGS")
            cursor.execute(f"XA {ending} 'x'")
        stream.read(shop.row("row 2"))
        assert stream.told == ([("t", XA_TEXT)] if ending == "COMMIT" else [])
    stream.stop()
    assert len(stream.rows) == 4
    paths = [str(shop.server.datadir / name) for name in shop.server.binlogs() if name >= first]
    loaded = load_files({"table": f"{shop.name}.t", "path": ",".join(paths), **ROWS})
    found = [
        row
        for partition in loaded.partitions
        for batch in read_file_changes(partition, loaded.plan)
        for row in batch.to_pylist()
    ]
    assert [row["source"]["sql"] for row in found if row["op"] == "ddl"] == [XA_TEXT]
    assert [row["op"] for row in found].count("insert") == len(stream.rows)


@pytest.mark.slow
def test_a_large_xa_transaction_has_its_statement_too(shop: Shop, tmp_path: Path) -> None:
    stream = KernelFacts(shop.server, tmp_path, shop.start, tables=shop.tables, **ROWS)
    stream.begin()
    many = "INSERT INTO t (v) SELECT CONCAT(REPEAT('x', 900), UUID()) FROM mysql.seq_1_to_20000"
    with shop.server.connect(database=shop.name) as connection, connection.cursor() as cursor:
        for text in (MIXED, "XA START 'x'", many, "DELETE FROM t WHERE id = 1", "XA END 'x'", "XA PREPARE 'x'"):
            cursor.execute(text)
        stream.read(shop.run("INSERT INTO u (v) VALUES ('u')"))
        cursor.execute("XA COMMIT 'x'")
    stream.read(shop.row("row"))
    assert [one for one in stream.told if not _defines(one[1])] == [("t", "DELETE FROM t WHERE id = 1")]
    assert len(stream.rows) == 20_001
    stream.stop()


def query_image(row: dict[str, Any]) -> dict[str, Any]:
    return dict(VariantVal(row["after"]["value"], row["after"]["metadata"]).toPython())
