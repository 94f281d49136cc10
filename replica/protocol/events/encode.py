"""Encoders of the events that we write into relay files: an artificial ROTATE with the primary's file, and a GTID_LIST.

Out: whole events with header and, if requested, CRC32. They equal the server's own events byte for byte, so that
MariaDB's tools can read the files. The encoders compute the lengths; the caller, who knows the file, gives `log_pos`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from replica.protocol import checksum as checksums
from replica.protocol.constants import CHECKSUM_LENGTH, HEADER_LENGTH, ChecksumAlgorithm, EventType, HeaderFlag
from replica.protocol.header import HEADER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replica.protocol.gtid import Gtid

_GTID = struct.Struct(
    "<"
    "I"  # domain_id
    "I"  # server_id
    "Q"  # seq_no
)


def encode_event(
    event_type: int,
    body: bytes,
    *,
    server_id: int,
    checksum: ChecksumAlgorithm,
    timestamp: int = 0,
    log_pos: int = 0,
    flags: int = 0,
) -> bytes:
    """Encode one event. `log_pos` may be a 64-bit position; the header keeps its low 32 bits."""
    has_checksum = checksum == ChecksumAlgorithm.CRC32
    length = HEADER_LENGTH + len(body) + (CHECKSUM_LENGTH if has_checksum else 0)
    event = HEADER.pack(timestamp, event_type, server_id, length, log_pos & 0xFFFFFFFF, flags) + body
    return checksums.append(event) if has_checksum else event


def encode_rotate(
    file: str,
    position: int,
    *,
    server_id: int,
    checksum: ChecksumAlgorithm,
    timestamp: int = 0,
    log_pos: int = 0,
    flags: int = HeaderFlag.ARTIFICIAL,
) -> bytes:
    """Encode a ROTATE event, which names the file and the offset of the events after it.

    By default the event is artificial, like the one with which a dump starts.
    """
    body = struct.pack("<Q", position) + file.encode()
    return encode_event(
        EventType.ROTATE,
        body,
        server_id=server_id,
        checksum=checksum,
        timestamp=timestamp,
        log_pos=log_pos,
        flags=flags,
    )


def encode_gtid_list(
    gtids: Iterable[Gtid],
    *,
    server_id: int,
    checksum: ChecksumAlgorithm,
    timestamp: int = 0,
    log_pos: int = 0,
    flags: int = 0,
) -> bytes:
    """Encode a GTID_LIST event, the binlog state at this place of the file.

    A `GtidPosition` is an iterable of GTIDs.
    """
    entries = [_GTID.pack(*gtid) for gtid in gtids]
    # The server refuses a GTID_LIST that is shorter than a GTID event of version 10.0. An empty list is padded by 2
    # bytes.
    body = struct.pack("<I", len(entries)) + (b"".join(entries) or b"\0\0")
    return encode_event(
        EventType.GTID_LIST,
        body,
        server_id=server_id,
        checksum=checksum,
        timestamp=timestamp,
        log_pos=log_pos,
        flags=flags,
    )
