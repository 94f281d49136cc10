"""Settings of every session, set after the login and read back. A session in which the server keeps other values is
refused.

A server gives a new session its global variables, and then runs init_connect in it, for accounts without SUPER or
CONNECTION ADMIN. Both may change the meaning of a statement and the character set of its answer, or cut the answer
without an error. `login.log_in` runs `settle_session` on every connection, before any other statement. A session that
needs more (`snapshot/connection/connection.py`) adds its own settings to these.

A setting that the server does not know is left out. Such a server is no MariaDB, and later checks refuse it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import PrerequisiteError, ProtocolError, ServerError
from replica.handshake.registration import Query, string_list

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from replica.handshake.registration import Rows, Steps


class SessionSetting(NamedTuple):
    """Session variable with its required value.

    `value` is its value for SET. `shown` is the text that SHOW prints, or None to skip the check.
    """

    name: str
    value: str
    shown: str | None
    why: str


NAMES: Final = "SET NAMES utf8mb4 COLLATE utf8mb4_general_ci"
"""Statement that makes statements and answers UTF-8. The handshake requests UTF-8 too, but a server with
skip_character_set_client_handshake ignores the request, and init_connect may change the character set.
"""
SPOKEN: Final = dict.fromkeys(("character_set_client", "character_set_connection", "character_set_results"), "utf8mb4")
MOST_ROWS: Final = "18446744073709551615"

SETTINGS: Final = (
    SessionSetting("autocommit", "1", "ON", "a statement must not open a transaction that stays open"),
    # As a number, because with EMPTY_STRING_IS_NULL the text '' is NULL, which is refused.
    SessionSetting("sql_mode", "0", "", "modes change quotes, backslashes, operators, DATE, FLOAT and CHAR"),
    SessionSetting("time_zone", "'+00:00'", "+00:00", "TIMESTAMP columns and clocks are read in UTC"),
    SessionSetting("timestamp", "DEFAULT", None, "the server's clock would stand still"),
    SessionSetting("system_versioning_asof", "DEFAULT", "DEFAULT", "SELECT would return the rows of another time"),
    SessionSetting("sql_select_limit", MOST_ROWS, MOST_ROWS, "answers would be cut, catalogs too"),
    SessionSetting("max_statement_time", "0", "0.000000", "information_schema would answer with a part"),
    SessionSetting("sql_big_selects", "1", "ON", "max_join_size would refuse the questions to the catalog"),
    SessionSetting("sql_quote_show_create", "1", "ON", "SHOW CREATE TABLE is read with its quotes"),
    SessionSetting("max_sort_length", "1024", None, "ORDER BY would compare the first bytes only"),
    SessionSetting("lc_messages", "'en_US'", None, "errors are shown to people who search for their text"),
    SessionSetting("wait_timeout", "28800", None, "sessions stand idle between two questions"),
    SessionSetting("net_read_timeout", "30", None, "a slow line would be cut off"),
    SessionSetting("net_write_timeout", "60", None, "a reader that is busy for a moment would be cut off"),
)
"""Settings of `settle_session`. Values are those of a server with default settings, except time zone and modes."""

_REFUSALS: Final = frozenset({1227, 1193, 1231, 1232, 1238, 1290, 1064, 1115, 1649})
"""Errors about a single variable: unknown, not settable by this account or at all, or not to this value."""


_WANTED: Final = SPOKEN | {one.name: one.shown for one in SETTINGS if one.shown is not None}
_MOST_BYTES: Final = 64 << 10


def set_session(settings: Iterable[SessionSetting]) -> str:
    """Return the statement that sets these variables."""
    return "SET SESSION " + ", ".join(f"{one.name} = {one.value}" for one in settings)


def settle_session() -> Steps[Mapping[str, str]]:
    """Set SETTINGS and the character set, and return the resulting values for `refuse_others`."""
    yield Query(NAMES, most_bytes=_MOST_BYTES)
    try:
        yield Query(set_session(SETTINGS), most_bytes=_MOST_BYTES)
    except ServerError as error:
        if not _is_of_a_variable(error):
            raise
        for one in SETTINGS:
            yield from _set_if_known(one)
    return variables_of((yield Query(show_session(_WANTED), most_bytes=_MOST_BYTES)))


def refuse_others(found: Mapping[str, str]) -> None:
    """Refuse a session whose settings differ from SETTINGS.

    Raises:
        PrerequisiteError: settings differ; the message names them.
        ProtocolError: the server returned no settings.
    """
    if not found:
        raise ProtocolError("the server does not report the settings of its session")
    differing = differences(found, {name: shown for name, shown in _WANTED.items() if name in found or name in SPOKEN})
    if differing:
        raise not_kept(", ".join(differing))


def _set_if_known(one: SessionSetting) -> Steps[None]:
    try:
        yield Query(set_session((one,)), most_bytes=_MOST_BYTES)
    except ServerError as error:
        if not _is_of_a_variable(error):
            raise


def _is_of_a_variable(error: ServerError) -> bool:
    return error.code in _REFUSALS


def show_session(names: Iterable[str]) -> str:
    """Return the statement that reads these variables. SHOW leaves out variables that a server does not know."""
    listed = string_list(names)
    return f"SHOW SESSION VARIABLES WHERE Variable_name IN ({listed})"


def variables_of(rows: Rows) -> dict[str, str]:
    """Return the rows of `show_session` as a dictionary with lower-case names."""
    return {(name or "").lower(): value or "" for name, value in rows}


def differences(found: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """Return the settings that differ from the wanted values, in words."""
    return [f"{name} is {found.get(name)!r}" for name, value in wanted.items() if found.get(name) != value]


def not_kept(what: str) -> PrerequisiteError:
    """Return the error of a session that does not keep its settings. `what` names the differences."""
    return PrerequisiteError(
        f"the session does not keep the settings that it was given: {what}.",
        hint="Find out what sets them in every session: init_connect of the server, or a proxy in between.",
    )
