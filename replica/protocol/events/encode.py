"""Events we write ourselves into relay files: an artificial ROTATE that names the primary's file, and a GTID_LIST.

Out: whole events, header and (if asked) CRC32 included, byte for byte what the server would write, so that MariaDB's
own tools read the files. Lengths are computed here; `log_pos` is the caller's, who knows the file.
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
    """Encode one event; `log_pos` may be any 64-bit position and is cut to the 32 bits the header has."""
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
    """Encode a ROTATE, by default the artificial form a dump starts with: "what follows is `file` from `position`"."""
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
    """Encode the binlog state at this place of the file. A `GtidPosition` is an iterable of GTIDs."""
    entries = [_GTID.pack(*gtid) for gtid in gtids]
    # The server refuses a GTID_LIST shorter than a GTID event of version 10.0: an empty one gets two bytes more.
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
