"""Settings of a server and of its init_connect, set against a replica: every answer is that of a plain server.

For each setting, set globally and by init_connect for an account without SUPER: the catalog, the facts of a load, what
`check` asks, rows of tables with every type, and the stream are what they are on a plain server, with names, labels and
comments that are not ASCII.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from replica.commands.check.server import ServerFacts, ask_facts
from replica.errors import AuthenticationError, DisconnectedError
from replica.handshake.login.login import ask, log_in
from replica.handshake.login.session_settings import SETTINGS
from replica.handshake.primary.catalog import read_tables
from replica.handshake.primary.progress import ask_primary
from replica.handshake.registration import Query
from replica.live.embedded import EmbeddedReplica
from replica.protocol.gtid import GtidPosition
from replica.readers.arrow import read_relay_log
from replica.snapshot.check.catalog import describe_table
from replica.snapshot.check.facts import ask_table_facts
from replica.snapshot.connection.connection import TableConnection
from tests.fixtures.mariadb import MariaDb
from tests.fixtures.replicas import replica_config
from tests.integration.rows.type_cases import CASES
from tests.integration.rows.type_tables import tables
from tests.integration.snapshot.kit.table_rows import read_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from replica.handshake.registration import Rows, Steps
    from replica.options.config import ReplicaConfig

pytestmark = pytest.mark.server

WAIT_S = 60.0
MODES = (
    *("ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "ORACLE", "PAD_CHAR_TO_FULL_LENGTH", "HIGH_NOT_PRECEDENCE"),
    *("PIPES_AS_CONCAT", "NO_UNSIGNED_SUBTRACTION", "REAL_AS_FLOAT", "IGNORE_SPACE", "TIME_ROUND_FRACTIONAL"),
    *("EMPTY_STRING_IS_NULL", "SIMULTANEOUS_ASSIGNMENT", "MSSQL", "DB2", "MAXDB", "TRADITIONAL", "ANSI"),
)
BOTH = (
    *(f"sql_mode = '{mode}'" for mode in MODES),
    f"sql_mode = '{','.join(MODES)}'",
    "autocommit = 0",
    "time_zone = '+12:45'",
    "lc_messages = 'de_DE'",
    "lc_time_names = 'ru_RU'",
    "wait_timeout = 1, interactive_timeout = 1",
    "net_read_timeout = 1, net_write_timeout = 1",
    "max_statement_time = 0.5",
    "sql_select_limit = 1",
    "max_join_size = 1",
    "sql_safe_updates = 1",
    "sql_quote_show_create = 0",
    "tx_isolation = 'SERIALIZABLE'",
    "tx_isolation = 'READ-UNCOMMITTED', tx_read_only = 1",
    "character_set_client = latin1, character_set_connection = latin1, character_set_results = latin1",
    "character_set_results = binary",
    "character_set_results = NULL",
    "character_set_results = utf16, collation_connection = utf16_general_ci",
    "character_set_client = sjis",
    "group_concat_max_len = 4",
    "max_sort_length = 64",
    "div_precision_increment = 0",
    "old_mode = 'ZERO_DATE_TIME_CAST,NO_DUP_KEY_WARNINGS_WITH_IGNORE,NO_PROGRESS_INFO'",
    "optimizer_switch = 'derived_with_keys=off,derived_merge=off,mrr=on,semijoin=off'",
    "join_cache_level = 0, join_buffer_size = 128",
    "system_versioning_asof = '2001-01-01'",
    "query_cache_type = 0, sql_auto_is_null = 1, sql_warnings = 1",
    "tmp_memory_table_size = 0, max_heap_table_size = 16384",
)
"""Settings of a session that exist globally too."""
OF_SESSION = (
    "SET NAMES latin1",
    "SET NAMES utf8mb3",
    "SET NAMES gbk",
    "SET NAMES latin2 COLLATE latin2_czech_cs",
    "SET CHARACTER SET latin1",
    "SET timestamp = 86400",
    "SET skip_parallel_replication = 1",
    "SET autocommit = 0; SELECT COUNT(*) FROM händler.kunde",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT",
    "USE händler",
    "SET character_set_filesystem = latin1, lc_time_names = 'ja_JP'",
    "SET @a = 1; SELECT 1; SELECT 2",
)
"""What only init_connect can do."""


class Picture(NamedTuple):
    """All that is asked of a server, as far as its settings should not change it."""

    catalog: object
    facts: object
    server: object
    rows: object
    stream: object
    clock_is_right: bool


def _ask(config: ReplicaConfig, steps: Any) -> Any:
    return asyncio.run(ask(config, steps))


def picture(server: MariaDb, config: ReplicaConfig, folder: Path) -> Picture:
    catalog = _ask(config, lambda _: read_tables([("händler", None)]))
    facts = _ask(config, lambda _: ask_table_facts(["händler.*"], lambda *_: True, catalog))
    listed = tuple(replace(one, rows=0, octets=0) for one in facts.tables)
    found = _ask(config, lambda _: ask_facts())
    assert isinstance(found, ServerFacts)
    now = time.time()
    primary = _ask(config, lambda _: ask_primary(""))
    rows = {}
    with contextlib.closing(TableConnection.open(config)) as connection:
        for name in sorted(catalog):
            table = describe_table(connection, name)
            assert table is not None
            connection.begin_snapshot()
            block = read_rows(connection, table.schema, table.key).block()
            connection.end_snapshot()
            rows[name] = (table, block.rows, block.images.tobytes())
    return Picture(
        catalog,
        replace(facts, tables=listed, isolation="", variables={}),
        (found.info, found.binlog_state, found.tables_visible),
        rows,
        stream(server, config, folder),
        abs(primary.clock - now) < WAIT_S,
    )


def stream(server: MariaDb, config: ReplicaConfig, folder: Path) -> object:
    with EmbeddedReplica(config, folder) as replica:
        replica.start(GtidPosition())
        assert replica.wait_for(GtidPosition.parse(server.gtid_binlog_pos()), WAIT_S)
        return [batch.to_pylist() for batch in read_relay_log(folder, "händler.kunde")]


@pytest.fixture(scope="module")
def source(server_version: str) -> Iterator[MariaDb]:
    with MariaDb(server_version, "--binlog-row-metadata=FULL") as server:
        server.add_user()
        version = tuple(map(int, server_version.split(".")))
        wanted = [case for case in CASES if version >= case.since]
        server.sql(
            "SET sql_mode = '', time_zone = '+00:00'",
            "CREATE DATABASE händler",
            "USE händler",
            "CREATE TABLE kunde (id INT PRIMARY KEY, größe ENUM('klein','groß','日本','🐬','?') COMMENT 'Größe: 日本',"
            " menge SET('ä','ö') CHARACTER SET latin1, preis DECIMAL(9,2) DEFAULT 1.5, bis DATE,"
            " zeit TIMESTAMP(3) NULL,"
            " name CHAR(20) DEFAULT 'ünbekannt', doppelt INT AS (id || 2) VIRTUAL) COMMENT 'Käufer \\\\ \\'alle\\''",
            'CREATE TABLE `be"st``ellung` (id INT PRIMARY KEY, kunde INT, FOREIGN KEY `für` (kunde) REFERENCES'
            " kunde (id) ON DELETE CASCADE)",
            "CREATE TABLE früher (id INT PRIMARY KEY, v REAL) WITH SYSTEM VERSIONING",
            "INSERT INTO kunde (id, größe, menge, bis, zeit, name) VALUES (1,'groß','ä,ö','2024-01-01',"
            "'2024-10-27 00:30:00.5','Müller'), (2,'🐬','','2024-01-01',NULL,'日本')",
            "INSERT INTO früher VALUES (1, 0.1), (2, 0.2)",
            "ALTER DATABASE händler CHARACTER SET utf8mb4",  # 10.11 has latin1, and some types only go with another one
            *(statement for table in tables(wanted) for statement in (table.create, table.insert)),
        )
        yield server


@pytest.fixture(scope="module")
def plain(source: MariaDb, tmp_path_factory: pytest.TempPathFactory) -> Picture:
    found = picture(source, replica_config(source), tmp_path_factory.mktemp("plain"))
    assert found.clock_is_right
    assert len(found.rows) > 5  # type: ignore[arg-type]
    return found


@contextlib.contextmanager
def set_against(server: MariaDb, *statements: str) -> Iterator[None]:
    """Run statements that set global variables, and undo them."""
    names = [part.split("=")[0].strip() for one in statements for part in _parts(one)]
    before = {name: server.value(f"SELECT @@GLOBAL.{name}") for name in names}
    try:
        for one in statements:
            server.sql("SET " + ", ".join(f"GLOBAL {part}" for part in _parts(one)))
        yield
    finally:
        with server.connect(init_command="SET SESSION sql_mode = '', max_statement_time = 0") as connection:
            for name, value in before.items():
                if value == "DEFAULT":
                    connection.cursor().execute(f"SET GLOBAL {name} = DEFAULT")
                else:
                    connection.cursor().execute(f"SET GLOBAL {name} = %s", (value,))


def _parts(setting: str) -> list[str]:
    """Return the assignments of a setting; commas in quotes part nothing."""
    parts, quoted = [""], False
    for letter in setting:
        quoted ^= letter == "'"
        if letter == "," and not quoted:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _init_connect(server: MariaDb, text: str) -> Iterator[None]:
    server.sql("SET GLOBAL init_connect = %s", args=(text,))
    try:
        yield
    finally:
        server.sql("SET GLOBAL init_connect = ''")


init_connect = contextlib.contextmanager(_init_connect)


def known(server: MariaDb, setting: str) -> str:
    """Return what of a setting the server knows: modes and variables come and go with versions."""
    with server.connect() as connection, connection.cursor() as cursor:
        kept = []
        for part in _parts(setting):
            with contextlib.suppress(Exception):
                cursor.execute(f"SET SESSION {part}")
                kept.append(part)
    return ", ".join(kept)


@pytest.mark.slow
@pytest.mark.parametrize("setting", BOTH)
def test_a_setting_of_the_server_or_of_its_init_connect_changes_no_answer(
    source: MariaDb, plain: Picture, tmp_path: Path, setting: str
) -> None:
    setting = known(source, setting)
    config = replica_config(source)
    if setting:
        with init_connect(source, f"SET SESSION {setting}"):
            assert picture(source, config, tmp_path / "session") == plain
        with set_against(source, setting):
            assert picture(source, config, tmp_path / "global") == plain


ALL_AT_ONCE = (
    f"sql_mode = '{','.join(MODES)}'",
    "time_zone = '+12:45', lc_messages = 'de_DE', wait_timeout = 1, max_statement_time = 0.5, sql_select_limit = 1",
    "max_join_size = 1, sql_safe_updates = 1, sql_quote_show_create = 0, max_sort_length = 64, sql_auto_is_null = 1",
    "system_versioning_asof = '2001-01-01', tx_isolation = 'SERIALIZABLE', autocommit = 0",
)


@pytest.mark.parametrize("spoken", ["latin1", "utf16"])
def test_all_settings_at_once_change_no_answer(source: MariaDb, plain: Picture, tmp_path: Path, spoken: str) -> None:
    config = replica_config(source)
    known_here = [one for setting in ALL_AT_ONCE if (one := known(source, setting))]
    with init_connect(source, f"SET character_set_results = {spoken}; SET " + ", ".join(known_here)):
        assert picture(source, config, tmp_path / "session") == plain
    if spoken == "latin1":
        with set_against(source, f"character_set_results = {spoken}", *known_here):
            assert picture(source, config, tmp_path / "global") == plain


@pytest.mark.slow
@pytest.mark.parametrize("statements", OF_SESSION)
def test_init_connect_changes_no_answer(source: MariaDb, plain: Picture, tmp_path: Path, statements: str) -> None:
    config = replica_config(source)
    with init_connect(source, statements):
        assert picture(source, config, tmp_path) == plain


@pytest.mark.parametrize(
    "options",
    [
        ("--skip-character-set-client-handshake", "--character-set-server=latin1"),
        ("--init-connect=SET NAMES latin1", "--secure-timestamp=YES", "--old-mode="),
        ("--secure-timestamp=REPLICATION", "--character-set-server=utf16", "--lc-messages=fr_FR"),
    ],
)
def test_a_server_that_ignores_what_the_client_says_it_speaks(
    server_version: str, tmp_path: Path, options: tuple[str, ...]
) -> None:
    with MariaDb(server_version, "--binlog-row-metadata=FULL", *options) as server:
        server.sql(
            "CREATE DATABASE händler CHARACTER SET utf8mb4",
            "CREATE TABLE händler.kunde (id INT PRIMARY KEY, größe ENUM('groß','日本') COMMENT 'Größe')",
            "INSERT INTO händler.kunde VALUES (1, 'groß'), (2, '日本')",
        )
        found = picture(server, replica_config(server), tmp_path)
        catalog: Any = found.catalog
        (column,) = [one for one in catalog["händler", "kunde"].columns if one.name == "größe"]
        assert (column.labels, column.comment) == (("groß", "日本"), "Größe")
        assert "日本" in str(found.stream)
        assert found.clock_is_right


async def test_every_setting_is_as_it_was_set(source: MariaDb) -> None:
    """What is not read back at each login is read back here."""
    hostile = "SET max_sort_length = 64, lc_messages = 'de_DE', wait_timeout = 9, net_read_timeout = 9, timestamp = 9"

    def asked() -> Steps[Rows]:
        return (yield Query("SELECT " + ", ".join(f"@@{one.name}" for one in SETTINGS)))

    with init_connect(source, hostile):
        login = await log_in(config := replica_config(source), config.endpoints[0])
        with contextlib.closing(login):
            values = dict(zip((one.name for one in SETTINGS), (await login.run(asked()))[0], strict=True))
    assert values["max_sort_length"] == "1024"
    assert values["lc_messages"] == "en_US"
    assert (values["wait_timeout"], values["net_read_timeout"]) == ("28800", "30")
    assert float(values["timestamp"] or 0) > 9


def test_a_connection_that_stands_idle_outlives_the_timeout_of_the_server(source: MariaDb) -> None:
    with (
        set_against(source, "wait_timeout = 1"),
        init_connect(source, "SET wait_timeout = 1"),
        contextlib.closing(TableConnection.open(replica_config(source))) as connection,
    ):
        time.sleep(2.5)
        assert str(connection.position()) == source.gtid_binlog_pos()


@pytest.mark.parametrize("text", ["SELECT absent", "SET NAMES", "INSERT INTO händler.kunde (id) VALUES (1)"])
def test_an_init_connect_that_fails_is_named(source: MariaDb, text: str) -> None:
    config = replica_config(source, connect_retry_s=0.2)
    with init_connect(source, text), pytest.raises(DisconnectedError, match="init_connect") as caught:
        _ask(config, lambda _: ask_facts())
    assert "Check which program listens" not in str(caught.value)


def hold(config: ReplicaConfig, held: contextlib.ExitStack) -> None:
    """Make more connections than a small limit allows."""
    for _ in range(5):
        held.enter_context(contextlib.closing(TableConnection.open(config)))


@pytest.mark.parametrize(
    "limit",
    ["MAX_QUERIES_PER_HOUR 3", "MAX_CONNECTIONS_PER_HOUR 2", "MAX_USER_CONNECTIONS 1", "MAX_STATEMENT_TIME 0.01"],
)
def test_a_limit_of_the_account_is_named(source: MariaDb, limit: str) -> None:
    source.sql(
        "SET SESSION sql_log_bin = 0",
        f"CREATE OR REPLACE USER few@'%' IDENTIFIED BY 'few' WITH {limit}",
        "GRANT REPLICATION SLAVE, SELECT ON *.* TO few@'%'",
    )
    config = replica_config(source, user="few", password="few", connect_retry_s=0.2)
    name = limit.split(maxsplit=1)[0]
    try:
        if name == "MAX_STATEMENT_TIME":
            assert len(_ask(config, lambda _: read_tables([("händler", None)]))) > 5
            return
        with contextlib.ExitStack() as held, pytest.raises(DisconnectedError, match=name):  # tried again: it passes
            hold(config, held)
    finally:
        source.sql("SET SESSION sql_log_bin = 0", "DROP USER few@'%'")


def test_an_account_with_a_limit_of_connections_waits_for_its_turn(source: MariaDb) -> None:
    source.sql(
        "SET SESSION sql_log_bin = 0",
        "CREATE OR REPLACE USER one@'%' IDENTIFIED BY 'one' WITH MAX_USER_CONNECTIONS 1",
        "GRANT REPLICATION SLAVE, SELECT ON *.* TO one@'%'",
    )
    config = replica_config(source, user="one", password="one")

    async def both() -> None:
        await asyncio.gather(*(ask(config, lambda _: read_tables([("händler", None)])) for _ in range(3)))

    asyncio.run(both())
    source.sql("SET SESSION sql_log_bin = 0", "DROP USER one@'%'")


def test_a_server_that_wants_tls_says_so(make_server: Any, server_version: str) -> None:
    server = make_server(server_version, "--require-secure-transport=ON", tls=True)
    user, password = "root", server.password
    config = replica_config(server, user=user, password=password, tls="disabled")
    with pytest.raises(AuthenticationError, match="TLS"):
        _ask(config, lambda _: ask_facts())
