"""What a QUERY event says of the session it ran in, and its text in the client's character set."""

from __future__ import annotations

import pytest

from replica.protocol.events.statement_events import QueryEvent, StatusVars
from replica.protocol.header import EventHeader
from replica.schema.definition.definition import UNKNOWN, Encoding
from replica.schema.definition.session import EXPLICIT_TIMESTAMPS, ServerRules, charset_name, session_of, text_of

HEADER = EventHeader(0, 2, 1, 100, 1000, 0)
GBK, LATIN1, BINARY, UTF8MB4 = 28, 8, 63, 45


def event(query: bytes, *, error: int = 0, **status: object) -> QueryEvent:
    return QueryEvent(HEADER, 7, 0, error, "shop", query, StatusVars(**status))  # type: ignore[arg-type]


def test_status_variables_become_the_session() -> None:
    charset = (GBK, UTF8MB4, LATIN1)
    found = session_of(
        event(b"", error=1, sql_mode=4, flags2=EXPLICIT_TIMESTAMPS, charset=charset), ServerRules(101_118)
    )
    assert (found.database, found.sql_mode, found.thread, found.server.version) == ("shop", 4, 7, 101_118)
    assert found.encoding == Encoding("latin1")
    assert found.explicit_timestamps
    assert found.failed


def test_what_was_not_logged_is_not_known() -> None:
    found = session_of(event(b""), ServerRules(1))
    assert (found.encoding, found.sql_mode, found.explicit_timestamps, found.failed) == (UNKNOWN, 0, False, False)


@pytest.mark.parametrize(
    ("query", "client", "text"),
    [
        ("表".encode("gbk"), GBK, "表"),
        (b"\xe9\x80", LATIN1, "é€"),
        ("é".encode(), UTF8MB4, "é"),
        ("é".encode(), BINARY, "é"),
        ("é".encode(), 60_000, "é"),
        (b"\xe9", UTF8MB4, "\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_text_is_in_the_clients_character_set(query: bytes, client: int, text: str) -> None:
    assert text_of(event(query, charset=(client, client, client))) == text


def test_a_client_that_says_nothing_speaks_utf8() -> None:
    assert text_of(event("é".encode())) == "é"


@pytest.mark.parametrize(("collation", "name"), [(None, None), (63, "binary"), (8, "latin1"), (60_000, None)])
def test_names_of_character_sets(collation: int | None, name: str | None) -> None:
    assert charset_name(collation) == name
