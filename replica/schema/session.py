"""All that the meaning of a statement depends on besides its text, and both as a QUERY of a binlog brings them.

In: a `QueryEvent`, or the LOAD DATA of an EXECUTE_LOAD_QUERY. Out: its text in characters (a client that said nothing
of its character set, or 'binary', is taken to speak UTF-8; what is not valid becomes U+FFFD, which no name or label may
hold), and a `StatementContext`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from replica.errors import SchemaError
from replica.protocol.charset import BINARY, charset_of
from replica.schema.definition import UNKNOWN, Encoding
from replica.schema.sql_tokens import ANY_VERSION

if TYPE_CHECKING:
    from replica.protocol.query import QueryEvent
    from replica.protocol.statement_events import ExecuteLoadQueryEvent

    Logged: TypeAlias = QueryEvent | ExecuteLoadQueryEvent

EXPLICIT_TIMESTAMPS: Final = 1 << 24
"""The bit of flags2 for explicit_defaults_for_timestamp (the server's OPTION_EXPLICIT_DEF_TIMESTAMP)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementContext:
    """The settings of a session. `encoding` is the server's default; `explicit_timestamps` is
    explicit_defaults_for_timestamp.
    """

    database: str = ""
    sql_mode: int = 0
    encoding: Encoding = UNKNOWN
    explicit_timestamps: bool = True
    server_version: int = ANY_VERSION
    thread: int = 0
    failed: bool = False  # it ended with an error, but had done something that was logged


def session_of(event: Logged, server_version: int) -> StatementContext:
    status = event.status
    return StatementContext(
        database=event.database,
        sql_mode=status.sql_mode or 0,
        encoding=Encoding(charset_name(status.charset[2] if status.charset else None)),
        explicit_timestamps=bool((status.flags2 or 0) & EXPLICIT_TIMESTAMPS),
        server_version=server_version,
        thread=event.thread_id,
        failed=event.error != 0,
    )


def text_of(event: Logged) -> str:
    client = event.status.charset[0] if event.status.charset else None
    if client is None or charset_name(client) in (None, "binary"):
        return event.query.decode("utf-8", "replace")
    return charset_of(client).decode(event.query)


def charset_name(collation: int | None) -> str | None:
    """Return the name of a collation's character set, 'binary' among them; None where it is not known."""
    if collation is None or collation == BINARY:
        return None if collation is None else "binary"
    try:
        return charset_of(collation).name
    except SchemaError:
        return None
