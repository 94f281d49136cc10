"""Members of MERGE tables (MRG_MyISAM), whose rows are logged under the name of the MERGE table.

In: the names under which a micro-batch has row events. Out: the current and earlier members of each MERGE table among
these names. The server is asked only for names that are no tables of the mirror, and for the same names at most every
READ_EVERY_S seconds. If the server cannot list the members, all possible tables count as members. This happens if a
member was altered, so that the MERGE table cannot be opened, or if the table was dropped, so that its type is unknown.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from replica.errors import ReplicaError, ServerError
from replica.handshake.login.login import ask
from replica.handshake.primary.catalog import may_read
from replica.handshake.registration import MAX_CATALOG_BYTES, Query
from replica.schema.catalog import SYSTEM_DATABASES
from replica.schema.text.naming import quoted_table
from replica.schema.text.sql_tokens import tokenize

if TYPE_CHECKING:
    from collections.abc import Collection

    from replica.handshake.registration import Steps
    from replica.options.config import Endpoint
    from replica.schema.known_tables import TableName
    from streaming_source.options.source_options import SourceOptions

READ_EVERY_S: Final = 300.0
"""Seconds before the server is asked for the same names again: statements on unselected tables may change the members.
"""
_ENGINES: Final = "SELECT TABLE_SCHEMA, TABLE_NAME, ENGINE FROM information_schema.TABLES"
_MERGE: Final = "MRG_MyISAM"
_MEMBER: Final = "MyISAM"

_log = logging.getLogger(__name__)


class MergeTables:
    """MERGE tables of the server; one for each start of a mirror."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._read_at: dict[TableName, float] = {}
        self._members: dict[TableName, tuple[TableName, ...]] = {}

    def members(
        self, names: Collection[TableName], altered: Collection[TableName] = ()
    ) -> dict[TableName, tuple[TableName, ...]]:
        """Return the members of the given tables that are, or may have been, MERGE tables.

        Args:
            names: the tables under whose names rows were changed.
            altered: the tables with statements in the same micro-batch. They may have been members before.
        """
        now = time.monotonic()
        before: dict[TableName, tuple[TableName, ...]] = {}
        if any(now - self._read_at.get(name, -READ_EVERY_S) >= READ_EVERY_S for name in names):
            try:
                found = asyncio.run(ask(self._options.connection, partial(_members, names, altered)))
            except ReplicaError as error:
                _log.warning("the MERGE tables of the server cannot be read: %s", error.message)
                return {}
            before, self._members = self._members, found
            self._read_at = dict.fromkeys([*self._read_at, *names], now)
        members_of = {name: {*before.get(name, ()), *self._members.get(name, ())} for name in names}
        return {name: tuple(sorted(members)) for name, members in members_of.items() if members}


def _members(
    names: Collection[TableName], altered: Collection[TableName], _: Endpoint
) -> Steps[dict[TableName, tuple[TableName, ...]]]:
    rows = yield Query(_ENGINES, (), MAX_CATALOG_BYTES)
    engines = {(str(database), str(table)): engine for database, table, engine in rows}
    possible = (
        *(name for name, engine in engines.items() if engine == _MEMBER and name[0] not in SYSTEM_DATABASES),
        *altered,
    )
    found: dict[TableName, tuple[TableName, ...]] = {}
    for name in (name for name, engine in engines.items() if engine == _MERGE):
        try:
            answer = yield Query(f"SHOW CREATE TABLE {quoted_table(name)}")
        except ServerError:  # the table cannot be opened, or was dropped meanwhile
            found[name] = possible
        else:
            found[name] = members_of(str(answer[0][1]), name[0])
    for name in names:
        if name not in engines and (yield from may_read(*name)) == "absent":
            found[name] = possible
    return found


def members_of(sql: str, database: str) -> tuple[TableName, ...]:
    """Return the members that SHOW CREATE TABLE of a MERGE table lists; `database`: the database of the MERGE table."""
    tokens = list(tokenize(sql))
    begins = [number for number, token in enumerate(tokens) if token.upper == "UNION"]
    if not begins:
        return ()
    found: list[list[str]] = [[]]
    for token in tokens[begins[-1] + 3 :]:  # after UNION=(
        if token.kind == "symbol" and token.text == ")":
            break
        if token.kind == "symbol" and token.text == ",":
            found.append([])
        elif token.kind in ("name", "word"):
            found[-1].append(token.text)
    return tuple((parts[0], parts[1]) if len(parts) > 1 else (database, parts[0]) for parts in found if parts)
