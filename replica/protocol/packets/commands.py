"""The commands a replica sends, as packet payloads (without packet header; `packets.pack` adds it, sequence id 0)."""

from __future__ import annotations

import struct
from typing import Final

from replica.errors import ConfigError
from replica.protocol.constants import FIRST_POSITION, Command

MAX_REGISTERED_TEXT: Final = 60
"""The server's HOSTNAME_LENGTH and USERNAME_LENGTH allow more; what we register is short, and longer is a mistake."""

_DUMP: Final = struct.Struct(
    "<"
    "B"  # COM_BINLOG_DUMP
    "I"  # position       ignored in GTID mode
    "H"  # flags          DumpFlag
    "I"  # server_id      of the replica
)


def com_query(sql: str) -> bytes:
    """Build the command that runs a statement."""
    return bytes((Command.QUERY,)) + sql.encode()


def com_register_slave(
    server_id: int, *, host: str = "", user: str = "", password: str = "", port: int = 0, master_id: int = 0
) -> bytes:
    """Build the command that makes the replica visible in SHOW REPLICA HOSTS, where an empty host shows as the
    connection's address.

    `password` is what SHOW REPLICA HOSTS may print to others: never the account's own.
    """
    texts = b"".join(_short_text(name, text) for name, text in (("host", host), ("user", user), ("password", password)))
    rank = 0  # unused by every server, but its bytes must be there
    return b"".join(
        (struct.pack("<BI", Command.REGISTER_SLAVE, server_id), texts, struct.pack("<HII", port, rank, master_id))
    )


def _short_text(name: str, text: str) -> bytes:
    data = text.encode()
    if len(data) > MAX_REGISTERED_TEXT:
        raise ConfigError(f"the {name} to register has {len(data)} bytes; {MAX_REGISTERED_TEXT} is the most")
    return bytes((len(data),)) + data


def com_binlog_dump(server_id: int, *, flags: int = 0, file: str = "", position: int = FIRST_POSITION) -> bytes:
    """Build the command that starts the stream. In GTID mode (@slave_connect_state) file and position are ignored;
    server id 0 never waits.
    """
    return _DUMP.pack(Command.BINLOG_DUMP, position, flags, server_id) + file.encode()
