"""The history of DDL against real servers: after each statement it says what information_schema says.

Names are not logged (binlog_row_metadata=NO_LOG, the default), so all that is known comes from the statements that the
server wrote, and from nothing else.
"""

from __future__ import annotations

import subprocess
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pymysql
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from replica.protocol.constants import GtidExtraFlag
from replica.protocol.events.statement_events import QueryEvent
from replica.schema.effects.history import SchemaHistory
from tests.integration.edges.log import version
from tests.integration.schema.ddl_following import Follower, assert_each_equal
from tests.integration.schema.ddl_statements import quoted, statements

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server

# Statements that hold line ends, comments among their words, and what looks like the end of a comment.
SPREAD = (
    "/* leading */ -- x\ncreate /* x */ table /*!32312 if not exists*/ lead (a int -- , b int\n , c int # hash\n)",
    "/*!50000 create table exe3 (a int unsigned) */",
    "create table prod (a int default (2*/* no end */3), b text)",
    "create\ttable\r\ntabs (\n\n`a\nb`\tint\n)\n;",
)


FIRST = (
    "SET sql_mode = '', system_versioning_alter_history = KEEP",
    "CREATE DATABASE d CHARACTER SET latin1",
    "USE d",
    "CREATE TABLE t (a INT, C VARCHAR(20), `k``ey` TEXT, größe ENUM('x','y'), `x.y` BIGINT UNSIGNED)",
    "CREATE TABLE other_1 (a ENUM('b','c') UNIQUE, C JSON, `x.y` DECIMAL(10,3) PRIMARY KEY)",
    "CREATE TABLE MiXed (`x.y` INT NOT NULL, a VARCHAR(40) CHARSET gbk, C BLOB) CHARACTER SET utf8mb4",
)


def cases(server: MariaDb) -> Iterator[str]:
    """The statements of ddl_cases.sql that the server is new enough for."""
    taken = True
    for line in Path(__file__).with_name("ddl_cases.sql").read_text(encoding="utf-8").splitlines():
        if line.startswith("-- since "):
            taken = tuple(map(int, line.removeprefix("-- since ").split("."))) <= version(server)
        elif taken and line and not line.startswith("-- "):
            yield line


def clean(server: MariaDb) -> None:
    """Without a trace in the binlog, so that no history hears of it."""
    for (database,) in server.sql("SHOW DATABASES"):
        if database not in ("information_schema", "mysql", "performance_schema", "sys"):
            server.sql("SET sql_log_bin = 0", f"DROP DATABASE {quoted(database)}")


def test_after_each_statement_the_history_is_what_the_server_says(server: MariaDb) -> None:
    clean(server)
    with Follower(server) as follower:
        for number, statement in enumerate((*cases(server), *SPREAD)):
            assert follower.run(statement) == [], statement
            follower.assert_touched_equal()
            if number % 10 == 0:  # the server takes its time to describe them all
                follower.assert_equal()
        follower.assert_equal()
        assert len(follower.history.tables()) > 40


def test_random_statements(server: MariaDb) -> None:
    taken = puzzles = 0

    @settings(
        max_examples=8,
        deadline=None,
        derandomize=True,  # what a server makes of new statements must not decide whether a suite passes
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],  # shrinking would take minutes of servers; the statements are few enough to read
    )
    @given(st.lists(statements(), min_size=8, max_size=16))
    def follow(sequence: list[str]) -> None:
        nonlocal taken, puzzles
        clean(server)
        with Follower(server) as follower:
            follower.run(*FIRST)
            for statement in sequence:
                try:
                    puzzled = follower.run(statement)
                except pymysql.Error:
                    puzzled = follower.follow()
                else:
                    note(statement)
                    taken += 1
                if puzzled:
                    # Labels that the server damages, a CHANGE of what another action adds: never a wrong table.
                    puzzles += 1
                    assert [name for name in follower.touched if follower.history.table(*name) is None], puzzled
                    return
                follower.assert_touched_equal()
            follower.assert_equal()
            insert_defaults(follower)

    follow()
    assert taken > 20
    assert puzzles <= 3


