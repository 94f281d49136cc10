"""The statements of a range that may be DDL, found without a look at its rows.

In: bytes of whole event groups. Out: per statement its text with the session state it depends on, the GTID of its group
and where that begins. What a server does not mark as DDL (rows, statements inside transactions) costs a look at the
header. Refused: bytes that end inside an event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from replica.errors import ProtocolError, TruncatedError
from replica.native.arrays import address
from replica.protocol.constants import CHECKSUM_LENGTH
from replica.protocol.events import GtidEvent, decode
from replica.protocol.header import parse_header
from replica.protocol.query import QueryEvent
from replica.rows import records as r
from replica.rows.kernel_statements import FOUND_BYTES, find_statements
from replica.rows.scan import as_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from replica.protocol.format_description import FormatDescriptionEvent
    from replica.protocol.gtid import Gtid
    from replica.rows.scan import Bytes, Records

FIRST_FOUND: Final = 64
"""Room for statements; where there are more, the range is gone over again with as much room as they need."""


class LoggedStatement(NamedTuple):
    """`start` is where the statement's event group begins in the range: rows from there on may be of the new table."""

    start: int
    gtid: Gtid
    query: QueryEvent


def logged_statements(data: Bytes, description: FormatDescriptionEvent) -> Iterator[LoggedStatement]:
    """The statements of `data`, whole event groups as `description` says, in order.

    Raises:
        ProtocolError: an event is cut short, or a marked group does not hold what its events say.

    """
    array = as_bytes(data)
    trailer = CHECKSUM_LENGTH if description.checksum else 0
    records = np.empty((FIRST_FOUND, FOUND_BYTES // r.WORD), np.int64)
    count = _find(array, trailer, records)
    if count > len(records):
        records = np.empty((count, FOUND_BYTES // r.WORD), np.int64)
        _find(array, trailer, records)
    for group, start, end, _ in records[:count].tolist():
        begin = array.data[group : group + parse_header(array.data, group).event_length]
        first, query = decode(begin, description), decode(array.data[start:end], description)
        if not isinstance(first, GtidEvent) or not isinstance(query, QueryEvent):
            raise ProtocolError("a group that is marked as DDL does not begin as one", offset=group)
        yield LoggedStatement(group, first.gtid, query)


def _find(array: npt.NDArray[np.uint8], trailer: int, records: Records) -> int:
    count = find_statements(address(array), len(array), 0, trailer, address(records), len(records))
    if count < 0:
        raise TruncatedError("the bytes end inside an event", offset=-1 - count)
    return count
