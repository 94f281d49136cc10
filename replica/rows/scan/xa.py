"""XA transactions in a scanned range: rows that one group prepared are delivered at the XA COMMIT, in another group.

MariaDB logs the rows of an XA transaction at XA PREPARE, in a group that ends with XA_PREPARE. These rows are not
committed, and may be rolled back later. A later group contains only `XA COMMIT` or `XA ROLLBACK`; other groups, other
files and a server restart may lie between. Both groups identify the transaction by its XA id (format, gtrid, bqual).

`deliver` returns scans whose rows events are in order of delivery. Each event belongs to the group that committed it,
so its rows have the GTID, time and ordinals of the XA COMMIT. Events of prepared groups that are rolled back or still
open are dropped. An XA id may be reused after its transaction ended. If it is prepared again without an end (the server
lost it in a crash), the later rows count. `XA COMMIT ... ONE PHASE` is logged as an ordinary transaction. An XA COMMIT
whose rows are missing is an error, unless the caller collects them.
"""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from replica.errors import DataLossError, ProtocolError
from replica.native.arrays import address
from replica.protocol.compression import inflate
from replica.protocol.constants import BINLOG_MAGIC, CHECKSUM_LENGTH, HEADER_LENGTH, TYPE_AT, EventType
from replica.protocol.events.transaction_events import XaId, read_xa_prepare
from replica.protocol.gtid import Gtid
from replica.protocol.wire import Cursor
from replica.rows.scan.kernels.kernel_search import XaRecord, find_xa
from replica.rows.scan.scan import Bytes, Scan, as_bytes, scan
from replica.rows.scan.windows import search

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from replica.native.record import Records
    from replica.rows.scan.windows import Passed

_HEADER: Final = struct.Struct("<4xBII")  # type, server id, length
_MARIADB_GTID: Final = struct.Struct("<QI")  # sequence number, domain
_QUERY: Final = struct.Struct("<8xB2xH")  # lengths of the database name and of the status variables
_MYSQL_NUMBER_AT: Final = 17  # in GTID_LOG, after flags and uuid
FIRST_FOUND: Final = 64
MAX_TEXT: Final = 1 << 10  # an XA COMMIT with the longest id has 300 bytes; a larger compressed block is damaged
_TEXT: Final = re.compile(rb"XA (COMMIT|ROLLBACK) X'([0-9A-Fa-f]*)',\s*X'([0-9A-Fa-f]*)',\s*(-?\d{1,20})\s*")


class XaAction(Enum):
    """Actions of a group on an XA transaction."""

    PREPARE = "prepare"
    COMMIT = "commit"
    ROLLBACK = "rollback"


class XaGroup(NamedTuple):
    """An event group that prepares or ends an XA transaction: bytes [start, end) of its range."""

    xid: XaId
    action: XaAction
    gtid: Gtid
    start: int
    end: int
    number: int  # number of the group in the scan, -1 without a scan


class CarriedGroup(NamedTuple):
    """Bytes of a group that was prepared before a range and commits in it."""

    data: Bytes
    checksum: bool


class _Prepared(NamedTuple):
    """Location of the rows events of a prepared group."""

    found: Scan
    first: int
    last: int


def find_xa_groups(data: Bytes, *, checksum: bool, on_progress: Passed | None = None) -> list[XaGroup]:
    """Find the groups of a range that prepare or end an XA transaction, from the event headers alone.

    `number` is -1, because groups are not counted. `on_progress` is called with the offset up to which the search has
    walked.

    Raises:
        ProtocolError: An event is truncated, or does not contain a valid XA id.
    """
    buffer = as_bytes(data)
    start = len(BINLOG_MAGIC) if buffer[: len(BINLOG_MAGIC)].tobytes() == BINLOG_MAGIC else 0
    return _found(buffer, start, CHECKSUM_LENGTH if checksum else 0, on_progress)


def xa_groups(found: Scan) -> list[XaGroup]:
    """List the XA groups of a scan, with their numbers."""
    if not found.xa_groups:
        return []
    first = len(BINLOG_MAGIC) if found.data[: len(BINLOG_MAGIC)].tobytes() == BINLOG_MAGIC else 0
    last = int(found.groups[-1]["end"])  # the scan may have stopped at an event that cannot be skipped
    groups = _found(found.data[:last], first, found.trailer)
    numbers = {start: number for number, start in enumerate(found.groups["start"].tolist())}
    try:
        return [group._replace(number=numbers[group.start]) for group in groups]
    except KeyError as error:
        raise ProtocolError("an XA event does not belong to the group that contains it", offset=error.args[0]) from None


def _found(data: npt.NDArray[np.uint8], start: int, trailer: int, on_progress: Passed | None = None) -> list[XaGroup]:
    records = np.empty(FIRST_FOUND, XaRecord.dtype)

    def find(memory: int, size: int, state: int) -> int:
        return find_xa(memory, size, state, address(records), len(records))

    while True:
        count = search(data, start, trailer, find, on_progress)
        if count <= len(records):
            groups = [_group(data, *record) for record in records[:count].tolist()]
            return [group for group in groups if group is not None]
        records = np.empty(count, XaRecord.dtype)


def _group(
    data: npt.NDArray[np.uint8], start: int, last: int, end: int, trailer: int, completes: int
) -> XaGroup | None:
    """Convert one record; return None for a transaction that commits in one phase."""
    view = data.data
    body = Cursor(view, last + HEADER_LENGTH, end - trailer)
    if completes:
        xid, action = _completion(body, compressed=view[last + TYPE_AT] == EventType.QUERY_COMPRESSED)
    else:
        one_phase, xid = read_xa_prepare(body)
        if one_phase:
            return None
        action = XaAction.PREPARE
    return XaGroup(xid, action, _gtid(view, start), start, end, -1)


