"""The stored vectors: binlogs, network streams, and what the server and its tools say about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from replica.protocol.events.binlog_file import decode_file
from tests.kit.tree import files

HERE = Path(__file__).resolve().parent
VERSIONS = ("10.5", "10.11", "11.8")
BINLOGS = sorted(path for version in VERSIONS for path in files(HERE, f"{version}/*.binlog"))
STREAMS = files(HERE, "*/*.stream")


def name_of(path: Path) -> str:
    """The id of a parametrised test: `11.8/rotation.1`."""
    return f"{path.parent.name}/{path.stem}"


class ListedEvent(NamedTuple):
    """A line of mariadb-binlog's listing."""

    offset: int
    event_type: int
    server_id: int
    length: int
    log_pos: int
    flags: int
    timestamp: int
    text: str


def listing(binlog: Path) -> list[ListedEvent]:
    lines = binlog.with_suffix(".events").read_text(encoding="utf-8").splitlines()
    # The tool has no words for BEGIN_LOAD_QUERY.
    return [ListedEvent(*map(int, line.split(" ", 7)[:7]), "".join(line.split(" ", 7)[7:])) for line in lines]


def columns(version: str) -> dict[str, list[list[object]]]:
    """Per table of metadata_full: column rows as information_schema has them."""
    tables: dict[str, list[list[object]]] = {}
    for table, *column in json.loads((HERE / version / "metadata_full.columns.json").read_text(encoding="utf-8")):
        tables.setdefault(table, []).append(column)
    return tables


def raw_events(version: str, stem: str) -> list[bytes]:
    """Every event of a binlog, header and checksum included; the first is its FORMAT_DESCRIPTION."""
    data = (HERE / version / f"{stem}.binlog").read_bytes()
    return [bytes(found.event) for found, _ in decode_file(data)]
