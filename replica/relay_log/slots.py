"""Names for the kernel's state: 64-bit cells that live from one chunk to the next, and why the kernel stopped.

A slot is the cell's byte offset: the kernel loads and stores at `state + SLOT`, Python reads and writes the same cell
between two calls. Plain integers, because numba freezes them; an area at an address and no array, because arrays that
are handed from function to function are counted references (measured: half of the kernel's time on small events).
"""

from __future__ import annotations

# What the stream is (set once by Python).
FRAMED = 0 * 8  # 1: packets of the client/server protocol; 0: bare events, as in a file
SEMI_SYNC = 1 * 8  # 1: two more bytes stand before each event
CHECKSUM = 2 * 8  # 0 none, 1 CRC32, -1 not known before the first FORMAT_DESCRIPTION (the first ROTATE tells)
STREAM_ABOVE = 3 * 8  # events longer than this pass through piece by piece, without being gathered in the buffer
STRICT = 49 * 8  # 1: a group whose sequence number did not grow within its domain is refused

# The packet and the streamed event we are inside of.
PACKET_LEFT = 4 * 8  # payload bytes of this packet that have not been seen
EMPTY_PACKET = 5 * 8  # 1: the last packet was full (0xFFFFFF) and its event is complete, so an empty one follows
EVENT_LEFT = 6 * 8  # bytes of a streamed event still to come; 0 outside
EVENT_KEEP = 7 * 8  # 1: they belong to a group and go to the relay file
EVENT_CRC = 8 * 8  # CRC so far
EVENT_CRC_LEFT = 9 * 8  # bytes still to be added to it
EVENT_TYPE = 10 * 8  # of the event at hand, also when it is refused
EVENT_SIZE = 11 * 8
EVENT_FLAGS = 12 * 8
EVENT_LOG_POS = 13 * 8
EVENT_TIMESTAMP = 14 * 8
EVENT_ACK = 15 * 8  # 1: the primary waits for an acknowledgement of this event

# The open event group.
GROUP = 16 * 8  # one of the GROUP_ values
GROUP_DOMAIN = 17 * 8
GROUP_SERVER = 18 * 8
GROUP_SEQ = 19 * 8
GROUP_XA = 47 * 8  # 1: it prepares or ends an XA transaction
GROUP_STATEMENTS = 53 * 8  # changes of rows in it that were logged as statements

# Where we are.
POSITION = 20 * 8  # 64-bit end of the last real event in the primary's file
OFFSET = 21 * 8  # relay file offset that the next kept byte gets
OUT = 22 * 8  # address where the next kept byte is put (in the receive buffer, never beyond what was read)
COMMITTED_OFFSET = 23 * 8  # relay file offset, primary position and time of the last complete group
COMMITTED_POSITION = 24 * 8
COMMITTED_TIMESTAMP = 25 * 8
COMMITTED_OUT = 26 * 8  # address just after the last complete group put in this call, 0 if there was none
ACK_POSITION = 27 * 8  # primary position of the last event that wants an acknowledgement, 0 if none does
DOMAINS = 28 * 8  # rows used in the domain table
LAST_DOMAIN = 29 * 8  # row of the last complete group
UNORDERED = 30 * 8  # 1: a group's sequence number did not grow within its domain (servers without gtid_strict_mode)
HIGHEST_GREW = 51 * 8  # 1: so it was, behind a higher number than ever before; Python takes it away
XA = 48 * 8  # 1: since the last index entry a group prepared or ended an XA transaction

# Limits for this call.
ROLL_AT = 31 * 8  # stop at the first group end at or past this relay file offset
LAST_ENTRY = 32 * 8  # relay file offset of the last index entry
INDEX_FILL = 33 * 8  # bytes in the index arena
ENDS_FILL = 34 * 8  # rows in the table of group ends

# Where the kernel stopped.
CURSOR = 35 * 8  # address of the first byte it did not consume
EVENT = 36 * 8  # address of the control event, packet or refused event

# Buffers that live as long as the state: addresses and sizes, set once by Python.
WINDOW = 41 * 8  # the last 16 bytes of a streamed event
DOMAIN_TABLE = 42 * 8  # 16 bytes a row
HIGHEST_TABLE = 50 * 8  # 8 bytes a row of the domain table: the highest number behind which its numbers went back
INDEX_ARENA = 43 * 8
INDEX_ARENA_BYTES = 44 * 8
ENDS_TABLE = 45 * 8  # END_COLUMNS cells a row
ENDS_ROWS = 46 * 8  # how many group ends are wanted in a call, perhaps none

# Counters since the state was made.
GROUPS = 37 * 8
EVENTS = 38 * 8
IGNORED = 39 * 8  # unknown events outside a group that carry the IGNORABLE flag
DISCARDED = 40 * 8  # groups cut by a new GTID or a new file
STATEMENTS = 52 * 8  # changes of rows in complete groups that were logged as statements
COUNTERS = (GROUPS, EVENTS, IGNORED, DISCARDED, STATEMENTS)

AREA_BYTES = 54 * 8

# Values of GROUP.
GROUP_NONE, GROUP_TRANSACTION, GROUP_STANDALONE = 0, 1, 2

# Columns of the table of group ends, and a row of the domain table.
END_OFFSET, END_DOMAIN, END_SERVER, END_SEQ, END_TIMESTAMP, END_POSITION = range(6)
END_COLUMNS = 6
DOMAIN_ROW_BYTES = 16  # domain 4, server 4, sequence number 8, as in an index entry

# Why the kernel stopped. The first group is the ordinary course, the second are errors at EVENT.
NEED_BYTES = 0
CONTROL = 1  # a complete event that is no part of a group: EVENT, EVENT_SIZE
PACKET = 2  # a complete packet that holds no event (ERR, EOF): EVENT, EVENT_SIZE
DISCARD = 3  # a GTID or a new file while a group is open; the event was not consumed
ROLL = 4  # a group ended at or past ROLL_AT
INDEX_FULL = 5
ENDS_FULL = 6
BAD_STATUS = 20
BAD_MAGIC = 21
BAD_LENGTH = 22
BAD_CHECKSUM = 23
UNKNOWN_EVENT = 24
INCIDENT = 25
ORPHAN = 26  # an event that belongs into a group stands outside of one
TOO_MANY_DOMAINS = 27
OUT_OF_ORDER = 28  # a GTID event at EVENT whose number is not above the last one of its domain