def _gtid(data: memoryview, start: int) -> Gtid:
    """Read the GTID of the GTID event at `start`. MySQL's GTID has no domain; a tagged one gets the number 0."""
    kind, server_id, length = _HEADER.unpack_from(data, start)
    if kind == EventType.GTID:
        sequence, domain = _MARIADB_GTID.unpack_from(data, start + HEADER_LENGTH)
        return Gtid(domain, server_id, sequence)
    if kind == EventType.GTID_TAGGED_LOG:
        return Gtid(0, server_id, 0)
    body = Cursor(data, start + HEADER_LENGTH, start + length)
    body.skip(_MYSQL_NUMBER_AT)
    return Gtid(0, server_id, body.u64())


def deliver(found: Scan, carried: Sequence[CarriedGroup] = (), unprepared: list[XaGroup] | None = None) -> list[Scan]:
    """Return the rows of `found` as scans in order of delivery; `found` itself if the range has no XA group.

    All scans share the groups of `found`. Offsets of events and maps count from the start of each scan's own data.

    Args:
        found: The scan of a range.
        carried: Groups prepared before the range, oldest first. Groups that do not commit in the range are ignored.
        unprepared: Receives each XA COMMIT whose rows are missing. None makes the first one an error.

    Raises:
        DataLossError: An XA COMMIT whose rows are missing, without `unprepared`.
    """
    groups = xa_groups(found)
    if not groups:
        return [found]
    prepared: dict[XaId, _Prepared] = {}
    for group in carried:
        earlier = scan(group.data, checksum=group.checksum)
        prepared.update(
            (xa.xid, _rows(earlier, xa.number)) for xa in xa_groups(earlier) if xa.action is XaAction.PREPARE
        )
    order = _Order(found)
    for xa in groups:
        order.keep_until(xa.number)
        if xa.action is XaAction.PREPARE:
            prepared[xa.xid] = _rows(found, xa.number)
            continue
        rows = prepared.pop(xa.xid, None)
        if xa.action is XaAction.ROLLBACK:
            continue
        if rows is not None:
            order.insert(rows, xa.number)
        elif unprepared is None:
            raise unprepared_error(xa)
        else:
            unprepared.append(xa)
    return order.scans()


def unprepared_error(xa: XaGroup) -> DataLossError:
    """Make the error for an XA COMMIT whose rows are missing."""
    return DataLossError(
        f"{xa.gtid} commits the XA transaction {describe(xa.xid)}, which was prepared before the reading began: "
        "its rows are not available.",
        hint="Start before its XA PREPARE, with the binlog file that holds it. Or start after this GTID, without "
        "its rows.",
    )


def describe(xid: XaId) -> str:
    """Return an XA id in the syntax of XA COMMIT and XA ROLLBACK."""
    return f"X'{xid.gtrid.hex()}',X'{xid.bqual.hex()}',{xid.format_id}"


class _Order:
    """Rows events of a range in order of delivery: slices of the range, with carried groups between them."""

    def __init__(self, found: Scan) -> None:
        self._found = found
        self._next = 0  # the first group that is not placed yet
        self._parts: list[Records] = []
        self._scans: list[Scan] = []

    def keep_until(self, number: int) -> None:
        """Keep the rows of all groups before `number` at their place; drop those of `number` itself."""
        groups = self._found.groups
        if self._next < number:
            first, last = groups["first"][self._next], groups["last"][number - 1]
            self._parts.append(self._found.events[first:last])
        self._next = number + 1

    def insert(self, rows: _Prepared, number: int) -> None:
        """Insert the rows of a prepared group as rows of group `number`."""
        events = rows.found.events[rows.first : rows.last].copy()
        events["group"][:] = number
        if rows.found is self._found:
            self._parts.append(events)
            return
        self._close()
        self._scans.append(replace(rows.found, groups=self._found.groups, events=events))

    def scans(self) -> list[Scan]:
        self.keep_until(len(self._found.groups))
        self._close()
        return self._scans

    def _close(self) -> None:
        parts, self._parts = self._parts, []
        if parts:
            self._scans.append(replace(self._found, events=np.concatenate(parts)))


def _rows(found: Scan, number: int) -> _Prepared:
    first, last = (int(found.groups[field][number]) for field in ("first", "last"))
    return _Prepared(found, first, last)


def _completion(body: Cursor, *, compressed: bool) -> tuple[XaId, XaAction]:
    """Return the XA transaction that a QUERY ends, and the action."""
    offset = body.offset
    database, status = _QUERY.unpack(body.take(_QUERY.size))
    body.skip(status + database + 1)
    text = bytes(inflate(body.rest(), limit=MAX_TEXT) if compressed else body.rest()[:MAX_TEXT])
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ProtocolError(f"an XA transaction ends with the unknown statement {text[:80]!r}", offset=offset)
    try:
        gtrid, bqual = (bytes.fromhex(part.decode("ascii")) for part in match.group(2, 3))
    except ValueError:
        raise ProtocolError(
            f"{text[:80]!r} has an odd number of hexadecimal digits in its XA id", offset=offset
        ) from None
    return XaId(int(match[4]) & 0xFFFFFFFF, gtrid, bqual), XaAction(match[1].decode("ascii").lower())
