"""docs/api.md: its examples, run as they are written against a real server; rows end equal to what SELECT gives."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server

PAGE = Path(__file__).resolve().parents[3] / "docs" / "api.md"
BLOCK = re.compile(r"(?:<!-- example: (?P<name>\w+) -->\n)?```python\n(?P<code>.*?)```", re.DOTALL)


def examples() -> dict[str, str]:
    """The page's examples; all other code on it are calls."""
    return {found["name"]: found["code"] for found in BLOCK.finditer(PAGE.read_text(encoding="utf-8")) if found["name"]}


def run(code: str, **written: str) -> dict[str, Any]:
    """Run an example with other folders and hosts; its variables afterwards."""
    for there, here in written.items():
        assert there in code
        code = code.replace(there, here)
    scope: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), scope)  # noqa: S102
    return scope


def replayed(batches: Iterable[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    """The table that its changes make, by its first column."""
    rows: dict[Any, tuple[Any, ...]] = {}
    for batch in batches:
        for change in batch.to_pylist():
            if change["before"] is not None:
                del rows[change["before"]["id"]]
            if change["after"] is not None:
                rows[change["after"]["id"]] = tuple(change["after"].values())
    return sorted(rows.values())


@pytest.fixture
def orders(server: MariaDb) -> str:
    """A table with changes of all kinds in two binlog files; the position before it."""
    server.add_user()
    before = server.gtid_binlog_pos()
    server.sql(
        "CREATE OR REPLACE DATABASE shop",
        "SET binlog_row_image = FULL",
        "CREATE TABLE shop.orders (id INT PRIMARY KEY, name VARCHAR(30), price DECIMAL(10,2)) CHARSET utf8mb4",
        "INSERT INTO shop.orders VALUES (1, 'one', 1.25), (2, 'zw\u00f6lf', NULL), (3, NULL, 3.75)",
        "UPDATE shop.orders SET price = price + 1 WHERE id = 1",
    )
    server.sql("FLUSH BINARY LOGS")
    server.sql(
        "USE shop",
        "UPDATE shop.orders SET id = 20 WHERE id = 2",
        "DELETE FROM shop.orders WHERE id = 3",
        "INSERT INTO shop.orders SELECT seq, CONCAT('many ', seq), seq FROM seq_100_to_150",
        "FLUSH BINARY LOGS",
    )
    return before


def test_all_code_on_the_page_is_an_example_or_a_call() -> None:
    assert set(examples()) == {"files", "embedded", "errors"}


@pytest.mark.usefixtures("orders")
def test_the_example_of_files(server: MariaDb, tmp_path: Path) -> None:
    *_, first, second, _ = server.binlogs()
    packed = tmp_path / "second.gz"
    packed.write_bytes(gzip.compress((server.datadir / second).read_bytes()))
    found = run(
        examples()["files"],
        **{"/backup/bin.000041": str(server.datadir / first), "/backup/bin.000042.gz": str(packed)},
    )
    changes = found["changes"]
    assert replayed(changes.to_batches()) == server.sql("SELECT * FROM shop.orders ORDER BY id")
    counts = dict(zip(*changes.group_by("op").aggregate([("ordinal", "count")]).to_pydict().values(), strict=True))
    assert counts == {"insert": 3 + 51, "update": 2, "delete": 1}


def test_the_example_of_an_embedded_replica_goes_on_where_it_ended(
    server: MariaDb, orders: str, tmp_path: Path
) -> None:
    user, password = server.add_user()
    secret = tmp_path / "secret"
    secret.write_text(password)
    secret.chmod(0o600)
    taken = "for batch in changes:\n        kept.append(batch)"
    code = "kept = []\n" + examples()["embedded"].replace("for batch in changes:", taken)
    places = {
        "0-1-1": orders,
        "/data/relay": str(tmp_path / "relay"),
        '"host": "db1", "user": "repl"': f'"host": "{server.host}", "port": {server.port}, "user": "{user}"',
        "/run/secrets/repl": str(secret),
    }
    first = run(code, **places)
    assert str(first["done"]) == server.gtid_binlog_pos()
    assert replayed(first["kept"]) == server.sql("SELECT * FROM shop.orders ORDER BY id")
    server.sql("UPDATE shop.orders SET name = 'later' WHERE id = 1", "DELETE FROM shop.orders WHERE id = 100")
    second = run(code, **(places | {"0-1-1": str(first["done"])}))
    assert [op for batch in second["kept"] for op in batch["op"].to_pylist()] == ["update", "delete"]
    assert replayed([*first["kept"], *second["kept"]]) == server.sql("SELECT * FROM shop.orders ORDER BY id")


def test_the_example_of_errors(tmp_path: Path) -> None:
    code = examples()["errors"].replace("/data/relay", str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == (
        f"{tmp_path} holds no relay log that a replica has begun. Name the relay_dir of a running replica. 70\n"
    )
