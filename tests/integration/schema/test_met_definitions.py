"""Rows are of the definition that the catalog has, for every type; and where they are not, a difference is found."""

from __future__ import annotations

import pickle
import time
from typing import TYPE_CHECKING, Any

import pytest

from replica.snapshot.rows.table_map import table_map_body
from streaming_source.mirroring.batch.batch_facts import TableChanges, other_definition_of
from streaming_source.mirroring.batch.manifest import TableMapRun, read_manifest
from streaming_source.mirroring.reading.source_tables import read_source_tables
from streaming_source.offsets.reading_requests import RequestFolder, ResnapshotRequest
from streaming_source.options.source_options import SourceOptions
from tests.integration.edges.log import version
from tests.integration.rows.type_cases import CASES
from tests.integration.rows.type_tables import tables as type_tables
from tests.integration.schema.schema_stream import WAIT_S, Stream, changing_tables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from replica.schema.table import TableSchema
    from streaming_source.offsets.offset import SourceOffset
    from tests.fixtures.mariadb import MariaDb
    from tests.integration.schema.schema_stream import Tables

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

_ID = 8
"""Bytes of table id and flags in a TABLE_MAP."""


class Manifests(Stream):
    """A mirror's query without Spark: what its batches have of each table."""

    def __init__(self, made: Tables, folder: Path, **options: str) -> None:
        asked = {"tables": f"{made.database}.*", "includeDdl": "true", "onStatementDml": "row"}
        requests = {"resnapshotRequests": str(folder / "requests")}
        self.made = made
        super().__init__(made.server, folder, made.server.gtid_binlog_pos(), **asked, **requests, **options)
        self.found: dict[str, TableChanges] = {}

    def replay(self, start: SourceOffset, end: SourceOffset) -> None:
        assert self.plan is not None
        for partition in self.open().partitions(self._again(start), self._again(end)):
            for batch in read_manifest(partition, self.plan):
                for row in batch.to_pylist():
                    if row["maps"] is not None:
                        self._add(row)

    def _add(self, row: dict[str, Any]) -> None:
        known = self.found.get(row["table"], TableChanges())
        maps = tuple(TableMapRun(*met) for met in pickle.loads(row["maps"]))  # noqa: S301  (made just now)
        self.found[row["table"]] = known._replace(
            changes=known.changes + row["changes"], maps=known.maps + maps, fault=known.fault or row["fault"]
        )

    def taken(self) -> dict[str, TableChanges]:
        """What came since it was asked for last."""
        self.read(self.made.server.gtid_binlog_pos())
        found, self.found = self.found, {}
        return found

    def read_tables(self) -> None:
        """Batch by batch until the tables that were asked for are read."""
        deadline = time.monotonic() + WAIT_S
        while "t" not in self.found or (self.at.snapshot is not None and not self.at.snapshot.finished):
            after = self.open().latest_offset(self._again(self.at), bounded=True)
            if after != self.at:
                self.replay(self.at, after)
                self.offset = after
            assert time.monotonic() < deadline

    def definition(self, table: str) -> TableSchema:
        """A table as the catalog has it now."""
        options = SourceOptions.parse({name.lower(): value for name, value in self.given.items()})
        return read_source_tables(options).tables[self.made.database, table].definition


@pytest.fixture(params=["FULL", "NO_LOG", "MINIMAL"])
def made(request: pytest.FixtureRequest, server: MariaDb) -> Iterator[Tables]:
    with changing_tables(server, request.param) as tables:
        yield tables


def test_rows_of_every_type_are_of_the_definition_in_the_catalog(made: Tables, tmp_path: Path) -> None:
    cases = type_tables([case for case in CASES if case.since <= version(made.server)])
    for table in cases:
        made.run("SET sql_mode = ''", table.create)
    manifests = Manifests(made, tmp_path)
    manifests.begin()
    for table in cases:
        made.run("SET sql_mode = ''", table.insert)
    found = manifests.taken()
    manifests.stop()
    assert found.keys() == {table.name for table in cases}
    for name, changes in found.items():
        assert changes.maps
        definition = manifests.definition(name)
        assert other_definition_of(changes, definition) == "", name
        read = TableMapRun(table_map_body(definition)[_ID:], (0, 0), (0, 0), read=True, fault="")
        assert other_definition_of(TableChanges(maps=(read,)), definition) == "", f"rows read from {name}"


