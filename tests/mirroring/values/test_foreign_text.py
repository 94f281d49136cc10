"""Names and texts of a server that look like programs: they are data in a mirror and an audit."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from streaming_source.auditing.call import audit
from streaming_source.driver.own_session import own_session
from streaming_source.sinks.sql_text import identifier, literal, text_value
from tests.fixtures.mariadb import MariaDb

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.mirroring.mirrors import Mirrored
    from tests.recipes.workbench import Workbench

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.timeout(900)]

TEXTS = (
    *("${env:HOME}", "${spark.app.name}", "${x}", "$.a", "a.b", "*", "`", "a`b``c", "it's", 'say "x"', "\\", "a\\'b"),
    *("-- x", "/* x", "*/", "{0}", "{changes}", "{{x}}", "%s", "%(x)s", "a;b,c(d)=e", "a[0]", "?", ":x", "x'00'"),
    *("tab\there", "new\nline", "a\rb", "\x01", "\x7f", "ü ß 漢", "\u200b", "null", "\\u0041", "é" * 64),
    "DROP TABLE x --"[:64],
)
"""Names and texts at once."""
ADDED = ("${env:PATH}", "`); DROP TABLE x; --", "b\\`'\"{}", "${system:user.name}")
RENAMED = ("${y} {1} `z`", "c.d.`e`")
READ_BACK = (
    f"from {own_session.__module__} import {own_session.__name__}"
    """
own = own_session(spark)
names = own.sql("SELECT " + ", ".join({names!r}))
texts = spark.sql("SELECT " + ", ".join({values!r})).first()
own_texts = own.sql("SELECT " + ", ".join({literals!r})).first()
result = [names.columns, list(texts), list(own_texts)]
"""
)
ABOUT = """
rows = spark.table({target!r})
result = [
    [[field.name, field.metadata.get("comment")] for field in rows.schema],
    [list(row) for row in rows.sort("id").collect()],
    [str(row) for row in spark.sql("SHOW TBLPROPERTIES " + {target!r}).collect()],
    [str(row) for row in spark.sql("DESCRIBE TABLE EXTENDED " + {target!r}).collect()],
    [str(row) for row in spark.table({control!r}).collect()],
]
"""
AUDIT = (
    f"from {audit.__module__} import {audit.__name__}"
    """
found = audit(spark, mirror={control!r}, repair={repair}, **{server!r})
result = [found.equal, {{one.table: {{k: n for k, n in one.counts.items() if n}} for one in found.tables}}, str(found)]
"""
)


def test_spark_reads_names_and_texts_back(workbench: Workbench) -> None:
    chance = random.Random(38)
    alphabet = "".join(TEXTS) + "abc${}`'\"\\.;,()\0\x1f\ud7ff\uffff😀"
    made = ["".join(chance.choices(alphabet, k=chance.randint(1, 64))) for _ in range(400)]
    texts = [*TEXTS, *ADDED, *RENAMED, *made]
    code = READ_BACK.format(
        names=[f"1 AS {identifier(text)}" for text in texts],
        values=[f"{text_value(text)} AS c{n}, {literal(text)} AS d{n}" for n, text in enumerate(texts)],
        literals=[f"{literal(text)} AS c{n}" for n, text in enumerate(texts)],
    )
    names, both, own = workbench.run(code)
    assert names == texts
    assert both == [text for text in texts for _ in range(2)]
    assert own == texts


def server_text(text: str) -> str:
    """A literal of the server."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def declared(name: str, text: str) -> str:
    """A column of a name, with a text as its default and its comment."""
    return f"{identifier(name)} VARCHAR(80) NOT NULL DEFAULT {server_text(text)} COMMENT {server_text(text)}"


class Hostile:
    """A mirror of a table whose names, comments and defaults are such texts."""

    def __init__(self, mirror: Mirrored, target: str, control: str) -> None:
        self.mirror = mirror
        self.target, self.control = target, control

    def audited(self, *, repair: bool = False) -> Any:
        server = {name: self.mirror.arguments[name] for name in ("host", "port", "user", "password")}
        return self.mirror.workbench.run(AUDIT.format(control=self.control, server=server, repair=repair))

    def assert_equal(self, primary: MariaDb) -> str:
        """Compare rows, names and comments with the server; return all that stands in the target as text."""
        assert self.mirror.states() == {"h": ("current", None)}
        columns, rows, *others = self.mirror.workbench.run(ABOUT.format(target=self.target, control=self.control))
        asked = "SELECT COLUMN_NAME, COLUMN_COMMENT FROM information_schema.COLUMNS WHERE TABLE_NAME = 'h' ORDER BY 1"
        there = {name: comment or None for name, comment in primary.sql(asked)}
        assert dict(columns) == there
        listed = ", ".join(identifier(name) for name, _ in columns)
        assert rows == [list(row) for row in primary.sql(f"SELECT {listed} FROM shop.h ORDER BY id")]
        equal, _, told = self.audited()
        assert equal, told
        return json.dumps([columns, rows, others])


