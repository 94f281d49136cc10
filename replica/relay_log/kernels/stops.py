"""Reasons why the deframe kernel stopped. Below BAD_STATUS they are normal; from BAD_STATUS on they are errors.

The state has the address and size of the event concerned (stream_record.py).
"""

from __future__ import annotations

from typing import Final

NEED_BYTES: Final = 0
CONTROL: Final = 1  # a complete event outside groups
PACKET: Final = 2  # a complete packet without an event (ERR, EOF)
DISCARD: Final = 3  # a GTID or a new file while a group is open; the event was not consumed
ROLL: Final = 4  # a group ended at or after the offset at which a new file begins
INDEX_FULL: Final = 5
ENDS_FULL: Final = 6
BAD_STATUS: Final = 20
BAD_MAGIC: Final = 21
BAD_LENGTH: Final = 22
BAD_CHECKSUM: Final = 23
UNKNOWN_EVENT: Final = 24
INCIDENT: Final = 25
ORPHAN: Final = 26  # an event that belongs to a group, outside a group
TOO_MANY_DOMAINS: Final = 27
OUT_OF_ORDER: Final = 28  # a GTID event whose number is not above the last one of its domain
