"""Statements that may have changed rows of the selected tables and are in the binlog as text, without their rows.

`changed_selection` returns the selected tables that a statement may have changed, or None. `statement_error` makes the
error that stops a query before it. These do not count: DDL, including TRUNCATE, if it is delivered as a row
(`includeDdl`); temporary tables; statements that only delete rows, if the query selects no deletes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from replica.errors import StatementDmlError
from replica.protocol.constants import GtidFlag
from replica.protocol.events.query import QueryEvent
from replica.protocol.events.transaction_events import GtidEvent
from replica.schema.definition.session import text_of
from replica.schema.patterns import table_text
from replica.schema.statements.changed_tables import changed_tables
from streaming_source.rows.statements.ddl_statements import named_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from replica.protocol.events.transaction_events import XaId
    from replica.protocol.header import Event
    from replica.rows.scan.statements import LoggedText
    from replica.schema.definition.session import Logged, ServerRules
    from replica.schema.statements.temporary_tables import TemporaryTables
    from streaming_source.selection.resolver import SelectedTables

Found = TypeVar("Found")
ANY_TABLE: Final = ("any table",)
"""The tables of a statement whose text does not name them."""
STATEMENT_CHARACTERS: Final = 200
"""Most characters of a statement in a message: enough to identify it. A LOAD of text would hide the advice."""
CAUSE: Final = "These row changes are not in the binlog (binlog_format STATEMENT or MIXED)."
CAUSE_OF_DDL: Final = "Every binlog_format logs it as a statement; includeDdl=true delivers such statements as rows."
ROW_FORMAT: Final = "Let every session write with binlog_format=ROW, "
REMEDY: Final = (
    "repeat the change in the sink or copy the table there again. Then continue after it with onStatementDml=warn and "
    "the same checkpoint."
)
REMEDY_OF_BATCH: Final = "Read without them with onStatementDml=warn, or copy the table instead."


def changed_selection(
    tables: SelectedTables, statement: Logged, server: ServerRules, temporary: TemporaryTables
) -> tuple[str, ...] | None:
    """Return the selected tables, as database.table, that the statement may have changed without row events."""
    changed = changed_tables(statement, server)
    if changed is None or (changed.removes and "delete" not in tables.operations):
        return None
    if not changed.tables:
        return ANY_TABLE
    delivered: tuple[tuple[str, str], ...] = ()
    if changed.defines and tables.include_ddl and isinstance(statement, QueryEvent):
        delivered = named_tables(statement, server)
    found = [
        table_text(name)
        for name in changed.tables
        if name not in delivered
        and any(tables.wants(*one) for one in tables.spelled(name))
        and not temporary.means(statement, name)
    ]
    return tuple(found) or None


def prepares(begin: Event) -> XaId | None:
    """Return the XA transaction that a group prepares. Its statements count at its commit, like its rows."""
    if isinstance(begin, GtidEvent) and begin.flags2 & GtidFlag.PREPARED_XA:
        return begin.xa
    return None


def completes(begin: Event) -> XaId | None:
    """Return the XA transaction that a group commits or rolls back."""
    if isinstance(begin, GtidEvent) and begin.flags2 & GtidFlag.COMPLETED_XA:
        return begin.xa
    return None


def commits(statement: Logged) -> bool:
    """Return True if a group that completes an XA transaction commits it. The server writes the text itself."""
    return statement.query.startswith(b"XA COMMIT")


def completed(
    texts: Iterable[LoggedText], found: Callable[[LoggedText], Found | None], held: dict[XaId, list[Found]]
) -> Iterator[tuple[int, Found]]:
    """Yield the results of `found` with the offset of their group. Those of an XA transaction are yielded at its
    commit.

    `held`: the results of prepared transactions, which the caller keeps from call to call.
    """
    for text in texts:
        ended, xid = completes(text.begin), prepares(text.begin)
        if ended is not None:
            kept = held.pop(ended, [])
            if commits(text.statement):
                yield from ((text.start, one) for one in kept)
        elif (one := found(text)) is not None:
            if xid is None:
                yield text.start, one
            else:
                held.setdefault(xid, []).append(one)


def shown_statement(statement: Logged) -> str:
    """Return the text for a message: one line, shortened, without control characters."""
    text = "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text_of(statement).split()))
    return text if len(text) <= STATEMENT_CHARACTERS else f"{text[: STATEMENT_CHARACTERS - 1]}…"


def statement_error(
    gtid: str, names: tuple[str, ...], statement: Logged, *, where: str = "", batch: bool = False
) -> StatementDmlError:
    """Return the error that ends a query that must not continue without these rows."""
    changed = changed_tables(statement)
    ddl = changed is not None and changed.defines  # no server setting makes row events of DDL
    remedy = REMEDY_OF_BATCH if batch else f"R{REMEDY[1:]}" if ddl else ROW_FORMAT + REMEDY
    return StatementDmlError(
        f"{where}{gtid} may have changed rows of {', '.join(names)} by a statement that was logged without rows: "
        f"`{shown_statement(statement)}`.",
        hint=f"{CAUSE_OF_DDL if ddl else CAUSE} {remedy}",
    )
