"""`.load()` of files, without Spark: real servers' files, and what is refused in which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from replica.errors import ChecksumError, ConfigError, ProtocolError, ReplicaError, SchemaError
from tests.unit.streaming_source.feeds.binlog_files import load, rows
from tests.vectors.load import HERE, VERSIONS

ROTATION = HERE / "11.8" / "rotation.1.binlog"
KEYS = HERE / "encryption.keys"


def test_files_in_a_row_take_their_names_from_the_first() -> None:
    found = rows(load(HERE / "11.8" / "rotation.*.binlog", table="v.t", rowShape="flat"))
    assert [(row["a"], row["_gtid"]) for row in found] == [(1, "0-1-3"), (2, "7-1-1"), (3, "7-1-2"), (4, "7-1-3")]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("algorithm", ["cbc", "ctr"])
def test_encrypted_files_are_read_with_their_key_file(version: str, algorithm: str, tmp_path: Path) -> None:
    schema = tmp_path / "schema.sql"
    schema.write_text("CREATE TABLE e.t (id INT PRIMARY KEY, b BLOB);")
    names = {"table": "e.t", "rowShape": "flat", "schemaFile": schema}
    path = HERE / version / f"encryption.{algorithm}.encrypted"
    found = rows(load(path, keyFile=KEYS, **names))
    assert [(row["id"], row["b"]) for row in found] == [(length, b"x" * length) for length in range(16)]
    assert found == rows(load(path.with_suffix(".sent"), **names))


def test_no_plan_and_no_message_shows_a_key(tmp_path: Path) -> None:
    path = HERE / "11.8" / "encryption.cbc.encrypted"
    schema = tmp_path / "schema.sql"
    schema.write_text("CREATE TABLE e.t (id INT PRIMARY KEY, b BLOB);")
    secrets = [line.rpartition(";")[2] for line in KEYS.read_text().splitlines() if ";" in line]
    loaded = load(path, table="e.t", keyFile=KEYS, schemaFile=schema)
    assert secrets
    assert not [secret for secret in secrets if secret in repr(loaded) + repr(loaded.partitions[0])]
    wrong = tmp_path / "wrong.keys"
    wrong.write_text("1;" + "ab" * 16)
    with pytest.raises(ReplicaError) as caught:
        load(path, table="e.t", keyFile=wrong, schemaFile=schema)
    assert "abab" not in str(caught.value)


def test_damage_stops_the_load_unless_it_is_to_be_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "bin.000001"
    content = bytearray((HERE / "11.8" / "transactions.binlog").read_bytes())
    path.write_bytes(content)
    whole = rows(load(path, tables="*.*", onStatementDml="ignore"))
    victim = next(row for row in whole if row["op"] == "insert")
    content[victim["source"]["position"] + 30] ^= 0x10  # in the GTID event
    path.write_bytes(content)
    with pytest.raises(ChecksumError, match=rf"bin\.000001: .*\(at offset {victim['source']['position']}\)"):
        load(path, tables="*.*", onStatementDml="ignore")
    rest = rows(load(path, tables="*.*", onStatementDml="ignore", skipDamaged=True))
    lost = victim["transaction"]["gtid"]
    assert [r["transaction"]["gtid"] for r in rest] == [
        row["transaction"]["gtid"] for row in whole if row["transaction"]["gtid"] != lost
    ]
    assert len(rest) < len(whole)
    assert f"bytes {victim['source']['position']} to" in caplog.text


@pytest.mark.parametrize(
    ("path", "options", "kind", "message"),
    [
        ("nowhere/bin.000001", {}, ConfigError, "there is no file nowhere/bin.000001"),
        (Path(__file__), {}, ProtocolError, r"test_load_files\.py"),
        (ROTATION, {"table": "v.u"}, SchemaError, r"v\.u has no rows and no definition.*Did you mean v\.t\?"),
        (ROTATION, {"table": "crm.customer"}, SchemaError, r"crm\.customer has no rows.*The files have rows of v\.t"),
        (ROTATION, {"table": "v.t", "schemaFile": "nowhere.sql"}, ConfigError, r"schemaFile nowhere\.sql cannot be"),
        (ROTATION, {"table": "v.t", "keyFile": "nowhere.keys"}, ConfigError, r"nowhere\.keys"),
        (HERE / "11.8" / "encryption.cbc.encrypted", {"table": "e.t"}, ConfigError, "encrypted"),
    ],
)
def test_what_is_refused(path: Path | str, options: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        load(path, **options)


def test_a_table_without_rows_that_a_schema_file_knows_is_empty(tmp_path: Path) -> None:
    schema = tmp_path / "schema.sql"
    schema.write_text("CREATE TABLE crm.customer (id INT PRIMARY KEY COMMENT 'the key', name VARCHAR(20));")
    loaded = load(ROTATION, table="crm.customer", schemaFile=schema)
    assert [tuple(column)[:3] for column in loaded.plan.columns or ()] == [
        ("id", "INT", "the key"),
        ("name", "STRING", ""),
    ]
    assert loaded.partitions == ()


def test_mysql_files_with_compressed_transactions_keep_their_places() -> None:
    found = rows(load(HERE / "mysql" / "payload.binlog", tables="*.*"))
    assert found
    places = [row["source"]["position"] for row in found]
    size = (HERE / "mysql" / "payload.binlog").stat().st_size
    assert places == sorted(places)
    assert all(4 < place < size for place in places)