def in_steps(primary: MariaDb, hostile: Hostile) -> None:
    """Make the table, mirror it, change and alter it, mirror that, and repair a fault."""
    primary.add_user()
    listed = ", ".join(declared(name, name) for name in TEXTS)
    labels = f"kind ENUM({', '.join(map(server_text, TEXTS[:8]))}) COMMENT 'labels'"
    primary.sql(
        "CREATE DATABASE shop CHARACTER SET utf8mb4",
        f"CREATE TABLE shop.h (id INT PRIMARY KEY, {listed}, {labels}) COMMENT {server_text(''.join(TEXTS[:20]))}",
        "INSERT INTO shop.h (id, kind) VALUES (1, 1), (2, 2), (3, NULL)",
    )
    mirror = hostile.mirror
    mirror.run()
    hostile.assert_equal(primary)
    primary.sql(
        *(f"ALTER TABLE shop.h ADD COLUMN {declared(name, name * 2)}" for name in ADDED),
        f"ALTER TABLE shop.h RENAME COLUMN {identifier(TEXTS[0])} TO {identifier(RENAMED[0])}, "
        f"RENAME COLUMN {identifier(TEXTS[7])} TO {identifier(RENAMED[1])}",
        f"ALTER TABLE shop.h DROP COLUMN {identifier(TEXTS[2])}",
        "SET binlog_row_image = MINIMAL",
        f"UPDATE shop.h SET {identifier(TEXTS[1])} = 'changed', {identifier(ADDED[2])} = {server_text(ADDED[0])}, "
        "kind = 4 WHERE id = 1",
        "DELETE FROM shop.h WHERE id = 2",
        "INSERT INTO shop.h (id, `?`) VALUES (4, 'a'), (5, 'b')",  # the catalog shows ? for characters that it lacks
    )
    mirror.run()
    text = hostile.assert_equal(primary)
    assert "/usr/bin" not in text  # of PATH; the texts themselves name the variable
    assert "recipes" not in text  # the name of the application
    mirror.workbench.run(f"spark.sql('UPDATE {hostile.target} SET {identifier(TEXTS[4])} = 1 WHERE id = 4')")
    equal, counts, _ = hostile.audited(repair=True)
    assert (equal, counts) == (False, {"shop.h": {"different": 1}})
    primary.sql("INSERT INTO shop.h (id) VALUES (6)")  # repairs are done after a batch
    mirror.run()
    hostile.assert_equal(primary)


@pytest.mark.slow
@pytest.mark.quick_on("newest")
def test_a_table_full_of_them_is_mirrored_altered_audited_and_repaired(
    server_version: str, mirrored: Callable[..., Mirrored]
) -> None:
    with MariaDb(server_version, "--binlog-row-metadata=FULL") as primary:
        mirror = mirrored(primary, "shop")
        in_steps(primary, Hostile(mirror, f"{mirror.lake}.h", f"{mirror.lake}.mirror_control"))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["current", "soft_delete", "history", "append_log"])
def test_so_it_is_in_folders_and_in_every_mode(
    server_version: str, mirrored: Callable[..., Mirrored], tmp_path: Path, mode: str
) -> None:
    name = "t ${env:HOME} `{0}*[x] 'q' ü"
    with MariaDb(server_version, "--binlog-row-metadata=FULL") as primary:
        primary.add_user()
        columns = ", ".join(declared(text, text) for text in TEXTS)
        table = f"shop.{identifier(name)}"
        primary.sql(
            "CREATE DATABASE shop CHARACTER SET utf8mb4",
            f"CREATE TABLE {table} (id INT PRIMARY KEY, {columns})",
            f"INSERT INTO {table} (id) VALUES (1), (2), (3)",
        )
        mirror = mirrored(primary, "shop", into=f"{tmp_path}/lake/{{table}}", rules={"shop.*": {"mode": mode}})
        mirror.run()
        primary.sql(
            f"ALTER TABLE {table} RENAME COLUMN {identifier(TEXTS[0])} TO {identifier(RENAMED[0])}",
            "SET binlog_row_image = MINIMAL",
            f"UPDATE {table} SET {identifier(TEXTS[6])} = 'changed' WHERE id = 1",
            f"DELETE FROM {table} WHERE id = 2",
            f"INSERT INTO {table} (id, `?`) VALUES (4, 'a')",
        )
        mirror.run()
        assert mirror.states() == {name: ("current", None)}
        control = f"delta.`{tmp_path}/lake/mirror_control`"
        equal, _, told = Hostile(mirror, "", control).audited()
        assert equal or (mode == "append_log" and "it holds changes, not rows" in told), told
