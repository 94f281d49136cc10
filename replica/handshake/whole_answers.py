"""The limits that a server, or its init_connect, puts on statements: undone in our own sessions.

In: a session that was logged in. Out: one whose answers are whole. With `sql_select_limit` a server leaves out the rows
of a catalog beyond it, and with `max_statement_time` information_schema answers with what it has found by then: both
without an error (10.11 and 11.8), so that tables, columns and keys would be missing in silence.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from replica.errors import ServerError
from replica.handshake.registration import Query

if TYPE_CHECKING:
    from replica.handshake.registration import Steps

WITHOUT_LIMITS: Final = "SET SESSION sql_select_limit = 18446744073709551615, max_statement_time = 0"


def whole_answers() -> Steps[None]:
    """Undo the limits; a server that does not know them is no MariaDB, which is told by what is asked next."""
    with contextlib.suppress(ServerError):
        yield Query(WITHOUT_LIMITS)
