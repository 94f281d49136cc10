"""What `mariadb-binlog -vv` says of row changes, parsed, and whether a value of ours agrees with it.

Rows come in the order of the commits, as ours do: those of an XA transaction where it is committed, those of a
transaction that was rolled back not at all. `agrees` knows in what the tool is wrong or vague; docs/dump.md has the
list.
"""

from __future__ import annotations

import ipaddress
import re
import struct
import subprocess
import zlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from replica.protocol.constants import ColumnType
from replica.protocol.rows.values import set_
from replica.rows.types.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from replica.protocol.rows.table_map import ColumnDef
    from replica.rows.tables.plan import ColumnPlan
    from tests.fixtures.mariadb import MariaDb

_ROW = re.compile(rb"### (INSERT INTO|UPDATE|DELETE FROM) `(.*)`\.`(.*)`")
_VALUE = re.compile(
    rb"###   @(\d+)=(.*) /\* ([A-Z/]+( COMPRESSED)?|[A-Z/]+\([^)]*\)( COMPRESSED)?)"
    rb" meta=\d+ nullable=[01] is_null=([01]) \*/",
    re.DOTALL,
)
_XID = re.compile(rb"XA (PREPARE|COMMIT|ROLLBACK) (X'.*',X'.*',-?\d+)")
_GTID = re.compile(rb"\sGTID \d+-\d+-\d+")
_CONTROL = re.compile(rb"\\x([01][0-9a-f])")
_OPS = {b"INSERT INTO": "insert", b"UPDATE": "update", b"DELETE FROM": "delete"}
_INTEGERS = ("TINYINT", "SHORTINT", "MEDIUMINT", "INT", "LONGINT")
_COMPRESSED = (ColumnType.VARCHAR_COMPRESSED, ColumnType.BLOB_COMPRESSED)


class VendorValue(NamedTuple):
    column: int  # from 0
    text: bytes
    type: str
    null: bool


class VendorRow(NamedTuple):
    op: str
    database: str
    table: str
    before: list[VendorValue]
    after: list[VendorValue]


def vendor_rows(server: MariaDb, *files: Path) -> list[VendorRow]:
    """All row changes that were committed."""
    command = [server.binary("mariadb-binlog"), "--no-defaults", "--base64-output=DECODE-ROWS", "-vv"]
    done = subprocess.run([*command, *map(str, files)], capture_output=True, check=True)
    return list(_committed(done.stdout.split(b"\n")))


def _committed(lines: list[bytes]) -> Iterator[VendorRow]:
    prepared: dict[bytes, list[VendorRow]] = {}
    rows: list[VendorRow] = []
    side: list[VendorValue] = []
    for number, line in enumerate(lines):
        if match := _ROW.fullmatch(line):
            database, table = (name.decode().replace("``", "`") for name in match.groups()[1:])
            rows.append(VendorRow(_OPS[match[1]], database, table, [], []))
        elif line in (b"### SET", b"### WHERE"):
            side = rows[-1].after if line == b"### SET" else rows[-1].before
        elif line.startswith(b"###   @"):
            match = _VALUE.fullmatch(line)
            assert match, line
            side.append(VendorValue(int(match[1]) - 1, match[2].rstrip(), match[3].decode(), match[6] == b"1"))
        elif match := _XID.match(line):
            if match[1] == b"PREPARE":
                prepared[match[2]] = rows
            elif match[1] == b"COMMIT":
                yield from prepared.pop(match[2])
            else:
                del prepared[match[2]]
            rows = []
        elif line == b"ROLLBACK" and lines[number + 1] == b"/*!*/;":
            rows = []
        elif line in (b"COMMIT/*!*/;", b"COMMIT") or _GTID.search(line):
            yield from rows
            rows = []
    yield from rows


def agrees(ours: Any, theirs: VendorValue, column: ColumnDef, plan: ColumnPlan) -> bool:  # noqa: C901, PLR0911
    """Whether a value of `dump --json` is what the tool says."""
    if theirs.null or ours is None:
        return theirs.null and ours is None
    kind, text = theirs.type.partition("(")[0], theirs.text.decode("latin-1")
    if kind in _INTEGERS:
        # Both readings stand there where they differ: -56 (200).
        return str(ours) in text.replace("(", "").replace(")", "").split(" ")
    if kind == "DECIMAL":
        return ours == text
    if kind == "FLOAT":  # six digits only
        return f"{struct.unpack('<f', struct.pack('<f', ours))[0]:g}" == f"{float(text):g}"
    if kind == "DOUBLE":
        return ours == float(text)
    if kind == "BIT":
        return int(ours) == int(text[2:-1], 2)
    if kind == "YEAR":  # the year 0000 as 1900
        return ours == text or (ours, text) == ("0000", "1900")
    if kind == "DATE":  # with colons
        return ours == text.strip("'").replace(":", "-")
    if kind in ("DATETIME", "TIME"):
        return ours == text.strip("'")
    if kind == "TIMESTAMP":
        return _timestamp(ours) == text
    if kind == "ENUM":
        return ours == (plan.labels[int(text) - 1] if int(text) else "")
    if kind == "SET":  # the bytes as they are logged, the lowest first
        bits = text[2:-1]
        return ours == set_(bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8)), plan.labels)
    return _same_bytes(ours, theirs.text[1:-1], column, plan)


def _timestamp(ours: str) -> str:
    """Seconds since 1970, as the tool has them."""
    whole, dot, fraction = ours.partition(".")
    if whole.startswith("0000"):
        return f"0{dot}{fraction}"
    seconds = int(datetime.strptime(whole, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp())
    return f"{seconds}{dot}{fraction}"


def _same_bytes(ours: Any, text: bytes, column: ColumnDef, plan: ColumnPlan) -> bool:
    """Strings of all kinds; the tool prints their bytes, but control characters in hex."""
    data = _CONTROL.sub(lambda match: bytes.fromhex(match[1].decode()), text)
    if column.type in _COMPRESSED:  # as they are stored
        data = _inflated(data)
    if isinstance(ours, list):
        return struct.pack(f"<{len(ours)}f", *ours) == data
    if isinstance(ours, dict):
        return bytes.fromhex(ours["hex"]).rstrip(b"\0") == data.rstrip(b"\0")
    if plan.kind == Kind.UUID:
        return bytes.fromhex(ours.replace("-", "")).rstrip(b"\0") == data
    if plan.kind in (Kind.INET4, Kind.INET6):
        return ipaddress.ip_address(ours).packed.rstrip(b"\0") == data
    return ours == (plan.charset.decode(data) if plan.charset else data.decode())


def _inflated(data: bytes) -> bytes:
    if not data or not data[0]:
        return data[1:]
    return zlib.decompress(data[1 + (data[0] & 7) :], -15 if data[0] & 8 else 15)
