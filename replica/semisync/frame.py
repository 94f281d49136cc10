"""Semi-synchronous replication on the wire: the two bytes before each event, and the acknowledgement.

A connection that set @rpl_semi_sync_slave gets `EF flag` between the status byte and every event of its dump, even
while the primary's semi-sync is off. Other connections never get these bytes. An event may itself begin with EF, so the
request decides about the form; never detect it from the bytes.

Source: the server's sql/semisync_master.cc (dump_start, reserve_sync_header, update_sync_header, report_reply_packet)
of 10.11 and 11.8, which agree; measured on both.
"""

from __future__ import annotations

import functools
from typing import Final

from replica.errors import ProtocolError
from replica.protocol.packets.packets import pack

MAGIC: Final = 0xEF
ACK_WANTED: Final = 0x01
HEADER_LENGTH: Final = 2
MAX_FILE_NAME: Final = 512
"""FN_REFLEN. The primary ignores a reply that is longer than this plus 10 bytes, and logs an error."""


def strip(content: memoryview) -> tuple[memoryview, bool]:
    """Split a payload, without its status byte, into the event and True if the primary waits for an acknowledgement.

    Raises:
        ProtocolError: the semi-sync header is missing.
    """
    if len(content) < HEADER_LENGTH or content[0] != MAGIC:
        raise ProtocolError(
            "an event arrived without the semi-sync header that every event of this connection has",
            offset=0,
            hint="Was @rpl_semi_sync_slave set before the dump started?",
        )
    return content[HEADER_LENGTH:], bool(content[1] & ACK_WANTED)


def ack_packet(file: str, position: int) -> bytes:
    """Return the packet that acknowledges everything up to `position` of the primary's `file`.

    Send it in ONE write: the primary waits 1 ms for the rest of a reply that it has begun to read
    (semisync_master_ack_receiver.cc: run). Its sequence id is always 0, because with another id the primary stops
    listening.

    Args:
        file: base name from the last ROTATE. The primary treats a name with a path as an older file.
        position: end of a received event. A later position would make the primary report lost transactions as safe.
    """
    begin, name = _around_position(file)
    return begin + position.to_bytes(8, "little") + name


@functools.lru_cache(maxsize=2)  # the current file, and the one before it
def _around_position(file: str) -> tuple[bytes, bytes]:
    """Return the packet's bytes before and after the position.

    They are cached because they are the same for a whole file, and a client's COMMIT waits for the packet.
    """
    name = file.encode()
    if not 0 < len(name) <= MAX_FILE_NAME or b"/" in name or b"\0" in name:
        raise ProtocolError(f"{file!r} is not the base name of a binlog file")
    return pack(bytes((MAGIC,)) + bytes(8) + name, sequence_id=0)[:5], name
