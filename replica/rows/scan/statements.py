"""Statements that a range contains as text, found without reading its rows.

`logged_statements` yields the statements that may be DDL, with their session state, GTID and group offset.
`logged_texts` also yields other text inside transactions: row changes that were logged as statements. Of rows events
only the header is read. A truncated event is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from replica.errors import ProtocolError
from replica.native.arrays import address
from replica.protocol.constants import CHECKSUM_LENGTH, GtidFlag
from replica.protocol.events.decode import ExecuteLoadQueryEvent, GtidEvent, decode
from replica.protocol.events.statement_events import QueryEvent
from replica.protocol.header import parse_header
from replica.rows.scan.kernels.kernel_search import StatementRecord, find_statements
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
"""Initial capacity for statements. If there are more, the range is searched again with sufficient capacity."""


class LoggedStatement(NamedTuple):
    """A logged statement.

    Attributes:
        start: Offset of its event group in the range. Rows after this offset may belong to the new table definition.
        gtid: The GTID of the group.
        query: The statement, with its session state.
        rowless: True if the group has no rows.
    """

    start: int
    gtid: Gtid
    query: QueryEvent
    rowless: bool


class LoggedText(NamedTuple):
    """A logged text.

    Attributes:
        start: Offset of its event group in the range.
        begin: The event that begins the group.
        statement: The statement, with its session state.
        marked: True if the server marked the group as possible DDL.
    """

    start: int
    begin: Event
    statement: QueryEvent | ExecuteLoadQueryEvent
    marked: bool


def logged_statements(
    data: Bytes, description: FormatDescriptionEvent, on_progress: Passed | None = None
) -> Iterator[LoggedStatement]:
    """Yield the statements of a range that may be DDL, in order.

    Args:
        data: Whole event groups.
        description: The FORMAT_DESCRIPTION event that applies to them.
        on_progress: Called with the offset up to which the search has walked.

    Raises:
        ProtocolError: An event is truncated, or the content of a marked group contradicts its events.
    """
    for start, begin, query, _ in _found(data, description, on_progress, unmarked=False):
        if not isinstance(begin, GtidEvent) or not isinstance(query, QueryEvent):
            raise ProtocolError("a group that is marked as DDL does not begin with GTID and QUERY events", offset=start)
        yield LoggedStatement(start, begin.gtid, query, bool(begin.flags2 & GtidFlag.STANDALONE))


def logged_texts(
    data: Bytes, description: FormatDescriptionEvent, on_progress: Passed | None = None
) -> Iterator[LoggedText]:
    """Yield all statements of a range, except the borders of transactions, in order.

    The arguments and errors are those of `logged_statements`.
    """
    for text in _found(data, description, on_progress, unmarked=True):
        if not isinstance(text.statement, QueryEvent | ExecuteLoadQueryEvent):
            raise ProtocolError("the event of a statement is neither QUERY nor EXECUTE_LOAD_QUERY", offset=text.start)
        yield text


def _found(
    data: Bytes, description: FormatDescriptionEvent, on_progress: Passed | None, *, unmarked: bool
) -> Iterator[LoggedText]:
    array = as_bytes(data)
    trailer = CHECKSUM_LENGTH if description.checksum else 0
    records = np.empty(FIRST_FOUND, StatementRecord.dtype)
    count = _find(array, trailer, records, on_progress, unmarked=unmarked)
    if count > len(records):
        records = np.empty(count, StatementRecord.dtype)
        _find(array, trailer, records, on_progress, unmarked=unmarked)
    for group, start, end, _, marked in records[:count].tolist():
        begin = array.data[group : group + parse_header(array.data, group).event_length]
        statement: Any = decode(array.data[start:end], description)
        yield LoggedText(group, decode(begin, description), statement, bool(marked))


def _find(
    array: npt.NDArray[np.uint8], trailer: int, records: Records, on_progress: Passed | None, *, unmarked: bool
) -> int:
    def find(data: int, size: int, state: int) -> int:
        return find_statements(data, size, state, address(records), len(records), int(unmarked))

    return search(array, 0, trailer, find, on_progress)
