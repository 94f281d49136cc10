"""Layout of the deframe kernel's state, which lives from one chunk of a stream to the next.

The kernel loads and stores at `state + Cell.group`, and Python accesses `state[Cell.group]` between two calls. The
state is memory at an address and no array. Arrays passed between functions are reference counted, which takes half of
the kernel's time on small events (measured).
"""

from __future__ import annotations

from typing import Final

from replica.native.record import Record, half, unsigned, word

MAX_DOMAINS: Final = 4096  # the state and every index entry have a row per domain, 64 KB in all


class Cell(Record):
    """State of one stream, one int64 per cell."""

    # Properties of the stream, set once by Python.
    framed = word("1: packets of the client/server protocol; 0: bare events, as in a file")
    semi_sync = word("1: two more bytes stand before each event")
    checksum = word("0 none, 1 CRC32, -1 not known before the first FORMAT_DESCRIPTION (the first ROTATE tells)")
    stream_above = word("events longer than this pass through piece by piece, without being gathered in the buffer")
    strict = word("1: a group whose sequence number did not grow within its domain is refused")
    # The current packet and the current streamed event.
    packet_left = word("payload bytes of this packet that have not been seen")
    empty_packet = word("1: the last packet was full (0xFFFFFF) and its event is complete, so an empty one follows")
    event_left = word("bytes of a streamed event still to come; 0 outside")
    event_keep = word("1: they belong to a group and go to the relay file")
    event_crc = word("CRC so far")
    event_crc_left = word("bytes still to be added to it")
    event_type = word("type of the event at hand, also when it is refused")
    event_size = word("its size")
    event_flags = word("flags of its header")
    event_log_pos = word("its log_pos")
    event_timestamp = word("its timestamp")
    event_ack = word("1: the primary waits for an acknowledgement of this event")
    # The open event group.
    group = word("one of `event_row.Group`")
    group_domain = word("domain of its GTID")
    group_server = word("server id of its GTID")
    group_seq = word("sequence number of its GTID, 64 bits without a sign")
    group_xa = word("1: it prepares or ends an XA transaction")
    group_statements = word("changes of rows in it that were logged as statements")
    # Current offsets and positions.
    position = word("64-bit end of the last real event in the primary's file")
    offset = word("relay file offset that the next kept byte gets")
    out = word("address where the next kept byte is put (in the receive buffer, never beyond what was read)")
    committed_offset = word("relay file offset of the end of the last complete group")
    committed_position = word("its position in the primary's file")
    committed_timestamp = word("its time, in seconds")
    committed_out = word("address just after the last complete group put in this call, 0 if there was none")
    ack_position = word("primary position of the last event that wants an acknowledgement, 0 if none does")
    domains = word("rows used in the domain table")
    last_domain = word("row of the last complete group")
    unordered = word("1: a group's sequence number did not grow within its domain (servers without gtid_strict_mode)")
    highest_grew = word("1: a number went back behind a higher one than ever before; Python sets it to 0")
    xa = word("1: since the last index entry a group prepared or ended an XA transaction")
    # Limits for this call.
    roll_at = word("stop at the first group end at or past this relay file offset")
    last_entry = word("relay file offset of the last index entry")
    index_fill = word("bytes in the index arena")
    ends_fill = word("rows in the table of group ends")
    # The place at which the kernel stopped.
    cursor = word("address of the first byte it did not consume")
    event = word("address of the control event, packet or refused event")
    # Addresses and sizes of buffers that live as long as the state, set once by Python.
    window = word("address of the last 16 bytes of a streamed event")
    domain_table = word("address of DomainRow records, a row a domain")
    highest_table = word(
        "address of the highest numbers behind which numbers went back, 8 bytes a row of the domain table"
    )
    index_arena = word("address of the memory for new index entries")
    index_arena_bytes = word("its size")
    ends_table = word("address of GroupEnd records")
    ends_rows = word("how many group ends are wanted in a call, perhaps none")
    # Counters since the creation of the state.
    groups = word("complete groups")
    events = word("events, of whatever kind")
    ignored = word("unknown events outside a group that carry the IGNORABLE flag")
    discarded = word("groups cut by a new GTID or a new file")
    statements = word("changes of rows in complete groups that were logged as statements")


COUNTERS = (Cell.groups, Cell.events, Cell.ignored, Cell.discarded, Cell.statements)
"""Cells that count since the creation of the state."""


class GroupEnd(Record):
    """Group end that a scan returns."""

    offset = word("relay file offset after its last event")
    domain = word("domain of its GTID")
    server = word("server id of its GTID")
    sequence = word("sequence number of its GTID, 64 bits without a sign")
    timestamp = word("seconds, header of the event that ends it")
    position = word("its end in the primary's file")


class DomainRow(Record):
    """Last GTID of a domain, in the state, in index entries and in the head of the log."""

    domain = half("the domain's id")
    server = half("server id of its last GTID")
    sequence = unsigned("sequence number of its last GTID")


class EntryHead(Record):
    """Numbers at the start of an index entry; DomainRow records and a CRC32 follow (index.py)."""

    length = half("the entry's size in bytes, all of it")
    flags = half("what index.py says of the groups since the entry before")
    end = unsigned("relay file offset just after a group")
    primary_position = unsigned("its end in the primary's file")
    timestamp = half("seconds, header of the event that ends it")
    domains = half("how many DomainRow records follow")
    last_domain = half("which of them the group belongs to")


# The state has the address and size of the event concerned (stream_record.py).


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