def insert_defaults(follower: Follower) -> None:
    """A row into each table: its table map has to agree with the history, hidden columns included."""
    for database, table in follower.history.tables():
        name = f"`{database}`.`{table.replace('`', '``')}`"
        with follower.session.cursor() as cursor:
            try:
                cursor.execute(f"INSERT INTO {name} () VALUES ()")
            except pymysql.Error:  # a default that does not fit its type
                continue
            cursor.execute(f"SELECT * FROM {name}")
            shown = [column[0] for column in cursor.description or ()]
        named = [column.name for layout, _ in follower.rows() for column in layout.columns]
        # What stands behind is hidden; invisible columns may stand anywhere, and SELECT * leaves them out.
        assert [column for column in named if column in shown] == shown
        assert not follower.resolver.unnamed, follower.resolver.notes


@pytest.mark.parametrize("more", [("--databases", "t"), ("t",), ("--databases", "t", "--routines", "--triggers")])
def test_the_servers_own_dump_is_a_schema_file(any_server: MariaDb, tmp_path: Path, more: tuple[str, ...]) -> None:
    clean(any_server)
    with any_server.connect() as session, session.cursor() as cursor:
        for statement in cases(any_server):
            cursor.execute(statement)
        cursor.execute("SET sql_mode = ''")
        cursor.execute("CREATE TABLE data (a TEXT COMMENT 'x', b BLOB)")
        cursor.execute("INSERT INTO data VALUES ('; CREATE TABLE no (a INT); -- ''', x'27273B00FF'), ('\\\\', '/*')")
        cursor.execute(
            "CREATE PROCEDURE body() BEGIN CREATE TABLE no (a INT); DROP TABLE ty; ALTER TABLE ty2 ADD zz INT; END"
        )
        cursor.execute("CREATE TRIGGER fires BEFORE INSERT ON data FOR EACH ROW BEGIN SET @x = 'DROP TABLE ty;'; END")
        cursor.execute("CREATE VIEW seen AS SELECT * FROM data")
    dumped = tmp_path / "dump.sql"
    tool = [any_server.binary("mariadb-dump"), "--no-defaults", f"--socket={any_server.socket}", "-uroot", "-proot"]
    with dumped.open("wb") as file:
        subprocess.run([*tool, *more], stdout=file, check=True)

    history = SchemaHistory.from_file(dumped)
    with Follower(any_server) as follower:
        catalog = {name: table for name, table in follower.catalog().items() if name[0] == "t"}
    assert len(catalog) > 40
    assert_each_equal(history, catalog)
    assert not {("t", "no"), ("t", "seen"), ("", "no"), ("", "seen")} & set(history.tables())


def test_two_phase_alter_counts_when_it_commits(server: MariaDb) -> None:
    if version(server) < (10, 8):
        with pytest.raises(pymysql.err.OperationalError, match="binlog_alter_two_phase"):
            server.sql("SET binlog_alter_two_phase = ON")
        return
    clean(server)
    with Follower(server) as follower:
        follower.run("CREATE DATABASE d", "USE d", "CREATE TABLE a (x INT)", "INSERT INTO a VALUES (1), (1)")
        with follower.session.cursor() as cursor:
            cursor.execute("SET binlog_alter_two_phase = ON")
            cursor.execute("ALTER TABLE a ADD COLUMN y INT FIRST, ALGORITHM=COPY")
            with pytest.raises(pymysql.err.IntegrityError):
                cursor.execute("ALTER TABLE a ADD COLUMN z INT, ADD UNIQUE (x), ALGORITHM=COPY")
        starts = []
        for event in follower.events():
            if isinstance(event, QueryEvent):
                before = follower.history.table("d", "a")
                follower.resolver.apply(event)
                after = follower.history.table("d", "a")
                assert before is not None
                assert after is not None
                flags = event.status.gtid_flags_extra or 0
                starts.append((GtidExtraFlag(flags), len(after.columns) - len(before.columns)))
        assert [added for flag, added in starts if flag & GtidExtraFlag.START_ALTER] == [0, 0]
        assert [added for flag, added in starts if flag & GtidExtraFlag.COMMIT_ALTER] == [1]
        assert [added for flag, added in starts if flag & GtidExtraFlag.ROLLBACK_ALTER] == [0]
        follower.assert_equal()


