from __future__ import annotations

import pytest

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
from replica.handshake.start.dump_error import dump_error
from replica.protocol.packets.packets import ErrPacket

NOT_IN_BINLOG = "Error: connecting slave requested to start from GTID 0-1-9, which is not in the master's binlog"
DIVERGED = (
    f"{NOT_IN_BINLOG}. Since the master's binlog contains GTIDs with higher sequence numbers, it probably means that "
    "the slave has diverged due to executing extra erroneous transactions"
)
PURGED = (
    "Could not find GTID state requested by slave in any binlog files. Probably the slave state is too old and "
    "required binlog files have been purged."
)
HOLE = (
    "The binlog on the master is missing the GTID 0-1-5 requested by the slave (even though both a prior and a "
    "subsequent sequence number does exist), and GTID strict mode is enabled"
)
SAME_ID = "A slave with the same server_uuid/server_id is already connected; the first event '.'"


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        (4052, SAME_ID, DuplicateServerIdError),
        (1236, NOT_IN_BINLOG, PositionLostError),
        (1236, DIVERGED, PositionLostError),
        (1236, PURGED, PositionPurgedError),
        (1236, HOLE, PositionLostError),
        (1236, "Binary log is not open", PrerequisiteError),
        (1236, "bogus data in log event; the first event 'bin.000001' at 4", ServerError),
        (1236, "something new", ServerError),
        (1941, "Could not parse GTID list", ConfigError),
        (1943, "GTID 0-11-2 and 0-11-1 conflict (duplicate domain id 0)", ConfigError),
        (1045, "Access denied for user 'x'@'y' (using password: YES)", AuthenticationError),
        (1227, "Access denied; you need (at least one of) the REPLICATION SLAVE privilege(s)", AuthenticationError),
        (1927, "Connection was killed", DisconnectedError),
        (1317, "Query execution was interrupted", DisconnectedError),
        (9999, "unheard of", ServerError),
    ],
)
def test_what_an_error_packet_means(code: int, text: str, kind: type[ReplicaError]) -> None:
    error = dump_error(ErrPacket(code, "HY000", text))
    assert type(error) is kind
    assert text in str(error)
    assert ".." not in str(error)  # the server ends some of its sentences itself
    if isinstance(error, ServerError):
        assert (error.code, error.sqlstate) == (code, "HY000")
