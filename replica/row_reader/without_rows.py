"""Changes in binlog files that were logged as statements: their rows are in no row event.

In: parts in the order of the log, and which tables are asked for. Out: per statement the tables whose rows it may have
changed. Temporary tables are followed as far as the parts tell, and left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from replica.errors import ProtocolError
from replica.files.ranges import relocated
from replica.protocol.constants import BINLOG_MAGIC
from replica.row_reader.statement_text import statement_text
from replica.rows.scan.statements import logged_texts
from replica.schema.patterns import table_text
from replica.schema.statements.changed_tables import changed_tables
from replica.schema.statements.temporary_tables import TemporaryTables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from replica.log_reader.part import Part
    from replica.row_reader.reading import Reading
    from replica.schema.known_tables import TableName

ANY_TABLE = "any table"
"""What a statement may have changed whose text does not tell."""


class WithoutRows(NamedTuple):
    """One such statement. `start`: of its group in the part. `tables` is empty where it may have changed any."""

    start: int
    gtid: str
    text: str
    tables: tuple[TableName, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(table_text(name) for name in self.tables) or (ANY_TABLE,)


class StatementChanges:
    """The statements of one log; `wants` says which tables are asked for."""

    def __init__(self, wants: Callable[[str, str], bool]) -> None:
        self._wants = wants
        self._temporary = TemporaryTables()

    def of(self, part: Part) -> Iterator[WithoutRows]:
        """Yield the statements of the next part.

        Raises:
            ProtocolError: the bytes are damaged.
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
                meant = [name for name in changed.tables if not self._temporary.means(found.statement, name)]
                tables = tuple(name for name in meant if self._wants(*name))
                if tables or not changed.tables:
                    gtid = str(getattr(found.begin, "gtid", None) or "anonymous")
                    text = statement_text(found.statement.query, found.statement.status)
                    yield WithoutRows(skipped + found.start, gtid, text, tables)
        except ProtocolError as error:
            raise relocated(error, part.name, part.piece.offset + skipped) from None


def parts_with_notice(reading: Reading) -> Iterator[Part]:
    """Yield the parts of a reading that shows rows only; at the end it is said how many changes had none."""
    changes, count = StatementChanges(reading.names.wants), 0
    for part in reading.parts():
        yield part
        shown = reading.visible(part)
        count += sum(shown is None or one.start in shown for one in changes.of(part))
    if count:
        reading.notices.say(
            f"changes of these tables that were logged as statements: {count:,}; their rows are not shown, they "
            "are nowhere in the binlog (--count tells the tables)"
        )