def test_temporary_tables_shadow_and_do_not_count(server: MariaDb) -> None:
    clean(server)
    with Follower(server) as follower, server.connect() as other, other.cursor() as cursor:
        follower.run("CREATE DATABASE d", "USE d", "SET binlog_format = MIXED", "CREATE TABLE a (x INT, y TEXT)")
        follower.run(
            "CREATE TEMPORARY TABLE a (z BLOB)", "ALTER TABLE a ADD COLUMN w INT", "INSERT INTO a VALUES (1, 2)"
        )
        cursor.execute("ALTER TABLE d.a ADD COLUMN seen INT")
        assert follower.run("DROP TABLE a", "ALTER TABLE a DROP COLUMN y") == []
        follower.assert_equal()


@pytest.mark.parametrize("charset", ["latin1", "gbk", "sjis", "cp1251", "utf8mb3", "binary"])
def test_clients_of_any_character_set_name_tables(server: MariaDb, charset: str) -> None:
    clean(server)
    word = {"latin1": "größe", "gbk": "表誠許", "sjis": "表ソ能", "cp1251": "размер"}.get(charset, "größe漢")
    codec = {"sjis": "shift_jis", "utf8mb3": "utf-8", "binary": "utf-8"}.get(charset, charset)
    create = (
        f"CREATE TABLE `{word}` (`{word}1` ENUM('{word}', 'x') CHARACTER SET utf8mb4 COMMENT '{word}''\"', "
        f"`{word}2` VARCHAR(10)) COMMENT '{word}'"
    )
    with Follower(server) as follower:
        follower.run("CREATE DATABASE d CHARACTER SET utf8mb4", "USE d", f"SET NAMES {charset}")
        assert follower.run(create.encode(codec)) == []
        assert follower.run(f"ALTER TABLE `{word}` RENAME COLUMN `{word}2` TO `new{word}`".encode(codec)) == []
        follower.assert_equal()
        assert follower.history.tables() == [("d", word)]


NAMES = ("a.b", "back`tick", "a b", "quo'te", 'quo"te', "semi;colon", "ünï", "漢" * 20, "-- x", "/*", "#", "select")


@pytest.mark.edge(32)
def test_rows_get_the_names_that_ddl_gave(server: MariaDb) -> None:
    clean(server)
    with Follower(server) as follower:
        for number, name in enumerate(NAMES):
            word = quoted(name)
            statements = (
                f"CREATE DATABASE {word}",
                f"CREATE TABLE {word}.{word} ({word} INT UNSIGNED COMMENT {literal(name)}, k INT)",
                f"INSERT INTO {word}.{word} VALUES ({4_000_000_000 + number}, {number})",
            )
            with follower.session.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
            [(layout, change)] = list(follower.rows())
            assert (layout.database, layout.table) == (name, name)
            assert change.after == {name: 4_000_000_000 + number, "k": number}
        follower.assert_equal()


@pytest.mark.edge(29)
@pytest.mark.parametrize(
    "charset", ["utf8mb4", "latin1", "gbk", "cp932", "ucs2", "utf16le", "utf32", "koi8r", "binary"]
)
def test_labels_from_ddl_are_what_select_gives(server: MariaDb, charset: str) -> None:
    clean(server)
    word = {"latin1": "é€", "gbk": "表", "cp932": "表ソ", "koi8r": "ж", "binary": ""}.get(charset, "漢é")
    enum = [f"{word}a,b", "it's", 'say "x"', "", "back\\slash", " lead", "line\nend", word + "`"]
    members = [label for label in enum if "," not in label and label] + [str(i) for i in range(20)]
    columns = (
        f"e ENUM({','.join(map(literal, enum))}) CHARACTER SET {charset}, "
        f"s SET({','.join(map(literal, members))}) CHARACTER SET {charset}"
    )
    with Follower(server) as follower:
        with follower.session.cursor() as cursor:
            for statement in ("SET sql_mode = ''", "CREATE DATABASE d", "USE d", f"CREATE TABLE l (id INT, {columns})"):
                cursor.execute(statement)
            rows = [f"({i}, {i % (len(enum) + 1)}, {1 << i % len(members) | 1})" for i in range(1, 28)]
            cursor.execute(f"INSERT INTO l VALUES {', '.join(rows)}, (99, NULL, NULL), (100, 0, 0)")
            cursor.execute("SELECT id, CONVERT(e USING utf8mb4), CONVERT(s USING utf8mb4) FROM l ORDER BY id")
            shown = list(cursor.fetchall())
        found = [tuple((change.after or {}).values()) for _, change in follower.rows()]
        assert found == shown
        follower.assert_equal()