LOGGED = (
    "ALTER TABLE t ADD c VARCHAR(20) CHARACTER SET latin1, ADD e ENUM('x', 'y'), ADD s SET('a', 'b', 'c')",
    "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb3",
    "ALTER TABLE t MODIFY e ENUM('x', 'y', 'z') CHARACTER SET utf8mb4 FIRST",
    "ALTER TABLE t ADD later INT DEFAULT 5 INVISIBLE, ADD g INT AS (v + 1) VIRTUAL, ADD h INT AS (v + 2) STORED",
    "ALTER TABLE t ADD long_key TEXT, ADD UNIQUE (long_key)",
    "ALTER TABLE t ADD COLUMN j JSON, ADD COLUMN z BLOB COMPRESSED",
    "ALTER TABLE t ADD SYSTEM VERSIONING",
    "ALTER TABLE t DROP COLUMN c, RENAME COLUMN v TO w, ALGORITHM=INPLACE",
    "ALTER TABLE t DROP SYSTEM VERSIONING, DROP COLUMN g",
)


def test_rows_behind_an_alter_are_of_the_definition_in_the_catalog(made: Tables, tmp_path: Path) -> None:
    made.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    manifests = Manifests(made, tmp_path)
    manifests.begin()
    for number, statement in enumerate(LOGGED):
        made.run("SET system_versioning_alter_history = KEEP", statement.replace(", ALGORITHM=INPLACE", ""))
        made.run(f"INSERT INTO t (id) VALUES ({number})")
        assert other_definition_of(manifests.taken()["t"], manifests.definition("t")) == "", statement
    manifests.stop()


HIDDEN = {
    "ALTER TABLE t ADD z INT": True,
    "ALTER TABLE t ADD z INT FIRST": True,
    "ALTER TABLE t DROP COLUMN v": True,
    "ALTER TABLE t MODIFY v BIGINT": True,
    "ALTER TABLE t MODIFY name VARCHAR(21)": True,
    "ALTER TABLE t MODIFY at DATETIME(3)": True,
    "ALTER TABLE t MODIFY price DECIMAL(12, 2)": True,
    "ALTER TABLE t CHANGE v w VARCHAR(5)": True,
    "CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, q DATE)": True,
    "ALTER TABLE t RENAME COLUMN v TO w": False,
    "ALTER TABLE t MODIFY e ENUM('y', 'x')": False,
    "ALTER TABLE t MODIFY v INT UNSIGNED": False,
}
"""ALTERs that no binlog has, and whether rows show them that do not name their columns."""


@pytest.mark.parametrize("statement", HIDDEN)
def test_what_was_changed_behind_the_binlog_shows_in_the_rows_of_one_table(
    made: Tables, tmp_path: Path, statement: str
) -> None:
    columns = "id INT PRIMARY KEY, v INT, name VARCHAR(20), at DATETIME, price DECIMAL(10, 2), e ENUM('x', 'y')"
    made.run(f"CREATE TABLE t ({columns})", f"CREATE TABLE other ({columns})")
    manifests = Manifests(made, tmp_path)
    manifests.begin()
    before = manifests.definition("t")
    made.run("SET sql_log_bin = 0", statement, "SET sql_log_bin = 1")
    made.run("INSERT INTO t (id) VALUES (1)", "INSERT INTO other (id) VALUES (1)")
    found = manifests.taken()
    metadata = made.server.value("SELECT @@global.binlog_row_metadata")
    manifests.stop()
    assert other_definition_of(found["other"], before) == ""
    why = other_definition_of(found["t"], before)
    assert bool(why) == (HIDDEN[statement] or metadata == "FULL" or (metadata == "MINIMAL" and "UNSIGNED" in statement))
    manifests.taken()
    manifests.stop()


def test_a_table_that_is_read_again_is_known_as_the_catalog_has_it(made: Tables, tmp_path: Path) -> None:
    made.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE other (id INT PRIMARY KEY, v INT)")
    manifests = Manifests(made, tmp_path)
    manifests.begin()
    made.run("SET sql_log_bin = 0", "ALTER TABLE t ADD z INT", "SET sql_log_bin = 1", "INSERT INTO t VALUES (1, 2, 3)")
    manifests.taken()
    RequestFolder(tmp_path / "requests").put(ResnapshotRequest("z", ((made.database, "t"),)))
    made.run("INSERT INTO other VALUES (1, 1)")
    manifests.read_tables()
    (read,) = manifests.found["t"].maps
    assert read.read
    assert other_definition_of(manifests.found["t"], manifests.definition("t")) == ""
    manifests.stop()  # what is known of the table has to be in the offset
    made.run("INSERT INTO t VALUES (7, 1, 1)", "INSERT INTO t VALUES (8, 1, 1)")
    manifests.found.clear()
    found = manifests.taken()["t"]
    manifests.stop()
    assert found.changes == 2
    assert other_definition_of(found, manifests.definition("t")) == ""
