"""The proof: the tables rebuilt from the stream against the server's own, at one GTID position, row by row.

In: the rebuilt tables, the server after its last write, and what the writer says it wrote. Out: one line a table and a
verdict, with the reasons where it is not equal. Nothing is sampled or hashed: every value of every row is compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pymysql.cursors import DictCursor

from demo.replay import canonical_row
from demo.shop import DATABASE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from demo.replay import Key, Rebuilt, Row
    from tests.fixtures.mariadb import MariaDb

MOST_EXAMPLES = 3


@dataclass(frozen=True)
class TableVerdict:
    """One table: how many rows each side has, and descriptions of the first rows that differ."""

    table: str
    server_rows: int
    rebuilt_rows: int
    changes: int
    differing: int
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """All tables at `position`. Equal only if every row is, nothing arrived twice and nothing is missing."""

    position: str
    tables: tuple[TableVerdict, ...]
    written: int
    arrived: int
    faults: tuple[str, ...] = field(default=())

    @property
    def equal(self) -> bool:
        same = not any(table.differing for table in self.tables)
        return same and not self.faults and self.written == self.arrived


def compare(table: str, server: Mapping[Key, Row], rebuilt: Mapping[Key, Row], changes: int) -> TableVerdict:
    """Compare both sides in canonical form, by primary key."""
    keys = sorted(server.keys() | rebuilt.keys())
    differing = [key for key in keys if server.get(key) != rebuilt.get(key)]
    examples = tuple(_describe(key, server.get(key), rebuilt.get(key)) for key in differing[:MOST_EXAMPLES])
    return TableVerdict(table, len(server), len(rebuilt), changes, len(differing), examples)


def _describe(key: Key, server: Row | None, rebuilt: Row | None) -> str:
    name = ", ".join(map(str, key))
    if server is None or rebuilt is None:
        return f"row {name} is only {'in the stream' if server is None else 'on the server'}"
    columns = [c for c in server.keys() | rebuilt.keys() if server.get(c) != rebuilt.get(c)]
    both = "; ".join(
        f"{c}: {_short(server.get(c))} on the server, {_short(rebuilt.get(c))} in the stream" for c in columns
    )
    return f"row {name} differs in {both}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def prove(server: MariaDb, rebuilt: Rebuilt, *, written: int) -> Verdict:
    """Read the server's tables and its GTID position after the last write, and compare."""
    tables = []
    connection = server.connect(cursorclass=DictCursor, init_command="SET time_zone = '+00:00'")
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT @@gtid_binlog_pos AS position")
        position = str(cursor.fetchone()["position"])
        for table, columns in rebuilt.keys.items():
            cursor.execute(f"SELECT * FROM {DATABASE}.{table}")
            rows = [canonical_row(row) for row in cursor.fetchall()]
            by_key = {tuple(row[name] for name in columns): row for row in rows}
            tables.append(compare(table, by_key, rebuilt.tables[table], rebuilt.changes[table]))
    return Verdict(position, tuple(tables), written, sum(rebuilt.changes.values()), tuple(rebuilt.faults))
