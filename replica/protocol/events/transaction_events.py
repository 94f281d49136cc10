"""GTID, GTID_LIST, and the events that end a transaction: XID and XA_PREPARE.

A GTID event opens an event group. Its fields after the flags are optional and independent of each other. Newer servers
add fields after a flag in `flags_extra` and pad with zeros, at times with thousands of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from replica.errors import ProtocolError
from replica.protocol.constants import GtidExtraFlag, GtidFlag, GtidListFlag
from replica.protocol.gtid import Gtid, GtidPosition
from replica.protocol.header import Event

if TYPE_CHECKING:
    from replica.protocol.header import EventHeader, FormatDescriptionEvent
    from replica.protocol.wire import Cursor

_MAX_XID_PART: Final = 64
"""Maximum bytes of gtrid and of bqual (MAXGTRIDSIZE and MAXBQUALSIZE of the XA specification)."""
_ENDS_ALTER: Final = GtidExtraFlag.COMMIT_ALTER | GtidExtraFlag.ROLLBACK_ALTER


@dataclass(frozen=True, slots=True)
class XaId:
    """Id of a distributed transaction. Equal ids connect an XA PREPARE with its XA COMMIT or ROLLBACK."""

    format_id: int
    gtrid: bytes
    bqual: bytes


@dataclass(frozen=True, slots=True)
class GtidEvent(Event):
    gtid: Gtid
    flags2: int
    commit_id: int | None
    """Groups with the same commit_id were committed together on the primary."""
    xa: XaId | None
    flags_extra: int
    extra_engines: int | None
    start_alter_seq_no: int | None
    """Sequence number of the START ALTER that a COMMIT ALTER or ROLLBACK ALTER ends."""
    thread_id: int | None
    """Id of the connection that wrote the group (11.5+)."""

    @property
    def is_standalone(self) -> bool:
        return bool(self.flags2 & GtidFlag.STANDALONE)


@dataclass(frozen=True, slots=True)
class GtidListEvent(Event):
    """The binlog state at the start of a file, with one entry for each (domain, server id).

    Never resume from an artificial GTID_LIST: it holds the state up to which the dump thread has scanned.
    """

    flags: int
    gtids: tuple[Gtid, ...]

    @property
    def until_reached(self) -> bool:
        return bool(self.flags & GtidListFlag.UNTIL_REACHED)

    @property
    def position(self) -> GtidPosition:
        """The last entry of each domain, which is its current GTID."""
        return GtidPosition.last_of(self.gtids)


@dataclass(frozen=True, slots=True)
class XidEvent(Event):
    """Commit of the open group."""

    xid: int


@dataclass(frozen=True, slots=True)
class XaPrepareEvent(Event):
    """End of the open group of a prepared transaction. With `one_phase` the transaction is committed."""

    one_phase: bool
    xa: XaId


def decode_gtid(header: EventHeader, body: Cursor, _description: FormatDescriptionEvent) -> GtidEvent:
    seq_no, domain_id, flags2 = body.u64(), body.u32(), body.u8()
    commit_id = body.u64() if flags2 & GtidFlag.GROUP_COMMIT_ID else None
    xa = None
    if flags2 & (GtidFlag.PREPARED_XA | GtidFlag.COMPLETED_XA):
        xa = _xa_id(body, body.u32(), body.u8(), body.u8())
    extra = body.u8() if body else 0
    return GtidEvent(
        header,
        Gtid(domain_id, header.server_id, seq_no),
        flags2,
        commit_id,
        xa,
        extra,
        body.u8() if extra & GtidExtraFlag.MULTI_ENGINE else None,
        body.u64() if extra & _ENDS_ALTER else None,
        body.u32() if extra & GtidExtraFlag.THREAD_ID else None,
    )


def _xa_id(body: Cursor, format_id: int, gtrid_length: int, bqual_length: int) -> XaId:
    if gtrid_length > _MAX_XID_PART or bqual_length > _MAX_XID_PART:
        raise ProtocolError(
            f"XA id with parts of {gtrid_length} and {bqual_length} bytes; at most 64 are allowed", offset=body.offset
        )
    return XaId(format_id, bytes(body.take(gtrid_length)), bytes(body.take(bqual_length)))


def decode_gtid_list(header: EventHeader, body: Cursor, _description: FormatDescriptionEvent) -> GtidListEvent:
    word = body.u32()
    count, flags = word & 0x0FFFFFFF, word & 0xF0000000
    with body.restrict(count * 16):
        # Evaluation order is the order on the wire: domain, server, sequence number.
        gtids = tuple(Gtid(body.u32(), body.u32(), body.u64()) for _ in range(count))
    # The bytes after the entries are the padding of an empty list.
    return GtidListEvent(header, flags, gtids)


def decode_xid(header: EventHeader, body: Cursor, _description: FormatDescriptionEvent) -> XidEvent:
    return XidEvent(header, body.u64())


def decode_xa_prepare(header: EventHeader, body: Cursor, _description: FormatDescriptionEvent) -> XaPrepareEvent:
    return XaPrepareEvent(header, *read_xa_prepare(body))


def read_xa_prepare(body: Cursor) -> tuple[bool, XaId]:
    """Return whether the transaction is committed at once (one phase), and its id."""
    one_phase = bool(body.u8())
    # Unlike in the GTID event, both lengths have four bytes here.
    return one_phase, _xa_id(body, body.u32(), body.u32(), body.u32())
