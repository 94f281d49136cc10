"""Meaning of the ERR packet that ends a dump: its typed error, and a hint.

In: the packet. Out: an error whose type says whether a retry makes sense (only for a DisconnectedError). The server
sends almost all errors as 1236, and only their text differs (sql_repl.cc: mysql_binlog_send, set_read_error).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from replica.errors import (
    AuthenticationError,
    ConfigError,
    DisconnectedError,
    DuplicateServerIdError,
    PositionLostError,
    PositionPurgedError,
    PrerequisiteError,
    ReplicaError,
    ServerError,
)

if TYPE_CHECKING:
    from replica.protocol.packets.packets import ErrPacket


class _Meaning(NamedTuple):
    """One meaning of an ERR packet in a dump: its code, words in its text, our error type, our hint."""

    code: int
    fragment: str
    kind: type[ReplicaError]
    hint: str


_PURGED = "Take a new snapshot and start after it, or start at the server's oldest position and accept the gap."
_DAMAGED = (
    "The primary cannot read its own binlog there: see its error log. Continue with another server or a new snapshot."
)
_GRANT = "GRANT REPLICATION SLAVE ON *.* to the account."
# The first match is used.
MEANINGS = (
    _Meaning(
        4052,
        "",
        DuplicateServerIdError,
        "Another replica uses our server id. Give every replica its own. Reconnecting would only disconnect the "
        "other replica.",
    ),
    _Meaning(1236, "higher sequence numbers", PositionLostError, f"The server has a different history. {_PURGED}"),
    _Meaning(
        1236,
        "not in the master's binlog",
        PositionLostError,
        "The server is behind this position, was reset, or does not belong to the same replication. Check which "
        "server it is.",
    ),
    _Meaning(1236, "Could not find GTID state requested", PositionPurgedError, f"Its binlogs were purged. {_PURGED}"),
    _Meaning(1236, "is missing the GTID", PositionLostError, f"The server's binlog has a hole there. {_PURGED}"),
    _Meaning(1236, "impossible position", PositionLostError, _PURGED),
    _Meaning(1236, "Could not find first log file", PositionLostError, _PURGED),
    _Meaning(1236, "Binary log is not open", PrerequisiteError, "Start the server with log_bin and binlog_format=ROW."),
    _Meaning(1236, "Misconfigured", PrerequisiteError, "Set server_id on the server."),
    _Meaning(1236, "bogus data in log event", ServerError, _DAMAGED),
    _Meaning(1236, "exceeded max_allowed_packet", ServerError, _DAMAGED),
    _Meaning(1236, "I/O error reading log event", ServerError, _DAMAGED),
    _Meaning(1236, "binlog truncated", ServerError, _DAMAGED),
    _Meaning(1236, "did not pass crc check", ServerError, _DAMAGED),
    _Meaning(1236, "decryption failure", ServerError, _DAMAGED),
    _Meaning(1941, "", ConfigError, "Write the position as 0-1-4711,7-2-9."),
    _Meaning(1943, "", ConfigError, "Name each GTID domain once."),
    _Meaning(1045, "", AuthenticationError, _GRANT),
    _Meaning(1227, "", AuthenticationError, _GRANT),
    _Meaning(1053, "", DisconnectedError, ""),  # shutdown in progress
    _Meaning(1317, "", DisconnectedError, ""),  # query interrupted
    _Meaning(1927, "", DisconnectedError, ""),  # connection killed
)


def dump_error(packet: ErrPacket) -> ReplicaError:
    """Return the typed error for an ERR packet that ended a dump."""
    for meaning in MEANINGS:
        if packet.code == meaning.code and meaning.fragment in packet.message:
            text = f"The server ended the dump with error {packet.code}: {packet.message}."
            if issubclass(meaning.kind, ServerError):
                return meaning.kind(text, code=packet.code, sqlstate=packet.sqlstate, hint=meaning.hint)
            return meaning.kind(text, hint=meaning.hint)
    text = f"The server ended the dump with error {packet.code}: {packet.message}."
    return ServerError(text, code=packet.code, sqlstate=packet.sqlstate)
