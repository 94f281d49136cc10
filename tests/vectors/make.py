"""Re-creates the binlogs of this folder from their SQL, on every server version installed.

    python -m tests.vectors.make

Per `NAME.sql` and version, in the folder of the version: `NAME.binlog` (several files: `NAME.1.binlog` ...), what
`mariadb-binlog --hexdump` says about its events (`.events`, one line each), for `metadata_full` what the server says
about its columns (`.columns.json`), for `rotation` the raw bytes of a dump over the network, without and with the
semi-sync header (`.stream`, `.semisync.stream`). Bytes differ from run to run (times, table ids, thread ids); what the
tests check does not.

In the SQL a statement ends with `;` at the end of a line, and `-- session: NAME` changes the connection; before the
first one the statements set up the server, and the binlog is reset after them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pymysql

from replica.protocol.constants import DumpFlag
from replica.protocol.packets.packets import com_binlog_dump, pack
from tests.fixtures.installation import installations
from tests.fixtures.mariadb import MariaDb
from tests.kit.tree import files

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
WITH_COLUMNS = "metadata_full"
WITH_STREAM = "rotation"
REGISTRATION = (
    "SET @master_binlog_checksum = @@global.binlog_checksum",
    "SET @mariadb_slave_capability = 4",
    "SET @slave_connect_state = ''",
)
COLUMNS_SQL = """
    SELECT c.table_name, c.column_name, c.data_type, c.column_type, c.is_nullable, col.id, s.seq_in_index, s.sub_part
    FROM information_schema.columns c
    LEFT JOIN {collations} ON col.{collation_name} = c.collation_name
    LEFT JOIN information_schema.statistics s
      ON s.table_schema = c.table_schema AND s.table_name = c.table_name AND s.column_name = c.column_name
      AND s.index_name = 'PRIMARY'
    WHERE c.table_schema = 'v.1' AND c.table_name NOT LIKE '名%' ORDER BY c.table_name, c.ordinal_position
"""
EMPTY_QUERY = 1065
OFFSET_LINE = re.compile(r"^# at (\d+)$", re.MULTILINE)
# 10.10+ has collations whose full name, with the character set in it, is only in the second table.
OLD_COLLATIONS = ("information_schema.collations col", "collation_name")
NEW_COLLATIONS = ("information_schema.collation_character_set_applicability col", "full_collation_name")
HEADER_LINE = re.compile(
    r"^# +[0-9a-f]+  \|(?P<timestamp>.{11}) \|(?P<type>..)   \|(?P<server_id>.{11}) \|(?P<length>.{11}) "
    r"\|(?P<log_pos>.{11}) \|(?P<flags>.{5})$"
    r"|^# Event: \t(?P<text>.*(?:\n# \d+-\d+-\d+[],].*)*)$",
    re.MULTILINE,
)


def statements(script: str) -> Iterator[tuple[str, str]]:
    """(session, statement) in order; the session before the first directive is ''."""
    session = ""
    pending: list[str] = []
    for line in script.splitlines():
        if line.startswith("-- session: "):
            session = line.removeprefix("-- session: ").strip()
        elif not line.startswith("--") and line.strip():
            pending.append(line)
            if line.endswith(";"):
                yield session, "\n".join(pending).removesuffix(";")
                pending.clear()


def execute(connection: pymysql.Connection[Any], statement: str) -> None:
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
    except pymysql.Error as error:
        # A statement that is all version comment is empty to an older server.
        if error.args[0] != EMPTY_QUERY:
            raise RuntimeError(f"{statement}: {error}") from error


def run(server: MariaDb, script: str) -> None:
    sessions: dict[str, pymysql.Connection[Any]] = {}
    for session, statement in statements(script):
        if session and not sessions:
            server.sql("RESET MASTER")
        if session not in sessions and session:
            sessions[session] = server.connect()
        if session:
            execute(sessions[session], statement)
        else:
            server.sql(statement)
    for connection in sessions.values():
        connection.close()


def listing(server: MariaDb, binlog: Path) -> str:
    """A line per event, as MariaDB's own tool sees it: offset, type, server id, length, log_pos, flags, time, text."""
    command = [server.binary("mariadb-binlog"), "--no-defaults", "--hexdump", str(binlog)]
    done = subprocess.run(command, capture_output=True, check=True, env={**os.environ, "TZ": "UTC"})
    output = done.stdout.decode("utf-8", "replace")
    events: list[list[str]] = []
    for found in HEADER_LINE.finditer(output):
        if found["type"]:
            columns = ("type", "server_id", "length", "log_pos", "flags", "timestamp")
            values = [int.from_bytes(bytes.fromhex(found[column]), "little") for column in columns]
            events.append([str(value) for value in values])
        else:
            events[-1].append(" ".join(found["text"].replace("\n#", "").split()))
    # The tool holds back the events of a statement and then shows wrong offsets beside them, but in the right order.
    offsets = OFFSET_LINE.findall(output)
    return "".join(f"{offset} {' '.join(event)}\n" for offset, event in zip(offsets, events, strict=True))


def columns(server: MariaDb) -> str:
    try:
        server.sql("SELECT full_collation_name FROM information_schema.collation_character_set_applicability LIMIT 1")
    except pymysql.Error:
        collations, name = OLD_COLLATIONS
    else:
        collations, name = NEW_COLLATIONS
    rows = server.sql(COLUMNS_SQL.format(collations=collations, collation_name=name))
    return "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n"


def stream(server: MariaDb, *, semi_sync: bool) -> bytes:
    """Everything the server sends for a dump from the beginning that does not wait at the end."""
    with server.connect() as connection:
        with connection.cursor() as cursor:
            for statement in REGISTRATION:
                cursor.execute(statement)
            if semi_sync:
                cursor.execute("SET @rpl_semi_sync_slave = 1")
        flags = DumpFlag.NON_BLOCK | DumpFlag.SEND_ANNOTATE_ROWS
        connection._sock.sendall(pack(com_binlog_dump(77, flags=flags)))
        received = bytearray()
        while chunk := connection._rfile.read1(1 << 16):
            received += chunk
    return bytes(received)


def make(version: str, script: Path) -> None:
    folder = HERE / version
    folder.mkdir(exist_ok=True)
    with MariaDb(version) as server:
        run(server, script.read_text(encoding="utf-8"))
        if script.stem == WITH_COLUMNS:
            (folder / f"{script.stem}.columns.json").write_text(columns(server), encoding="utf-8")
        if script.stem == WITH_STREAM:
            (folder / f"{script.stem}.stream").write_bytes(stream(server, semi_sync=False))
            (folder / f"{script.stem}.semisync.stream").write_bytes(stream(server, semi_sync=True))
        names = server.binlogs()
        server.stop()
        for number, name in enumerate(names, 1):
            suffix = f".{number}" if len(names) > 1 else ""
            target = folder / f"{script.stem}{suffix}.binlog"
            shutil.copy(server.datadir / name, target)
            target.chmod(0o644)
            target.with_suffix(".events").write_text(listing(server, target), encoding="utf-8")


def main() -> None:
    for version in installations():
        for script in files(HERE, "*.sql"):
            make(version, script)
            print(version, script.stem)


if __name__ == "__main__":
    main()
