"""Analysis of one event group: its kind, its writer and time, its statements, tables, rows and events.

In: a part that holds one event group, and the prepared group that it commits, if it ends an XA transaction. Out: a
`Transaction`, plain values that JSON can hold. Lists have limits, and omitted entries are counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.commands.dump.text import event_words, type_name, utc, xa_words
from replica.protocol.constants import EventType, GtidExtraFlag, GtidFlag
from replica.protocol.events.decode import AnnotateRowsEvent, ExecuteLoadQueryEvent, GtidEvent, QueryEvent, XidEvent
from replica.readers.rows.reading import statement_text
from replica.readers.rows.without_rows import StatementChanges
from replica.rows.decode.decode import count_by_table
from replica.rows.scan.scan import scan
from replica.rows.tables.layout import TableTarget

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.protocol.events.binlog_file import FileEvent
    from replica.protocol.events.transaction_events import XaId
    from replica.protocol.rows.table_map import TableMapEvent
    from replica.readers.log.reader import Part
    from replica.rows.scan.xa import CarriedGroup

MAX_EVENTS: Final = 1000
"""Maximum number of listed events. A transaction of a million events is described by its types and sums."""
MAX_STATEMENTS: Final = 100
_UINT32: Final = 1 << 32
_STATEMENT_TYPES: Final = frozenset(
    {
        *(EventType.QUERY, EventType.QUERY_COMPRESSED, EventType.EXECUTE_LOAD_QUERY),
        *(EventType.ANNOTATE_ROWS, EventType.XID),
    }
)
_BORDERS: Final = frozenset({"BEGIN", "COMMIT", "ROLLBACK"})

_FLAGS: Final = {
    GtidFlag.DDL: "DDL",
    GtidFlag.STANDALONE: "one statement without COMMIT",
    GtidFlag.TRANSACTIONAL: "only transactional tables",
    GtidFlag.GROUP_COMMIT_ID: "committed in one go with others",
    GtidFlag.ALLOW_PARALLEL: "replicas may apply it in parallel",
    GtidFlag.WAITED: "waited for a row lock of another transaction",
    GtidFlag.PREPARED_XA: "prepares an XA transaction",
    GtidFlag.COMPLETED_XA: "ends an XA transaction",
}
_EXTRA_FLAGS: Final = {
    GtidExtraFlag.MULTI_ENGINE: "several storage engines",
    GtidExtraFlag.START_ALTER: "ALTER TABLE begins; nothing is changed yet",
    GtidExtraFlag.COMMIT_ALTER: "an ALTER TABLE that began before is committed",
    GtidExtraFlag.ROLLBACK_ALTER: "an ALTER TABLE that began before is undone",
}


class EventLine(NamedTuple):
    """One event: its offset in the file, its size in bytes with header and checksum, and its content."""

    offset: int
    type: str
    bytes: int
    words: str


class TypeSum(NamedTuple):
    """Number of events of one type in a transaction, and their total size in bytes."""

    type: str
    events: int
    bytes: int


class TableRows(NamedTuple):
    """Number of row changes of one table in a transaction, by operation."""

    table: str
    inserted: int
    updated: int
    deleted: int


@dataclass(slots=True)
class Transaction:
    """One transaction.

    `began` and `committed` are the times of the first and the last event, in seconds since 1970. A None field was not
    logged by the server.
    """

    gtid: str
    kind: str
    began: int
    committed: int
    server_id: int
    thread_id: int | None
    commit_id: int | None
    xid: int | None
    xa: XaId | None
    flags: list[str]
    bytes: int
    began_at: int | None
    """Start of the group in the primary's file; None if the event header does not contain the start."""
    statements: list[str] = field(default_factory=list)
    more_statements: int = 0
    tables: list[TableRows] = field(default_factory=list)
    without_rows: int = 0
    """Number of statements that changed rows and were logged as text. Their rows are not in the binlog."""
    changed_without_rows: list[str] = field(default_factory=list)
    """Tables that these statements changed, if their texts show them."""
    types: list[TypeSum] = field(default_factory=list)
    events: list[EventLine] = field(default_factory=list)
    more_events: int = 0

    def as_dict(self) -> dict[str, object]:
        """Return the transaction for JSON."""
        return {
            "gtid": self.gtid,
            "kind": self.kind,
            "began": utc(self.began),
            "committed": utc(self.committed),
            "server_id": self.server_id,
            "thread_id": self.thread_id,
            "commit_id": self.commit_id,
            "xid": self.xid,
            "xa": None if self.xa is None else xa_words(self.xa),
            "flags": self.flags,
            "bytes": self.bytes,
            "statements": self.statements,
            "more_statements": self.more_statements,
            "tables": [one._asdict() for one in self.tables],
            "statement_dml": {"statements": self.without_rows, "tables": self.changed_without_rows},
            "event_types": [one._asdict() for one in self.types],
            "events": [one._asdict() for one in self.events],
            "more_events": self.more_events,
        }


