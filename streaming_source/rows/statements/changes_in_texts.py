"""Changes in a range that were logged as statements, without rows, as names of tables (`onStatementDml=row`).

`texts_of_changes` takes the bytes of a range and yields such statements. `changed_names` returns the tables that a
statement may have changed, or the database of its session if its text does not name them. Statements of an XA
transaction count at its commit, like its rows.
"""

from __future__ import annotations

from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Final

from replica.protocol.constants import ChecksumAlgorithm, EventType
from replica.protocol.header import EventHeader, FormatDescriptionEvent
from replica.rows.scan.statements import logged_texts
from replica.schema.statements.changed_tables import changed_tables
from streaming_source.rows.statements.ddl_statements import Named
from streaming_source.rows.statements.statement_dml import completed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from replica.protocol.events.transaction_events import XaId
    from replica.rows.scan.scan import Bytes
    from replica.rows.scan.statements import LoggedText
    from replica.rows.scan.xa import CarriedGroup
    from replica.schema.definition.session import Logged
    from streaming_source.selection.resolver import SelectedTables

QUERY_LENGTH: Final = 13  # of the fixed part of a QUERY, in the binlogs of all servers
_LENGTHS: Final = {
    EventType.QUERY: QUERY_LENGTH,
    EventType.QUERY_COMPRESSED: QUERY_LENGTH,
    EventType.EXECUTE_LOAD_QUERY: 26,
}


@cache
def description_of_texts(*, checksum: bool) -> FormatDescriptionEvent:
    """Return a format description that is enough to read statements, if that of the file is not available."""
    lengths = bytearray(EventType.QUERY_COMPRESSED)
    for kind, length in _LENGTHS.items():
        lengths[kind - 1] = length
    algorithm = ChecksumAlgorithm.CRC32 if checksum else ChecksumAlgorithm.NONE
    return FormatDescriptionEvent(EventHeader(0, 0, 0, 0, 0, 0), "", 0, bytes(lengths), algorithm)


def texts_of_changes(
    data: Bytes, *, checksum: bool, carried: Sequence[CarriedGroup] = ()
) -> Iterator[tuple[int, Logged]]:
    """Yield the statements that changed rows and are not DDL, with the offset of their group, or of the group that
    commits it.

    `carried`: groups that were prepared before the range.
    """
    parts = [(group.data, group.checksum) for group in carried] + [(data, checksum)]
    texts = (logged_texts(part, description_of_texts(checksum=summed)) for part, summed in parts)
    prepared: dict[XaId, list[Logged]] = {}
    yield from completed(chain.from_iterable(texts), _change, prepared)


def changes_without_rows(data: Bytes, *, checksum: bool) -> bool:
    """Return True if there is such a statement, also in a transaction that is only prepared."""
    texts = logged_texts(data, description_of_texts(checksum=checksum))
    return any(_changes_rows(text.statement) for text in texts)


def _change(text: LoggedText) -> Logged | None:
    return text.statement if _changes_rows(text.statement) else None


def _changes_rows(statement: Logged) -> bool:
    changed = changed_tables(statement)
    return changed is not None and not changed.defines


def changed_names(tables: SelectedTables, statement: Logged) -> list[Named]:
    """Return the tables that a statement may have changed, in each spelling that may be theirs, or its database."""
    changed = changed_tables(statement, tables.server)
    if changed is None or (changed.removes and "delete" not in tables.operations):
        return []
    if not changed.tables:
        return [Named(statement.database, "")]
    spelled = (Named(*name) for written in changed.tables for name in tables.spelled(written))
    return list(dict.fromkeys(spelled))
