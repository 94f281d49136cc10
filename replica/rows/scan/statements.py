"""The statements of a range that stand there as text, found without a look at its rows.

In: bytes of whole event groups. Out: per statement its text with the session state it depends on, the GTID of its group
and where that begins: those that may be DDL, or with them all that is text inside transactions, which are changes of
rows without row events. Events of rows cost a look at the header. Refused: bytes that end inside an event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from replica.errors import ProtocolError
from replica.native.arrays import address
from replica.protocol.constants import CHECKSUM_LENGTH, GtidFlag
from replica.protocol.events.decode import ExecuteLoadQueryEvent, GtidEvent, decode
from replica.protocol.events.query import QueryEvent
from replica.protocol.header import parse_header
from replica.rows.scan.kernel_statements import StatementRecord, find_statements
from replica.rows.scan.scan import as_bytes
from replica.rows.scan.windows import search

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from replica.native.record import Records
    from replica.protocol.gtid import Gtid
    from replica.protocol.header import Event, FormatDescriptionEvent
    from replica.rows.scan.scan import Bytes
    from replica.rows.scan.windows import Passed

FIRST_FOUND: Final = 64
"""Room for statements; where there are more, the range is gone over again with as much room as they need."""


class LoggedStatement(NamedTuple):
    """A statement as logged. `start` is where its event group begins in the range: rows from there on may be of the new
    table. `alone`: the group has no rows.
    """

    start: int
    gtid: Gtid
    query: QueryEvent
    alone: bool


class LoggedText(NamedTuple):
    """A text as logged. `start` and `begin`: where its group begins, and the event that does. `marked`: the server says
    it may be DDL.
    """

    start: int
    begin: Event
    statement: QueryEvent | ExecuteLoadQueryEvent
    marked: bool


def logged_statements(
    data: Bytes, description: FormatDescriptionEvent, passed: Passed | None = None
) -> Iterator[LoggedStatement]:
    """Yield the statements of `data`, whole event groups as `description` says, that may be DDL, in order.

    `passed` is told what has been walked over.

    Raises:
        ProtocolError: an event is cut short, or a marked group does not hold what its events say.
    """
    for start, begin, query, _ in _found(data, description, passed, unmarked=False):
        if not isinstance(begin, GtidEvent) or not isinstance(query, QueryEvent):
            raise ProtocolError("a group that is marked as DDL does not begin as one", offset=start)
        yield LoggedStatement(start, begin.gtid, query, bool(begin.flags2 & GtidFlag.STANDALONE))


def logged_texts(
    data: Bytes, description: FormatDescriptionEvent, passed: Passed | None = None
) -> Iterator[LoggedText]:
    """Yield all statements of `data` but the borders of transactions, in order; errors as with `logged_statements`."""
    for text in _found(data, description, passed, unmarked=True):
        if not isinstance(text.statement, QueryEvent | ExecuteLoadQueryEvent):
            raise ProtocolError("a statement is none", offset=text.start)
        yield text


def _found(
    data: Bytes, description: FormatDescriptionEvent, passed: Passed | None, *, unmarked: bool
) -> Iterator[LoggedText]:
    array = as_bytes(data)
    trailer = CHECKSUM_LENGTH if description.checksum else 0
    records = np.empty(FIRST_FOUND, StatementRecord.dtype)
    count = _find(array, trailer, records, passed, unmarked=unmarked)
    if count > len(records):
        records = np.empty(count, StatementRecord.dtype)
        _find(array, trailer, records, passed, unmarked=unmarked)
    for group, start, end, _, marked in records[:count].tolist():
        begin = array.data[group : group + parse_header(array.data, group).event_length]
        statement: Any = decode(array.data[start:end], description)
        yield LoggedText(group, decode(begin, description), statement, bool(marked))


def _find(
    array: npt.NDArray[np.uint8], trailer: int, records: Records, passed: Passed | None, *, unmarked: bool
) -> int:
    def find(data: int, size: int, state: int) -> int:
        return find_statements(data, size, state, address(records), len(records), int(unmarked))

    return search(array, 0, trailer, find, passed)
