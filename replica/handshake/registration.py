"""Conversation that makes a connection a replica: statements, COM_REGISTER_SLAVE, COM_BINLOG_DUMP, in this order.

No I/O: `register()` is a generator that yields steps and receives answers. A driver (login/login.py over a socket, a
list in a test) sends each step and returns its rows. An ERR packet is thrown into the generator as a `ServerError`.
Order and variables are those of the server's own replica (sql/slave.cc: get_master_version_and_clock,
register_slave_on_master, request_dump; the same from 10.6 to 11.8).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from replica.errors import PrerequisiteError
from replica.protocol.constants import FIRST_POSITION, ChecksumAlgorithm, DumpFlag
from replica.protocol.gtid import BinlogPosition
from replica.protocol.packets.packets import com_binlog_dump, com_register_slave

if TYPE_CHECKING:
    from replica.protocol.gtid import GtidPosition

CAPABILITY_GTID = 4
"""MARIA_SLAVE_CAPABILITY_GTID of sql/log_event.h. Below it the server replaces GTID events by dummies (log_event.cc:
Gtid_log_event::make_compatible_event).
"""
NANOSECONDS = 1_000_000_000
SEMI_SYNC_VARIABLE = "rpl_semi_sync_master_enabled"
ENGINE_VARIABLE = "binlog_storage_engine"
"""Variable of 12.3 and later. It is empty for classic binlog files, else the engine that stores the binlog."""


MAX_REPLY_BYTES: Final = 4 << 20
"""Maximum size in bytes of the answer to a statement. The longest are the list of 40 000 binlog files, and as many
GTIDs of a position.
"""
MAX_CATALOG_BYTES: Final = 64 << 20
"""Maximum size in bytes of the answer to a catalog query: the columns of 20 000 tables, which take some hundreds of
megabytes in Python.
"""


@dataclass(frozen=True, slots=True)
class Query:
    """Step that runs one statement.

    The answer is its rows, every value as text or None. Arguments replace %s in the text.
    """

    sql: str
    arguments: tuple[str, ...] = ()
    most_bytes: int = MAX_REPLY_BYTES


@dataclass(frozen=True, slots=True)
class Send:
    """Step that sends one command payload. The answer has no rows. The server never answers a dump command with OK."""

    payload: bytes
    replies: bool = True


Step = Query | Send
Rows = Sequence[tuple[str | None, ...]]
_Result = TypeVar("_Result")
Steps = Generator[Step, Rows, _Result]


def by_name(rows: Rows) -> dict[str, str]:
    """Return the rows of SHOW VARIABLES or SHOW STATUS by their names in lower case; rows with a NULL are left out."""
    return {name.lower(): value for name, value in rows if name is not None and value is not None}


def string_list(names: Iterable[str]) -> str:
    """Return names of ours as a list of SQL strings. The names are not escaped."""
    return ", ".join(f"'{name}'" for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """Description of this replica for the primary, and the start of the dump."""

    server_id: int
    position: GtidPosition
    place: BinlogPosition | None = None
    """Place of the start in the server's binlog. If it is set, the dump begins there, and the position is not used."""
    heartbeat_s: float = 10.0
    net_write_timeout_s: int = 3600
    strict_mode: bool = True
    ignore_duplicates: bool = False
    annotate: bool = False
    semi_sync: bool = False
    report_host: str = ""


@dataclass(frozen=True, slots=True)
class Registered:
    """Answer of the primary to the registration, which is needed to read the stream's first bytes."""

    checksum: ChecksumAlgorithm
    """Whether the first artificial ROTATE has a CRC32. Later events follow the FORMAT_DESCRIPTION of their file."""
    semi_sync: bool
    """Whether every packet has the two semi-sync bytes. The request decides this; never detect it from the bytes."""
    semi_sync_enabled: bool
    """Whether the primary's commits wait for acknowledgements now. That can change during the dump."""


def register(wanted: Registration) -> Steps[Registered]:
    """Announce the replica, register it, and start the dump after `wanted.position`.

    An empty position means the start of the oldest binlog. If a place is set, the position is not sent, because a
    server that receives both begins at the position.
    """
    # A slow consumer must not look like a dead one: the default of 60 s would end the dump (measured).
    yield Query(f"SET SESSION net_write_timeout = {wanted.net_write_timeout_s}")
    yield Query(f"SET @master_heartbeat_period = {round(wanted.heartbeat_s * NANOSECONDS)}")
    yield Query("SET @master_binlog_checksum = @@global.binlog_checksum")
    checksum = _checksum((yield Query("SELECT @master_binlog_checksum")))
    yield Query(f"SET @mariadb_slave_capability = {CAPABILITY_GTID}")
    if wanted.place is None:
        yield Query(f"SET @slave_connect_state = '{wanted.position}'")
    yield Query(f"SET @slave_gtid_strict_mode = {int(wanted.strict_mode)}")
    yield Query(f"SET @slave_gtid_ignore_duplicates = {int(wanted.ignore_duplicates)}")
    yield Send(com_register_slave(wanted.server_id, host=wanted.report_host))
    enabled = False
    if wanted.semi_sync:
        enabled = yield from _ask_semi_sync()
    flags = DumpFlag.SEND_ANNOTATE_ROWS if wanted.annotate else DumpFlag(0)
    file, position = wanted.place or BinlogPosition("", FIRST_POSITION)
    yield Send(com_binlog_dump(wanted.server_id, flags=flags, file=file, position=position), replies=False)
    return Registered(checksum, wanted.semi_sync, enabled)


def _checksum(rows: Rows) -> ChecksumAlgorithm:
    announced = rows[0][0] if rows else None
    # Any text but NONE makes the server send checksums if its log has them (sql/sql_repl.cc:
    # get_binlog_checksum_value_at_connect).
    return ChecksumAlgorithm.NONE if announced in (None, "NONE") else ChecksumAlgorithm.CRC32


def _ask_semi_sync() -> Steps[bool]:
    """Request semi-sync headers and the right to acknowledge; return whether commits wait for acknowledgements now.

    The server reads the variable once, as the dump starts (sql/semisync_master.cc: dump_start).
    """
    rows = yield Query(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ('{SEMI_SYNC_VARIABLE}', '{ENGINE_VARIABLE}')")
    variables = {(name or "").lower(): value or "" for name, value in rows}
    if SEMI_SYNC_VARIABLE not in variables:
        raise PrerequisiteError(
            "semi_sync is asked for, but this server has no semi-synchronous replication.",
            hint=f"Turn semi_sync off, or use a primary with {SEMI_SYNC_VARIABLE}.",
        )
    if variables.get(ENGINE_VARIABLE):
        raise PrerequisiteError(
            f"semi_sync is asked for, but this server keeps its binlog in the storage engine "
            f"{variables[ENGINE_VARIABLE]}, where it has no semi-synchronous replication.",
            hint=f"Turn semi_sync off, or start the server without {ENGINE_VARIABLE}.",
        )
    yield Query("SET @rpl_semi_sync_slave = 1")
    return variables[SEMI_SYNC_VARIABLE].upper() in ("ON", "1")
