"""The CRC32 at the end of an event: check it and strip it, or append it.

The FORMAT_DESCRIPTION event of a file decides whether its events have a checksum; never guess. The FORMAT_DESCRIPTION
event itself always has the four bytes, even if it announces that the rest of the file has no checksums.

Source: the server's sql/log_event.cc (event_checksum_test, get_checksum_alg), 10.11 and 11.8; measured on the binlogs
of 10.5, 10.11 and 11.8 in tests/vectors.
"""

from __future__ import annotations

from zlib import crc32

from replica.errors import ChecksumError, TruncatedError
from replica.protocol.constants import (
    CHECKSUM_LENGTH,
    FLAGS_AT,
    HEADER_LENGTH,
    TYPE_AT,
    ChecksumAlgorithm,
    EventType,
    HeaderFlag,
)


def event_crc32(data: memoryview) -> int:
    """Return the CRC32 of an event. `data` is the event without its last four bytes.

    For a FORMAT_DESCRIPTION event, BINLOG_IN_USE counts as cleared. The server sets that flag in its open file, and
    clears it at close without a new checksum (sql/log_event.cc: event_checksum_test, 10.11 and 11.8).
    """
    if data[TYPE_AT] != EventType.FORMAT_DESCRIPTION:
        return crc32(data)
    flags = data[FLAGS_AT] & ~HeaderFlag.BINLOG_IN_USE
    return crc32(data[FLAGS_AT + 1 :], crc32(bytes((flags,)), crc32(data[:FLAGS_AT])))


def strip(event: memoryview, algorithm: int) -> memoryview:
    """Check the checksum of an event and return the event without it. With NONE, return the event unchanged.

    Raises:
        TruncatedError: the event is too short to have a checksum.
        ChecksumError: the checksum does not match.
    """
    if algorithm == ChecksumAlgorithm.NONE:
        return event
    if len(event) < HEADER_LENGTH + CHECKSUM_LENGTH:
        raise TruncatedError(f"an event with a checksum has at least 23 bytes, this has {len(event)}", offset=0)
    content = event[:-CHECKSUM_LENGTH]
    stored, computed = int.from_bytes(event[-CHECKSUM_LENGTH:], "little"), event_crc32(content)
    if stored != computed:
        raise ChecksumError(
            f"event does not match its checksum: stored {stored:08x}, computed {computed:08x}",
            offset=0,
            hint="The bytes changed on the way or on disk; read the same position again, then check memory and disks.",
        )
    return content


def append(content: bytes) -> bytes:
    """Append the CRC32 to an event. The `event_length` in its header must include these four bytes."""
    return content + event_crc32(memoryview(content)).to_bytes(CHECKSUM_LENGTH, "little")
