"""Row changes in binlog files that were logged as statements, without row events.

`StatementChanges.of` returns, per statement of the next part, the tables whose rows it may have changed. Temporary
tables are omitted, if the parts contain their CREATE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from replica.errors import ProtocolError
from replica.protocol.constants import BINLOG_MAGIC
from replica.readers.files.ranges import relocated
from replica.readers.rows.reading import statement_text
from replica.rows.scan.statements import logged_texts
from replica.schema.patterns import table_text
from replica.schema.statements.changed_tables import changed_tables
from replica.schema.statements.statements import TemporaryTables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from replica.readers.log.reader import Part
    from replica.readers.rows.reading import Reading
    from replica.schema.known_tables import TableName

ANY_TABLE = "any table"
"""Name for the tables of a statement whose text does not name them."""


class WithoutRows(NamedTuple):
    """A statement that changed rows without row events.

    Attributes:
        start: Offset of its group in the part.
        gtid: The GTID of the group.
        text: The statement.
        tables: The tables whose rows it may have changed; empty if it may have changed any table.
    """

    start: int
    gtid: str
    text: str
    tables: tuple[TableName, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(table_text(name) for name in self.tables) or (ANY_TABLE,)


class StatementChanges:
    """Statements of one log that changed rows without row events. `wants(database, table)` selects the tables."""

    def __init__(self, wants: Callable[[str, str], bool]) -> None:
        self._wants = wants
        self._temporary = TemporaryTables()

    def of(self, part: Part) -> Iterator[WithoutRows]:
        """Yield the statements of the next part that may have changed rows.

        Raises:
            ProtocolError: The bytes are damaged.
        """
        if not part.piece.whole:
            return
        skipped = len(BINLOG_MAGIC) if bytes(part.piece.data[: len(BINLOG_MAGIC)]) == BINLOG_MAGIC else 0
        try:
            for found in logged_texts(part.piece.data[skipped:], part.piece.description):
                self._temporary.follow(found.statement, part.server)
                changed = changed_tables(found.statement, part.server)
                if changed is None:
                    continue
                permanent = [name for name in changed.tables if not self._temporary.means(found.statement, name)]
                tables = tuple(name for name in permanent if self._wants(*name))
                if tables or not changed.tables:
                    gtid = str(getattr(found.begin, "gtid", None) or "anonymous")
                    text = statement_text(found.statement.query, found.statement.status)
                    yield WithoutRows(skipped + found.start, gtid, text, tables)
        except ProtocolError as error:
            raise relocated(error, part.name, part.piece.offset + skipped) from None


def parts_with_notice(reading: Reading) -> Iterator[Part]:
    """Yield the parts of a reading, and at the end report the number of changes that were logged without rows.

    For a reading that shows rows and no statements.
    """
    changes, count = StatementChanges(reading.names.wants), 0
    for part in reading.parts():
        yield part
        shown = reading.visible(part)
        count += sum(shown is None or one.start in shown for one in changes.of(part))
    if count:
        reading.notices.say(
            f"changes of these tables that were logged as statements: {count:,}; their rows are not shown, because "
            "the binlog does not contain them (--count shows the tables)"
        )
