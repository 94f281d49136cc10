"""Context of a statement: the settings of its session and server that its meaning depends on.

`session_of` makes a `StatementContext` from a `QueryEvent`, or from the LOAD DATA of an EXECUTE_LOAD_QUERY, and the
rules of the server. `text_of` decodes the statement's text. A client without a character set, or with 'binary', is
assumed to send UTF-8. Invalid bytes become U+FFFD, which no name or label may contain. A context can be stored as text
next to its statement, for readers that have no event.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from replica.errors import SchemaError
from replica.protocol.charset import BINARY, charset_named, charset_of
from replica.protocol.constants import HeaderFlag
from replica.schema.definition.definition import UNKNOWN, Encoding
from replica.schema.text.sql_tokens import ANY_VERSION

if TYPE_CHECKING:
    from replica.protocol.events.statement_events import ExecuteLoadQueryEvent, QueryEvent

    Logged: TypeAlias = QueryEvent | ExecuteLoadQueryEvent

EXPLICIT_TIMESTAMPS: Final = 1 << 24
"""Bit of flags2 for explicit_defaults_for_timestamp (the server's OPTION_EXPLICIT_DEF_TIMESTAMP)."""


WIDE: Final = ("ucs2", "utf16", "utf16le", "utf32")
"""Character sets whose ASCII characters have more than one byte: a text in them stores other bytes in a binary column.
"""
_BMP: Final = ("ucs2", "utf8mb3")


class ServerRules(NamedTuple):
    """Rules of a server for parsing statements.

    Attributes:
        version: Decides which executable comments count (110803).
        lower_case: Whether the server stores the names of tables and databases in lower case (lower_case_table_names).
    """

    version: int = ANY_VERSION
    lower_case: bool = False

    @classmethod
    def of(cls, version: str, *, lower_case: bool) -> ServerRules:
        """Return the rules of a server by its version text ("11.8.3-MariaDB-log")."""
        major, minor, patch, *_ = (*(int(number) for number in re.findall(r"\d+", version)[:3]), 0, 0, 0)
        return cls(major * 10_000 + minor * 100 + patch or ANY_VERSION, lower_case)


ANY_SERVER: Final = ServerRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementContext:
    """Settings of a session and its server.

    Attributes:
        database: The default database.
        sql_mode: The bits of sql_mode.
        encoding: The server's default encoding.
        explicit_timestamps: The setting explicit_defaults_for_timestamp.
        time_zone: The session's time zone; None if the event does not have it.
        connection: character_set_connection, which literals are converted to; None if it is unknown.
        uses_temporary: Whether the statement uses temporary tables of its session (the event's flag THREAD_SPECIFIC).
        server: The rules of the server.
        thread: The thread id.
        failed: Whether the statement failed after a change that was logged.
    """

    database: str = ""
    sql_mode: int = 0
    encoding: Encoding = UNKNOWN
    explicit_timestamps: bool = True
    time_zone: str | None = None
    connection: str | None = None
    uses_temporary: bool = False
    server: ServerRules = ANY_SERVER
    thread: int = 0
    failed: bool = False

    def stored(self) -> str:
        """Return the context as text, without default values."""
        values = {name: value for name, value in asdict(self).items() if value != getattr(_PLAIN, name)}
        return json.dumps(values, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def restored(cls, text: str) -> StatementContext:
        """Parse the result of `stored`."""
        values = json.loads(text)
        for name, kind in (("encoding", Encoding), ("server", ServerRules)):
            if name in values:
                values[name] = kind(*values[name])
        return cls(**values)

    def can_encode(self, text: str) -> bool:
        """Return True if character_set_connection has all characters of a quoted text.

        The server replaces any other character by '?'.
        """
        if self.connection in (None, "binary") or text.isascii():
            return True
        if "\N{REPLACEMENT CHARACTER}" in text or (self.connection in _BMP and any(c > "\uffff" for c in text)):
            return False
        try:
            return charset_named(self.connection).decode(text.encode(charset_named(self.connection).codec)) == text
        except UnicodeEncodeError:
            return False


_PLAIN: Final = StatementContext()


def session_of(event: Logged, server: ServerRules = ANY_SERVER) -> StatementContext:
    """Return the context of an event, from the event and its server."""
    status = event.status
    return StatementContext(
        database=event.database,
        sql_mode=status.sql_mode or 0,
        encoding=Encoding(charset_name(status.charset[2] if status.charset else None)),
        explicit_timestamps=bool((status.flags2 or 0) & EXPLICIT_TIMESTAMPS),
        time_zone=status.time_zone,
        connection=charset_name(status.charset[1] if status.charset else None),
        uses_temporary=bool(event.header.flags & HeaderFlag.THREAD_SPECIFIC),
        server=server,
        thread=event.thread_id,
        failed=event.error != 0,
    )


def text_of(event: Logged) -> str:
    """Return the text of a statement, decoded by its client's character set."""
    client = event.status.charset[0] if event.status.charset else None
    if client is None or charset_name(client) in (None, "binary"):
        return event.query.decode("utf-8", "replace")
    return charset_of(client).decode(event.query)


def charset_name(collation: int | None) -> str | None:
    """Return the name of a collation's character set, including 'binary'; None if it is unknown."""
    if collation is None or collation == BINARY:
        return None if collation is None else "binary"
    try:
        return charset_of(collation).name
    except SchemaError:
        return None
