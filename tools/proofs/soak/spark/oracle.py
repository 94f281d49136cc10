"""Every row change that the primary committed, decoded by MariaDB's own program: the exact content that sinks must
have.

In: the primary's binlogs, from the first one. Out: identity, operation and table of each row change in columns, and the
DDL in between. `mariadb-binlog` decodes, a filter keeps its heading lines, and this module only assigns them to their
groups. Rows of an XA transaction belong to its XA COMMIT. A group without an end, after a crash, does not count.
"""

from __future__ import annotations

import re
import subprocess
from array import array
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb

HEADINGS = (
    r"#.*[[:space:]]GTID [0-9]",
    "### (INSERT|UPDATE|DELETE) ",
    "(XA|RENAME TABLE|DROP TABLE|TRUNCATE) ",
    "COMMIT",
    "ROLLBACK",
)
NARROWED = ("env", "LC_ALL=C", "grep", "-aE", f"^({'|'.join(HEADINGS)})")
_GTID = re.compile(rb"\sGTID (\d+)-(\d+)-(\d+)")
_ROW = re.compile(rb"### (INSERT INTO|UPDATE|DELETE FROM) `[^`]*`\.`([^`]*)`")
_XA = re.compile(rb"XA (START|END|PREPARE|COMMIT|ROLLBACK) X'([0-9a-f]*)'")
_OPERATIONS = {b"INSERT INTO": "insert", b"UPDATE": "update", b"DELETE FROM": "delete"}

Gtid = tuple[int, int, int]


class Definition(NamedTuple):
    """A statement that changes which tables there are, or empties one."""

    gtid: Gtid
    text: str


class Written:
    """Row changes as columns: `domain`, `server`, `sequence`, `ordinal`, and `what`, an index into `kinds`."""

    def __init__(self) -> None:
        self.domain, self.server, self.sequence, self.ordinal, self.what = (array("q") for _ in range(5))
        self.kinds: list[tuple[str, str]] = []
        """(operation, table)."""
        self.groups = 0
        self.definitions: list[Definition] = []
        self._numbers: dict[tuple[bytes, bytes], int] = {}
        self._prepared: dict[bytes, array[int]] = {}

    def number(self, operation: bytes, table: bytes) -> int:
        found = self._numbers.get((operation, table))
        if found is None:
            found = self._numbers[operation, table] = len(self.kinds)
            self.kinds.append((_OPERATIONS[operation], table.decode()))
        return found

    def read(self, headings: Iterable[bytes], *, may_be_torn: bool) -> None:
        """The headings of one file."""
        gtid: Gtid = 0, 0, 0
        rows: array[int] = array("q")
        xid = b""
        for line in headings:
            if line.startswith(b"###"):
                row = _ROW.match(line)
                assert row is not None, f"mariadb-binlog says {line!r}"
                rows.append(self.number(row[1], row[2]))
            elif line.startswith(b"#"):
                found = _GTID.search(line)
                assert found is not None, f"mariadb-binlog says {line!r}"
                gtid, rows, xid = (int(found[1]), int(found[2]), int(found[3])), array("q"), b""
                self.groups += 1
            elif line.startswith(b"XA "):
                verb, xid = self._xa(line)
                if verb == b"PREPARE":
                    self._prepared[xid] = rows
                    rows = array("q")
                elif verb == b"COMMIT":
                    self._commit(gtid, self._prepared.pop(xid))
                elif verb == b"ROLLBACK":
                    self._prepared.pop(xid)
            elif line.startswith(b"COMMIT"):
                self._commit(gtid, rows)
                rows = array("q")
            elif line.startswith(b"ROLLBACK"):
                # At the end of a file the tool adds one itself, behind a group that a crash tore and behind a prepared
                # one; rows of the former are nobody's.
                torn = may_be_torn and b"added by mysqlbinlog" in line
                assert torn or not rows, f"rows in the rolled back group {gtid}: this oracle cannot tell which count"
                rows = array("q")
            else:
                self.definitions.append(Definition(gtid, line.decode().strip()))

    @staticmethod
    def _xa(line: bytes) -> tuple[bytes, bytes]:
        found = _XA.match(line)
        assert found is not None, f"mariadb-binlog says {line!r}"
        return found[1], found[2]

    def _commit(self, gtid: Gtid, rows: array[int]) -> None:
        assert gtid[2] or not rows, "rows outside of every group"
        count = len(rows)
        self.domain.extend([gtid[0]] * count)
        self.server.extend([gtid[1]] * count)
        self.sequence.extend([gtid[2]] * count)
        self.ordinal.extend(range(count))
        self.what.extend(rows)


def written(server: MariaDb, files: Iterable[Path], torn: set[str]) -> Written:
    """All of the files, in order; those named in `torn` may end in the middle of an event."""
    found = Written()
    for file in files:
        may_be_torn = file.name in torn
        found.read(_headings(server, file, may_be_torn=may_be_torn), may_be_torn=may_be_torn)
    return found


def _headings(server: MariaDb, file: Path, *, may_be_torn: bool) -> Iterator[bytes]:
    program = [server.binary("mariadb-binlog"), "--no-defaults", "--verify-binlog-checksum"]
    program += ["--base64-output=decode-rows", "-v", str(file)]
    with (
        subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tool,
        subprocess.Popen(NARROWED, stdin=tool.stdout, stdout=subprocess.PIPE) as narrowed,
    ):
        assert tool.stdout is not None
        assert tool.stderr is not None
        assert narrowed.stdout is not None
        tool.stdout.close()
        yield from narrowed.stdout
        complaint = tool.stderr.read().decode()
    assert tool.returncode == 0 or may_be_torn, f"mariadb-binlog {file.name}: {complaint[-3000:]}"
