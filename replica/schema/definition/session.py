"""All that the meaning of a statement depends on besides its text, and both as a QUERY of a binlog brings them.

In: a `QueryEvent`, or the LOAD DATA of an EXECUTE_LOAD_QUERY, and the rules of the server that wrote it. Out: its text
in characters (a client that said nothing of its character set, or 'binary', is taken to speak UTF-8; what is not valid
becomes U+FFFD, which no name or label may hold), and a `StatementContext`. A context is stored as text beside its
statement, for readers that have no event.
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
    from replica.protocol.events.query import QueryEvent
    from replica.protocol.events.statement_events import ExecuteLoadQueryEvent

    Logged: TypeAlias = QueryEvent | ExecuteLoadQueryEvent

EXPLICIT_TIMESTAMPS: Final = 1 << 24
"""The bit of flags2 for explicit_defaults_for_timestamp (the server's OPTION_EXPLICIT_DEF_TIMESTAMP)."""


WIDE: Final = ("ucs2", "utf16", "utf16le", "utf32")
"""Character sets whose ASCII takes more than a byte: of such a text a binary column gets other bytes."""
_BMP: Final = ("ucs2", "utf8mb3")


class ServerRules(NamedTuple):
    """The rules of a server that statements are read by. `version` decides which executable comments count (110803);
    `lower_case`: the server stores the names of tables and databases in small letters (lower_case_table_names).
    """

    version: int = ANY_VERSION
    lower_case: bool = False

    @classmethod
    def of(cls, version: str, *, lower_case: bool) -> ServerRules:
        """Return the rules of a server that says its version as text ("11.8.3-MariaDB-log")."""
        major, minor, patch, *_ = (*(int(number) for number in re.findall(r"\d+", version)[:3]), 0, 0, 0)
        return cls(major * 10_000 + minor * 100 + patch or ANY_VERSION, lower_case)


ANY_SERVER: Final = ServerRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementContext:
    """The settings of a session and its server. `encoding` is the server's default; `explicit_timestamps` is
    explicit_defaults_for_timestamp; `time_zone` is None where the event does not name it.
    """

    database: str = ""
    sql_mode: int = 0
    encoding: Encoding = UNKNOWN
    explicit_timestamps: bool = True
    time_zone: str | None = None
    connection: str | None = None  # character_set_connection, which literals go through; None: not known
    uses_temporary: bool = False  # it uses temporary tables of its session (the event's flag THREAD_SPECIFIC)
    server: ServerRules = ANY_SERVER
    thread: int = 0
    failed: bool = False  # it ended with an error, but had done something that was logged

    def stored(self) -> str:
        """Return the context as text, without what has its default."""
        values = {name: value for name, value in asdict(self).items() if value != getattr(_PLAIN, name)}
        return json.dumps(values, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def restored(cls, text: str) -> StatementContext:
        """Read what `stored` made text of."""
        values = json.loads(text)
        for name, kind in (("encoding", Encoding), ("server", ServerRules)):
            if name in values:
                values[name] = kind(*values[name])
        return cls(**values)

    def takes(self, text: str) -> bool:
        """Tell whether a text in quotes gets through character_set_connection: other characters become '?' there."""
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
    """Return what an event and its server say of the session that wrote it."""
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
