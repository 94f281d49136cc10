"""Kernel that processes a chunk of the dump in one pass: packet headers, CRC32, event groups and index entries.

`deframe` takes the bytes between two addresses of the receive buffer (or of a relay file, unframed) and the state
(`Cell`). It moves the bytes of event groups together at `Cell.out`, so that one write stores them. The state records
the end of the last complete group in the buffer, in the relay file and in the primary's file. An incomplete event waits
for the next call. An event longer than `Cell.stream_above`, or split over packets, is streamed in pieces. `deframe`
returns the reason why it stopped (stream_record.py).

It refuses broken framing, wrong CRCs, unknown events without the IGNORABLE flag, INCIDENT, and group events outside a
group. With `Cell.strict` it also refuses a group whose sequence number is not above the last one of its domain, from
any server, as mariadbd does. Everything before the refused event stays in the state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.native.compile import kernel
from replica.native.crc32 import crc32
from replica.native.kernel_group import (
    BEGIN,
    CHECKSUM_BYTES,
    COMPRESSED_STATEMENT,
    CONTROL,
    FLAGS_AT,
    GTID_DOMAIN_AT,
    GTID_FIELDS,
    GTID_FLAGS_AT,
    GTID_SEQUENCE_AT,
    HEADER,
    LENGTH_AT,
    LOAD,
    LOG_POS_AT,
    LOST,
    MYSQL_BEGIN,
    NO_GROUP,
    PAYLOAD,
    REFUSED,
    ROLES,
    SERVER_AT,
    STATEMENT,
    STRANGER,
    TRANSACTION,
    TYPE_AT,
    event_type,
    group_step,
    is_possible,
    is_unreadable,
    may_stand_outside,
)
from replica.native.kernel_statement import defines, is_border
from replica.native.memory import (
    copy,
    load_u1,
    load_u2,
    load_u4,
    load_u8,
    move,
    store_u2,
    store_u4,
    store_u8,
)
from replica.native.memory import load_u8 as get  # a cell of the state
from replica.native.memory import store_u8 as put
from replica.protocol.constants import EventType, GtidFlag, HeaderFlag
from replica.relay_log.kernels import stream_record
from replica.relay_log.kernels.stream_record import MAX_DOMAINS, Cell, DomainRow, EntryHead, GroupEnd

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
# request.
#
# `end_group` takes the address of a stream's state (`Cell`). If a sequence number is not above the last one of its
# domain, all later index entries are marked. The state also keeps the highest number before such a step back.


INDEX_EVERY_BYTES = 64 << 10  # a lookup reads at most this many bytes after an entry
UNORDERED_FLAG = 2  # in an index entry
XA_FLAG = 4
ENTRY_CRC_BYTES = 4
MAX_ENTRY_BYTES = EntryHead.BYTES + DomainRow.BYTES * MAX_DOMAINS + ENTRY_CRC_BYTES

_SIGN = -(1 << 63)  # with this bit inverted, signed numbers sort as unsigned ones


@kernel
def _above(one: int, other: int) -> bool:
    """Return True if `one` is above `other`, as unsigned 64-bit sequence numbers."""
    return (one ^ _SIGN) > (other ^ _SIGN)


@kernel
def _row_of(state: int, domain: int) -> int:
    """Return a domain's row in the table, or the row after the last if there is none; the last group's row is tried
    first.
    """
    domains, count = get(state + Cell.domain_table), get(state + Cell.domains)
    row = get(state + Cell.last_domain)
    if row >= count or load_u4(domains + DomainRow.BYTES * row + DomainRow.domain) != domain:
        row = 0
        while row < count and load_u4(domains + DomainRow.BYTES * row + DomainRow.domain) != domain:
            row += 1
    return row


@kernel
def goes_back(state: int, domain: int, seq: int) -> bool:
    """Return True if a group is not above the last one of its domain."""
    row = _row_of(state, domain)
    last = get(state + Cell.domain_table) + DomainRow.BYTES * row
    return row < get(state + Cell.domains) and not _above(seq, load_u8(last + DomainRow.sequence))


@kernel
def _write_entry(state: int) -> None:
    """Append the index entry for the group that just ended (layout: relay_log/files/index.py)."""
    begin = get(state + Cell.index_arena) + get(state + Cell.index_fill)
    count = get(state + Cell.domains)
    size = EntryHead.BYTES + DomainRow.BYTES * count + ENTRY_CRC_BYTES
    store_u4(begin + EntryHead.length, size)
    store_u4(begin + EntryHead.flags, UNORDERED_FLAG * get(state + Cell.unordered) + XA_FLAG * get(state + Cell.xa))
    store_u8(begin + EntryHead.end, get(state + Cell.committed_offset))
    store_u8(begin + EntryHead.primary_position, get(state + Cell.committed_position))
    store_u4(begin + EntryHead.timestamp, get(state + Cell.committed_timestamp))
    store_u4(begin + EntryHead.domains, count)
    store_u4(begin + EntryHead.last_domain, get(state + Cell.last_domain))
    copy(begin + EntryHead.BYTES, get(state + Cell.domain_table), DomainRow.BYTES * count)
    store_u4(begin + size - ENTRY_CRC_BYTES, crc32(begin, size - ENTRY_CRC_BYTES, 0))
    put(state + Cell.index_fill, get(state + Cell.index_fill) + size)
    put(state + Cell.last_entry, get(state + Cell.committed_offset))
    put(state + Cell.xa, 0)


@kernel
def end_group(state: int, out: int, offset: int) -> int:
    """Add a complete group to the domain table, the index and the group ends; return the reason to stop, or
    NEED_BYTES.
    """
    seq = get(state + Cell.group_seq)
    row, count = _row_of(state, get(state + Cell.group_domain)), get(state + Cell.domains)
    entered = get(state + Cell.domain_table) + DomainRow.BYTES * row
    if row == MAX_DOMAINS:
        return stream_record.TOO_MANY_DOMAINS
    if row == count:
        put(state + Cell.domains, count + 1)
        store_u8(entered + DomainRow.sequence, 0)
    last = load_u8(entered + DomainRow.sequence)
    if not _above(seq, last):
        put(state + Cell.unordered, 1)
        highest = get(state + Cell.highest_table) + 8 * row
        if _above(last, load_u8(highest)):
            store_u8(highest, last)
            put(state + Cell.highest_grew, 1)
    store_u4(entered + DomainRow.domain, get(state + Cell.group_domain))
    store_u4(entered + DomainRow.server, get(state + Cell.group_server))
    store_u8(entered + DomainRow.sequence, seq)
    put(state + Cell.last_domain, row)
    put(state + Cell.xa, get(state + Cell.xa) | get(state + Cell.group_xa))
    put(state + Cell.statements, get(state + Cell.statements) + get(state + Cell.group_statements))
    put(state + Cell.group, NO_GROUP)
    put(state + Cell.groups, get(state + Cell.groups) + 1)
    put(state + Cell.committed_offset, offset)
    put(state + Cell.committed_out, out)
    put(state + Cell.committed_position, get(state + Cell.position))
    put(state + Cell.committed_timestamp, get(state + Cell.event_timestamp))
    reason = stream_record.NEED_BYTES
    rows = get(state + Cell.ends_rows)
    if rows > 0:
        fill = get(state + Cell.ends_fill)
        end = get(state + Cell.ends_table) + GroupEnd.BYTES * fill
        store_u8(end + GroupEnd.offset, offset)
        store_u8(end + GroupEnd.domain, get(state + Cell.group_domain))
        store_u8(end + GroupEnd.server, get(state + Cell.group_server))
        store_u8(end + GroupEnd.sequence, seq)
        store_u8(end + GroupEnd.timestamp, get(state + Cell.event_timestamp))
        store_u8(end + GroupEnd.position, get(state + Cell.position))
        put(state + Cell.ends_fill, fill + 1)
        if fill + 1 == rows:
            reason = stream_record.ENDS_FULL
    if offset - get(state + Cell.last_entry) >= INDEX_EVERY_BYTES:
        _write_entry(state)
        if get(state + Cell.index_arena_bytes) - get(state + Cell.index_fill) < MAX_ENTRY_BYTES:
            reason = stream_record.INDEX_FULL
    return stream_record.ROLL if offset >= get(state + Cell.roll_at) else reason


MAX_REPLY_BYTES = 1 << 16  # an ERR packet has 512 bytes of text; a longer packet is no reply
WINDOW_BYTES = 16  # last bytes of a streamed event: the CRC and the longest text that ends a group

_FULL_PACKET = 0xFFFFFF
_ENDLESS = 1 << 62  # "packet" length of a file
_SEMI_SYNC_MAGIC = 0xEF
_ERR, _EOF, _EOF_BYTES = 0xFF, 0xFE, 9  # an EOF packet is shorter than 9 bytes
_XA = int(GtidFlag.PREPARED_XA | GtidFlag.COMPLETED_XA)
_U32 = 0xFFFFFFFF
_WRAP = 1 << 32

_IN_USE, _ARTIFICIAL = int(HeaderFlag.BINLOG_IN_USE), int(HeaderFlag.ARTIFICIAL)
_QUERY = int(EventType.QUERY)
_ROTATE, _FDE, _HEARTBEAT = int(EventType.ROTATE), int(EventType.FORMAT_DESCRIPTION), int(EventType.HEARTBEAT)


def _live_roles() -> NDArray[np.int64]:
    """Return the roles of events from a MariaDB primary.

    Events that only MySQL writes are strangers. Their groups are refused whatever their flags say. As ignorable events
    inside a group, they would end that group for readers of the relay log.
    """
    roles = ROLES.copy()
    for row in EventType:
        if row.writers.mysql and not row.writers.mariadb:
            roles[row] = REFUSED if row.role in (MYSQL_BEGIN, PAYLOAD) else STRANGER
    return roles


_ROLES = _live_roles()


@kernel
def advance(position: int, size: int, log_pos: int) -> int:
    """Return the 64-bit end of an event from the low 32 bits in its header; without them (0, 11.7+ inside a group), add
    its size.
    """
    if log_pos == 0:
        return position + size
    candidate = (position & ~_U32) | log_pos
    if candidate < position:
        # Either the 32 bits wrapped, or the dump began after the position in the first ROTATE.
        return candidate + _WRAP if position - candidate > _WRAP // 2 else position
    return candidate


@kernel
def _finish(state: int, role: int, size: int, end: int, out: int, offset: int) -> int:
    """Apply the effects of a complete, checked and stored event; `end` is the address after its last body byte.

    For a streamed event, only the last WINDOW_BYTES of its `size` bytes are in memory.
    """
    put(state + Cell.events, get(state + Cell.events) + 1)
    if (get(state + Cell.event_flags) & _ARTIFICIAL) == 0:
        position = advance(get(state + Cell.position), get(state + Cell.event_size), get(state + Cell.event_log_pos))
        put(state + Cell.position, position)
    if get(state + Cell.event_ack):
        put(state + Cell.ack_position, get(state + Cell.position))
    group = get(state + Cell.group)
    left = group_step(group, role, end - size, end)
    if group != NO_GROUP and left == NO_GROUP:
        return end_group(state, out, offset)
    put(state + Cell.group, left)
    return stream_record.NEED_BYTES


@kernel
def _count_statement(state: int, event: int, size: int) -> None:
    """Count a row-changing statement inside a transaction, but no border of it, and no DDL of temporary tables."""
    if get(state + Cell.group) != TRANSACTION:
        return
    if get(state + Cell.event_type) == _QUERY and (is_border(event, event + size) or defines(event, event + size)):
        return
    put(state + Cell.group_statements, get(state + Cell.group_statements) + 1)


@kernel
def _admit(state: int, event: int, size: int, complete: int) -> int:
    """Read a header into the state and decide by type: NEED_BYTES to continue, otherwise the reason to stop.

    Outside groups, the body decides too if it is `complete`, so that a dummy event of an old server is skipped.
    """
    kind = event_type(event)
    put(state + Cell.event, event)
    put(state + Cell.event_size, size)
    put(state + Cell.event_timestamp, load_u4(event))
    put(state + Cell.event_type, kind)
    put(state + Cell.event_log_pos, load_u4(event + LOG_POS_AT))
    put(state + Cell.event_flags, load_u2(event + FLAGS_AT))
    put(state + Cell.event_keep, 0)
    role = _ROLES[kind]
    is_open = get(state + Cell.group) != NO_GROUP
    if is_open and (role == BEGIN or kind == _FDE):
        return stream_record.DISCARD  # a group never spans files, so a new group or file ends an unfinished group
    if is_unreadable(role, event):
        return stream_record.UNKNOWN_EVENT
    if role == LOST:
        return stream_record.INCIDENT
    if role in (CONTROL, BEGIN) or is_open:
        put(state + Cell.event_keep, 0 if role == CONTROL else 1)
        return stream_record.NEED_BYTES
    end = event + HEADER
    if complete:
        end = event + size - (CHECKSUM_BYTES if get(state + Cell.checksum) != 0 else 0)
    if not may_stand_outside(kind, role, event, end):
        return stream_record.ORPHAN
    put(state + Cell.ignored, get(state + Cell.ignored) + 1)
    return stream_record.NEED_BYTES


@kernel
def _verify(state: int, event: int, size: int) -> int:
    """Check the CRC32 of a complete event; return its size (0 or 4), or -1 for a mismatch."""
    body = size - CHECKSUM_BYTES
    if get(state + Cell.event_type) == _FDE:
        # The CRC is computed without the flag that marks an open file (log_event.cc: event_checksum_test).
        store_u2(event + FLAGS_AT, get(state + Cell.event_flags) & ~_IN_USE)
        if load_u1(event + body - 1) == 0:
            # The field always has four bytes. Without checksums in the log, 11.4+ changes the event when a dump starts
            # at a place of its GTID index, and keeps the old value (sql_repl.cc: send_format_descriptor_event).
            return CHECKSUM_BYTES
    elif get(state + Cell.checksum) == 0:
        return 0
    if load_u4(event + body) == crc32(event, body, 0):
        return CHECKSUM_BYTES
    if get(state + Cell.checksum) < 0 and get(state + Cell.event_type) == _ROTATE:
        return 0  # an announced NONE strips the CRC from this one event only (sql_repl.cc: fake_rotate_event)
    return -1


@kernel
def deframe(state: int, begin: int, end: int) -> int:
    """Consume as much of [begin, end) as possible and return the reason for stopping (stream_record.py).

    `state` is the address of the `Cell` record.
    """
    window = get(state + Cell.window)
    cursor, out, offset = begin, get(state + Cell.out), get(state + Cell.offset)
    framed = get(state + Cell.framed) == 1
    prefix = 3 if get(state + Cell.semi_sync) == 1 else 1
    reason = stream_record.NEED_BYTES
    while reason == stream_record.NEED_BYTES:
        if get(state + Cell.event_left) > 0:
            if framed and get(state + Cell.packet_left) == 0:
                if end - cursor < 4:
                    break
                length = load_u4(cursor) & _FULL_PACKET
                expected = min(get(state + Cell.event_left), _FULL_PACKET)
                if length != expected:
                    reason = stream_record.BAD_LENGTH
                    break
                cursor += 4
                put(state + Cell.packet_left, length)
                put(state + Cell.empty_packet, 1 if length == _FULL_PACKET else 0)
            piece = min(end - cursor, get(state + Cell.event_left), get(state + Cell.packet_left))
            if piece == 0:
                break
            checked = min(piece, get(state + Cell.event_crc_left))
            put(state + Cell.event_crc, crc32(cursor, checked, get(state + Cell.event_crc)))
            put(state + Cell.event_crc_left, get(state + Cell.event_crc_left) - checked)
            if piece >= WINDOW_BYTES:
                copy(window, cursor + piece - WINDOW_BYTES, WINDOW_BYTES)
            else:
                move(window, window + piece, WINDOW_BYTES - piece)
                copy(window + WINDOW_BYTES - piece, cursor, piece)
            if get(state + Cell.event_keep):
                if out != cursor:
                    move(out, cursor, piece)
                out += piece
                offset += piece
            cursor += piece
            put(state + Cell.event_left, get(state + Cell.event_left) - piece)
            put(state + Cell.packet_left, get(state + Cell.packet_left) - piece)
            if get(state + Cell.event_left) == 0:
                tail = window + WINDOW_BYTES
                if get(state + Cell.checksum) != 0:
                    tail -= CHECKSUM_BYTES
                    if load_u4(tail) != get(state + Cell.event_crc):
                        reason = stream_record.BAD_CHECKSUM
                        break
                size = get(state + Cell.event_size) - (window + WINDOW_BYTES - tail)
                reason = _finish(state, _ROLES[get(state + Cell.event_type)], size, tail, out, offset)
            continue

        event, in_packet = cursor, _ENDLESS
        if framed:
            if end - cursor < 4:
                break
            length = load_u4(cursor) & _FULL_PACKET
            if get(state + Cell.empty_packet) == 1:
                put(state + Cell.empty_packet, 0)
                cursor += 4
                if length == 0:
                    continue
                reason = stream_record.BAD_LENGTH
                break
            if length > 0 and end - cursor < 5:
                break
            status = load_u1(cursor + 4) if length > 0 else 1
            if status != 0:
                put(state + Cell.event, cursor + 4)
                put(state + Cell.event_size, length)
                if length > MAX_REPLY_BYTES or (status != _ERR and (status != _EOF or length >= _EOF_BYTES)):
                    reason = stream_record.BAD_STATUS
                elif end - cursor >= 4 + length:
                    cursor += 4 + length
                    reason = stream_record.PACKET
                break
            event, in_packet = cursor + 4 + prefix, length - prefix
        if end - event < HEADER:
            if framed and in_packet < HEADER:
                put(state + Cell.event, event)
                put(state + Cell.event_size, in_packet)
                reason = stream_record.BAD_LENGTH
            break
        if framed and prefix == 3 and load_u1(cursor + 5) != _SEMI_SYNC_MAGIC:
            put(state + Cell.event, event)
            put(state + Cell.event_size, in_packet)
            reason = stream_record.BAD_MAGIC
            break
        size = load_u4(event + LENGTH_AT)
        split = framed and in_packet == _FULL_PACKET - prefix
        fits = size == in_packet or (split and size > in_packet) or not framed
        if not is_possible(event, 0) or not fits:
            put(state + Cell.event, event)
            put(state + Cell.event_size, size)
            put(state + Cell.event_type, load_u1(event + TYPE_AT))
            reason = stream_record.BAD_LENGTH
            break
        streamed = end - event < size or split
        if streamed and size <= get(state + Cell.stream_above) and not split:
            break
        verdict = _admit(state, event, size, 0 if streamed else 1)
        if verdict != stream_record.NEED_BYTES:
            reason = verdict
            break
        put(state + Cell.event_ack, 1 if prefix == 3 and load_u1(cursor + 6) & 1 else 0)
        role = _ROLES[get(state + Cell.event_type)]
        if streamed:
            if role == BEGIN or get(state + Cell.checksum) < 0 or get(state + Cell.event_type) in (_ROTATE, _FDE):
                reason = stream_record.BAD_LENGTH
                break
            if role in (STATEMENT, COMPRESSED_STATEMENT, LOAD):
                _count_statement(state, event, 0)  # borders of transactions are too short to be streamed
            put(state + Cell.event_left, size)
            put(state + Cell.packet_left, in_packet)
            put(state + Cell.empty_packet, 1 if split else 0)
            put(state + Cell.event_crc, 0)
            put(state + Cell.event_crc_left, size - CHECKSUM_BYTES if get(state + Cell.checksum) != 0 else 0)
            cursor = event
            continue
        trailer = _verify(state, event, size)
        if trailer < 0:
            reason = stream_record.BAD_CHECKSUM
            break
        body_end = event + size - trailer
        if role == BEGIN:
            if body_end - event < HEADER + GTID_FIELDS:
                reason = stream_record.BAD_LENGTH
                break
            domain, sequence = load_u4(event + GTID_DOMAIN_AT), load_u8(event + GTID_SEQUENCE_AT)
            if get(state + Cell.strict) and goes_back(state, domain, sequence):
                reason = stream_record.OUT_OF_ORDER
                break
            put(state + Cell.group_seq, sequence)
            put(state + Cell.group_domain, domain)
            put(state + Cell.group_server, load_u4(event + SERVER_AT))
            put(state + Cell.group_xa, 1 if load_u1(event + GTID_FLAGS_AT) & _XA else 0)
            put(state + Cell.group_statements, 0)
        elif role in (STATEMENT, COMPRESSED_STATEMENT, LOAD):
            _count_statement(state, event, body_end - event)
        cursor = event + size
        if get(state + Cell.event_keep):
            if out != event:
                move(out, event, size)
                body_end += out - event
            out += size
            offset += size
        if role == CONTROL and get(state + Cell.event_type) in (_FDE, _HEARTBEAT):
            # The positions of these events have another meaning, which Python handles.
            put(state + Cell.events, get(state + Cell.events) + 1)
        else:
            reason = _finish(state, role, size - trailer, body_end, out, offset)
        if role == CONTROL:
            reason = stream_record.CONTROL
    put(state + Cell.cursor, cursor)
    put(state + Cell.out, out)
    put(state + Cell.offset, offset)
    return reason
