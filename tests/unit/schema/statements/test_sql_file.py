"""A file of SQL: which statements come out, whatever stands around them."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from replica.errors import SchemaError
from replica.schema.effects.history import SchemaHistory
from replica.schema.statements.statements import statements_of

if TYPE_CHECKING:
    from pathlib import Path


def statements(folder: Path, text: str | bytes) -> list[str]:
    file = folder / "dump.sql"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return list(statements_of(file))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("CREATE TABLE a (b INT)", ["CREATE TABLE a (b INT)"]),
        ("create table a (b int);\n\n-- x;\n# y;\nALTER TABLE a;", ["create table a (b int)", "ALTER TABLE a"]),
        ("INSERT INTO a VALUES ('; CREATE TABLE b');DROP TABLE a", ["DROP TABLE a"]),
        (
            "INSERT INTO a VALUES ('\\';', 'x''', `;`, \"';\"\"\\\";\"); DROP TABLE a;",
            ["DROP TABLE a"],
        ),
        ("SELECT 1 /* ; */ - 2 -- ;\n; DROP TABLE a", ["DROP TABLE a"]),
        ("/* a; */ DROP TABLE a;", ["DROP TABLE a"]),
        ("/*!40101 SET x = 1 */; DROP TABLE a;", ["/*!40101 SET x = 1 */", "DROP TABLE a"]),
        ("DELIMITER ;;\nCREATE TRIGGER t BEGIN DROP TABLE a; END;;\nDELIMITER ;\nDROP TABLE b;",
         ["CREATE TRIGGER t BEGIN DROP TABLE a; END", "DROP TABLE b"]),
        ("DELIMITER EOS\nCREATE TABLE a (x INT)EOS\ndelimiter //\nDROP TABLE b//",
         ["CREATE TABLE a (x INT)", "DROP TABLE b"]),
    ],
)  # fmt: skip
def test_statements_that_may_define_tables(tmp_path: Path, text: str, expected: list[str]) -> None:
    assert [one.strip() for one in statements(tmp_path, text)] == expected


def test_bytes_that_are_no_utf8_stop_nothing(tmp_path: Path) -> None:
    found = statements(tmp_path, b"INSERT INTO a VALUES ('\xff;');\nCREATE TABLE b (c INT COMMENT '\xe9');")
    assert found == ["CREATE TABLE b (c INT COMMENT '\N{REPLACEMENT CHARACTER}')"]


def test_a_pipe_is_read_like_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("CREATE TABLE a (b INT);",))
    writer.start()
    assert list(statements_of(pipe)) == ["CREATE TABLE a (b INT)"]
    writer.join()


def test_a_schema_file_knows_its_databases(tmp_path: Path) -> None:
    file = tmp_path / "schema.sql"
    file.write_text(
        "CREATE TABLE free (a INT);\n"
        "CREATE DATABASE /*!32312 IF NOT EXISTS*/ `shop` /*!40100 DEFAULT CHARACTER SET gbk */;\n"
        "USE `shop`;\nCREATE TABLE orders (a TEXT);\nCREATE TABLE other.x (a INT);\nCREATE TABLE bad (a WEIRD);\n"
    )
    history = SchemaHistory.from_file(file)
    orders = history.table("shop", "orders")
    assert orders is not None
    assert orders.columns[0].charset == "gbk"
    assert history.table("other", "x") is not None
    assert "WEIRD" in history.reason("shop", "bad")
    for database in ("any", "shop"):
        free = history.table(database, "free")
        assert free is not None
        assert free.database == database
    assert history.table("any", "orders") is None
    named = SchemaHistory.from_file(file, database="mine")
    assert named.table("mine", "free") is not None
    assert named.table("any", "free") is None


def test_what_is_no_sql_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "schema.sql"
    file.write_text("CREATE TABLE a (b INT); CREATE TABLE `un;closed (c INT);")
    with pytest.raises(SchemaError, match=r"schema\.sql: .* does not end"):
        SchemaHistory.from_file(file)


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        SchemaHistory.from_file(tmp_path / "nowhere")