@pytest.mark.edge(33)
def test_rows_before_and_after_each_alter_have_their_own_names(server: MariaDb) -> None:
    clean(server)
    steps = (
        ("CREATE TABLE a (x INT, y INT UNSIGNED)", "(-1, 4294967295)", {"x": -1, "y": 4294967295}),
        ("ALTER TABLE a ADD COLUMN z INT FIRST", "(7, 8, 9)", {"z": 7, "x": 8, "y": 9}),
        ("ALTER TABLE a RENAME COLUMN z TO x2, RENAME COLUMN x TO z", "(1, 2, 3)", {"x2": 1, "z": 2, "y": 3}),
        ("ALTER TABLE a MODIFY x2 INT AFTER y", "(1, 2, 3)", {"z": 1, "y": 2, "x2": 3}),
        ("ALTER TABLE a DROP COLUMN z", "(4000000000, -5)", {"y": 4000000000, "x2": -5}),
        ("RENAME TABLE a TO b, b TO a", "(6, 7)", {"y": 6, "x2": 7}),
        ("ALTER TABLE a CHANGE y u ENUM('p', 'q'), DROP COLUMN x2", "('q')", {"u": "q"}),
        ("ALTER TABLE a CHANGE u u SET('p', 'q')", "('p,q')", {"u": "p,q"}),
        ("CREATE OR REPLACE TABLE a (n DECIMAL(4,1))", "(-1.5)", {"n": Decimal("-1.5")}),
        ("ALTER TABLE a ADD SYSTEM VERSIONING, ADD COLUMN t TEXT", "(2, 'x')", {"n": Decimal("2.0"), "t": "x"}),
    )
    with Follower(server) as follower:
        follower.run("CREATE DATABASE d", "USE d", "SET sql_mode = ''")
        for statement, row, expected in steps:
            with follower.session.cursor() as cursor:
                cursor.execute("DELETE FROM a" if follower.history.tables() else "DO 0")
                list(follower.rows())
                cursor.execute(statement)
                cursor.execute(f"INSERT INTO a VALUES {row}")
            images = [{k: v for k, v in (c.after or {}).items() if k[:4] != "row_"} for _, c in follower.rows()]
            assert images == [expected], statement
        assert not follower.resolver.unnamed


def test_rows_without_any_ddl_come_unnamed_and_it_is_said(server: MariaDb) -> None:
    clean(server)
    server.sql(
        "CREATE DATABASE d CHARACTER SET utf8mb4",
        "CREATE TABLE d.a (x INT UNSIGNED, y VARCHAR(9), e ENUM('p', 'q'), s SET('p', 'q'), b BLOB)",
    )
    with Follower(server) as follower:
        with follower.session.cursor() as cursor:
            cursor.execute("INSERT INTO d.a VALUES (4294967295, 'zwölf', 'q', 'p,q', 'blob')")
        [(layout, change)] = list(follower.rows())
        assert layout.table == "a"
        assert change.after == {"@1": -1, "@2": "zwölf", "@3": "2", "@4": "1,2", "@5": "blob"}
        assert follower.resolver.unnamed == {("d", "a")}
        assert "CREATE TABLE is not among" in follower.resolver.notes["d", "a"]


def literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''").replace("\n", "\\n") + "'"
