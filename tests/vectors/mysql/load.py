"""The stored binlogs of MySQL, and what that server says about them."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import NamedTuple

from tests.kit.tree import files

HERE = Path(__file__).resolve().parent
_ROW = re.compile(r"^### (INSERT INTO|UPDATE|DELETE FROM) (`.*`)$")
_VALUE = re.compile(r"^###   @(\d+)=(.*?)(?: /\* .* \*/)?$", re.DOTALL)


class ListedRow(NamedTuple):
    """A row change in the listing of mysqlbinlog -vv: values by column number, as it prints them."""

    operation: str
    table: str
    before: dict[int, str]
    after: dict[int, str]


def read(name: str) -> bytes:
    path = HERE / name
    return path.read_bytes() if path.exists() else gzip.decompress((HERE / f"{name}.gz").read_bytes())


def binlogs(stem: str) -> list[str]:
    """Names of the files of one script, in order."""
    return sorted({path.name.removesuffix(".gz") for path in files(HERE, f"{stem}.*binlog*")})


def tables(stem: str) -> dict[str, list[list[str | None]]]:
    """Per table the rows at the end, as SELECT printed them."""
    found: dict[str, list[list[str | None]]] = json.loads(read(f"{stem}.tables.json"))
    return found


def listed_rows(name: str) -> list[ListedRow]:
    """Every row change of a binlog, in order."""
    rows: list[ListedRow] = []
    side: dict[int, str] = {}
    number = 0
    for line in _listing(name).splitlines():
        if found := _ROW.match(line):
            rows.append(ListedRow(found[1], found[2], {}, {}))
        elif line in ("### WHERE", "### SET"):
            side = rows[-1].before if line == "### WHERE" else rows[-1].after
        elif found := _VALUE.match(line):
            number = int(found[1])
            side[number] = found[2]
        elif line.startswith("###      "):  # JSON functions go on in the next line
            side[number] += " " + re.sub(r" /\* .* \*/$", "", line.removeprefix("###      "))
    return rows


def listed_gtids(name: str) -> list[str]:
    """GTID_NEXT of every group, 'ANONYMOUS' among them."""
    return re.findall(r"^SET @@SESSION\.GTID_NEXT= '(.*)'/\*!\*/;$", _listing(name), re.MULTILINE)


def _listing(name: str) -> str:
    return read(name.replace(".binlog", ".vv")).decode(errors="replace")
