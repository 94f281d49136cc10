"""Options of the starting position, and of reading the tables themselves.

`ReadingOptions` is the part of the parsed options with the starting position and the way in which rows of tables are
read. `check_initial` refuses options that cannot be combined with reading tables.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal, NamedTuple

from replica.errors import ConfigError
from replica.options.values import Position, endpoint, one_of, starting_place
from replica.schema.patterns import table_patterns
from streaming_source.options import row_options
from streaming_source.options.row_options import RowOptions, option

Start = Position | Literal["initial"]
"""Place of the stream, or "initial": first the rows of the tables, then their changes."""
Content = Literal["changes", "tables"]
Unkeyed = Literal["refuse", "whole"]

MAX_ROWS = 2**63 - 1
MAX_CONNECTIONS = 64
"""Most connections. Each is a session of the server, with its memory and its read view."""


def _start(text: str) -> Start:
    return "initial" if text.strip().lower() == "initial" else starting_place(text)


class ResnapshotOption(NamedTuple):
    """Tables to re-snapshot, as patterns, and the word by which a checkpoint knows whether the re-snapshot was done."""

    patterns: tuple[str, ...]
    word: str

    def __str__(self) -> str:
        return f"{','.join(self.patterns)}@{self.word}"


def _resnapshot_option(text: str) -> ResnapshotOption:
    """Read patterns of tables, and a word after the last @."""
    patterns, _, word = text.strip().rpartition("@")
    if not patterns or not word.strip():
        raise ValueError("is not of the form database.table@word, with a new word each time")
    return ResnapshotOption(table_patterns(patterns), word.strip())


def _host(text: str) -> str:
    """Read host or host:port."""
    name = text.strip()
    try:
        endpoint(name, 3306)
    except ValueError:
        raise ValueError("is not a host: db2, db2:3307 or [address]:port") from None
    return name


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadingOptions(RowOptions):
    """Parsed options of the beginning of a query, one field each."""

    starting_position: Start | None = option(  # noqa: RUF009  (it makes a field)
        "startingPosition",
        _start,
        None,
        "Where a query without a checkpoint starts: initial (all rows of the tables first, then their changes), "
        "latest, earliest, after a GTID position, or at a time (2026-11-21T20:00:00Z). Unset: latest; earliest with "
        "spark.read",
    )
    content: Content = option(  # noqa: RUF009
        "content",
        one_of(Content),
        "changes",
        "With spark.read: changes, or tables: the rows of the tables themselves, all as of one GTID position",
    )
    snapshot_connections: int = option(
        "snapshotConnections",
        row_options.integer(1, MAX_CONNECTIONS),
        "2",
        "Snapshot of the tables: connections that read at the same time",
    )
    snapshot_chunk_rows: int = option(
        "snapshotChunkRows",
        row_options.integer(1, MAX_ROWS),
        "100000",
        "Snapshot of the tables: rows that one SELECT reads at most; an ALTER of the table waits for it",
    )
    snapshot_rows_per_second: int | None = option(
        "snapshotRowsPerSecond",
        row_options.integer(1, MAX_ROWS),
        None,
        "Snapshot of the tables: rows per second at most, of all connections together",
    )
    snapshot_host: str | None = option(
        "snapshotHost",
        _host,
        None,
        "Snapshot of the tables: host to read from, db2:3307, a replica of the primary with the same GTIDs; unset: "
        "the server that the changes come from",
    )
    snapshot_unkeyed: Unkeyed = option(  # noqa: RUF009
        "snapshotUnkeyed",
        one_of(Unkeyed),
        "refuse",
        "Snapshot of the tables: what to do with a table that has no usable key, or is MyISAM or Aria: refuse, or "
        "whole: read it in one go, repeated until no one changes it meanwhile",
    )
    resnapshot: ResnapshotOption | None = option(  # noqa: RUF009
        "resnapshot",
        _resnapshot_option,
        None,
        "Re-snapshot these tables, without a new checkpoint, once for each new word after the @: "
        "shop.orders,shop.lines_*@monday",
    )
    resnapshot_requests: Path | None = option(  # noqa: RUF009
        "resnapshotRequests",
        Path,
        None,
        "Folder on the driver with requests to re-snapshot tables while the query runs, for programs such as the "
        "mirror",
    )

    def check_initial(self, *, has_server: bool) -> None:
        """Raise a ConfigError for options that cannot be combined with reading tables."""
        requested = {
            "startingPosition=initial": self.initial,
            "resnapshot": self.resnapshot is not None,
            "resnapshotRequests": self.resnapshot_requests is not None,
        }
        first = next((name for name, given in requested.items() if given), None)
        if first is None:
            return
        if not has_server:
            raise ConfigError(
                f"{first} reads the tables themselves, and no server is named: relayDir has their changes only.",
                hint="Set host and user beside relayDir: the changes still come from the daemon's relay log.",
            )
        if not self.gtid_strict_mode:
            raise ConfigError(
                f"{first} needs gtidStrictMode: snapshot rows need one place of the stream, and without it a position "
                "can have several places.",
                hint="Remove gtidStrictMode=false.",
            )

    @property
    def initial(self) -> bool:
        """Whether the query asks for the rows of the tables before their changes."""
        return self.starting_position == "initial"

    @property
    def stream_start(self) -> Position | None:
        """The place where the changes start; None if the option is unset."""
        return "latest" if self.starting_position == "initial" else self.starting_position
