"""Commands that a replica sends, as payloads without packet header (`packets.pack` adds it, with sequence id 0)."""

from __future__ import annotations

import struct
from typing import Final

from replica.errors import ConfigError
from replica.protocol.constants import FIRST_POSITION, Command

MAX_REGISTERED_TEXT: Final = 60
"""Maximum length in bytes of a text that we register. The server's HOSTNAME_LENGTH and USERNAME_LENGTH allow more, but
a longer text is a mistake.
"""

_DUMP: Final = struct.Struct(
    "<"
    "B"  # COM_BINLOG_DUMP
    "I"  # position       ignored in GTID mode
    "H"  # flags          DumpFlag
    "I"  # server_id      of the replica
)


def com_query(sql: str) -> bytes:
    """Return the COM_QUERY payload that runs a statement."""
    return bytes((Command.QUERY,)) + sql.encode()


def com_register_slave(
    server_id: int, *, host: str = "", user: str = "", password: str = "", port: int = 0, master_id: int = 0
) -> bytes:
    """Return the COM_REGISTER_SLAVE payload, which makes the replica visible in SHOW REPLICA HOSTS.

    Args:
        server_id: server id of the replica.
        host: name to show; if it is empty, the server shows the address of the connection.
        user: user to show.
        password: password to show. SHOW REPLICA HOSTS may print it to others, so never pass the account's own.
        port: port to show.
        master_id: server id of the primary; 0 if unknown.

    Raises:
        ConfigError: a text is longer than MAX_REGISTERED_TEXT.
    """
    texts = b"".join(_short_text(name, text) for name, text in (("host", host), ("user", user), ("password", password)))
    rank = 0  # unused by every server, but its bytes must be sent
    return b"".join(
        (struct.pack("<BI", Command.REGISTER_SLAVE, server_id), texts, struct.pack("<HII", port, rank, master_id))
    )


def _short_text(name: str, text: str) -> bytes:
    data = text.encode()
    if len(data) > MAX_REGISTERED_TEXT:
        raise ConfigError(f"the {name} to register has {len(data)} bytes; at most {MAX_REGISTERED_TEXT} are allowed")
    return bytes((len(data),)) + data


def com_binlog_dump(server_id: int, *, flags: int = 0, file: str = "", position: int = FIRST_POSITION) -> bytes:
    """Return the COM_BINLOG_DUMP payload, which starts the stream.

    In GTID mode (@slave_connect_state) the server ignores `file` and `position`. With `server_id` 0 the server never
    waits for more events.
    """
    return _DUMP.pack(Command.BINLOG_DUMP, position, flags, server_id) + file.encode()