class _Everything:
    """A `TableResolver` that selects every table, for counting rows."""

    def resolve(self, table_map: TableMapEvent) -> TableTarget | None:
        del table_map
        return TableTarget()


def take_apart(part: Part, prepared: Sequence[CarriedGroup] = ()) -> Transaction:
    """Return the analysis of the group in the part.

    Raises:
        ProtocolError: its bytes are damaged, or it has events that cannot be read.
    """
    walk = part.walk()
    first = next(walk)
    event = part.read(first)
    if not isinstance(event, GtidEvent):
        raise TypeError(f"{event!r} begins no event group")
    begin = (event.header.log_pos - event.header.event_length) % _UINT32 if event.header.log_pos else None
    made = Transaction(
        gtid=str(event.gtid),
        kind="",
        began=event.header.timestamp,
        committed=event.header.timestamp,
        server_id=event.gtid.server_id,
        thread_id=event.thread_id,
        commit_id=event.commit_id,
        xid=None,
        xa=event.xa,
        flags=[word for flag, word in _FLAGS.items() if event.flags2 & flag]
        + [word for flag, word in _EXTRA_FLAGS.items() if event.flags_extra & flag],
        bytes=len(part.piece.data),
        began_at=begin,
    )
    sums: dict[str, tuple[int, int]] = {}
    ending = ""
    for found in part.walk():
        name = type_name(found.header.event_type)
        count, size = sums.get(name, (0, 0))
        sums[name] = count + 1, size + len(found.event)
        made.committed = found.header.timestamp
        if len(made.events) < MAX_EVENTS or found.header.event_type in _STATEMENT_TYPES:
            ending = _take_event(made, part, found) or ending
        else:
            made.more_events += 1
    made.types = [TypeSum(name, count, size) for name, (count, size) in sums.items()]
    made.kind = _kind(event, ending)
    counts = count_by_table(
        scan(part.piece.data, checksum=part.piece.checksum), _Everything(), carried=prepared, shown=None
    )
    for changed in StatementChanges(lambda *_: True).of(part):
        made.without_rows += 1
        made.changed_without_rows += [name for name in changed.names if name not in made.changed_without_rows]
    made.tables = sorted(TableRows(".".join(name), *map(int, rows)) for name, rows in counts.items())
    return made


def _take_event(made: Transaction, part: Part, found: FileEvent) -> str:
    """Add one event to `made`; return the text of a statement that may end the group."""
    event = part.read(found)
    if len(made.events) < MAX_EVENTS:
        name = type_name(found.header.event_type)
        content = (
            name if isinstance(event, GtidEvent) else event_words(event)
        )  # other fields hold a GTID event's content
        made.events.append(EventLine(found.offset, name, len(found.event), content))
    else:
        made.more_events += 1
    if isinstance(event, XidEvent):
        made.xid = event.xid
    if not isinstance(event, AnnotateRowsEvent | QueryEvent | ExecuteLoadQueryEvent):
        return ""
    text = statement_text(event.query, None if isinstance(event, AnnotateRowsEvent) else event.status)
    if text in _BORDERS:
        return text
    if len(made.statements) < MAX_STATEMENTS:
        made.statements.append(text)
    else:
        made.more_statements += 1
    return text


def _kind(event: GtidEvent, ending: str) -> str:
    if event.flags2 & GtidFlag.PREPARED_XA:
        return "XA PREPARE"
    if event.flags2 & GtidFlag.COMPLETED_XA:
        return "XA ROLLBACK" if ending.upper().startswith("XA ROLLBACK") else "XA COMMIT"
    if event.flags2 & GtidFlag.DDL:
        return "DDL statement"
    if event.is_standalone:
        return "single statement"
    return "transaction that was rolled back" if ending == "ROLLBACK" else "transaction"
