"""The foreign keys by which the server changes rows of a mirror's tables, as they are known at its position.

In: the rows of the control table, the server's definitions, the statements of a batch. Out: the keys of each table. The
server tells of now, which may be later than the batch: a key comes and goes with the statement that names it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import SchemaError, ServerError
from replica.handshake.ask import ask
from replica.handshake.registration import Query
from replica.schema.statements.statements import Verb
from replica.schema.text.naming import column_key
from replica.snapshot.check.cascades import QUOTED, Cascade, ask_cascades
from replica.snapshot.rows.select_list import quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from replica.handshake.registration import Steps
    from replica.options.config import Endpoint
    from replica.schema.effects.effect import StatementEffect
    from replica.schema.known_tables import TableName
    from streaming_source.options.source_options import SourceOptions

ORPHANS_S: Final = 60
"""How long the server may look for rows that name none: it goes over the table once, and over the other's key."""

_log = logging.getLogger(__name__)


class Link(NamedTuple):
    """A foreign key of the table `child`."""

    child: TableName
    key: Cascade

    def action(self, event: str) -> str | None:
        """Return what an event of the parent does to rows of the child: CASCADE, SET NULL, or nothing."""
        begin = f"ON {event} "
        return next((one.removeprefix(begin) for one in self.key.actions if one.startswith(begin)), None)


def links_by_parent(keys: Mapping[TableName, Iterable[Cascade]]) -> dict[TableName, list[Link]]:
    """Return the keys of tables by the table that they refer to."""
    found: dict[TableName, list[Link]] = {}
    for name, some in keys.items():
        for key in some:
            found.setdefault(key.parent, []).append(Link(name, key))
    return found


def keys_behind(
    known: Sequence[Cascade] | None, now: Sequence[Cascade], statements: Iterable[StatementEffect]
) -> tuple[Cascade, ...]:
    """Return the keys of a table behind statements on it or its parents; `now`: as the server has them."""
    if known is None:
        return tuple(now)
    told = [_told(one) for one in statements]
    named = {name for one in told for name in one.names}
    there = {key.constraint: key for key in now}
    kept = []
    for key in known:
        stays = column_key(key.constraint) not in named and not any(one.removes for one in told)
        if key.constraint in there or stays:  # one that the server has no more may have gone by a later statement
            kept.append(there.pop(key.constraint, key))
    refers = any(one.refers for one in told)
    added = [key for key in there.values() if refers or column_key(key.constraint) in named]
    return (*kept, *added)


class _Told(NamedTuple):
    """The part of a statement that may be about foreign keys. `names`: as they are compared."""

    names: frozenset[str]
    refers: bool
    removes: bool


def _told(statement: StatementEffect) -> _Told:
    try:
        head, tokens = statement.head, statement.tokens
    except SchemaError:  # it may be about any key
        names = frozenset(map(column_key, re.findall(r"[\w$]+", statement.sql)))
        return _Told(names, refers=True, removes=True)
    removes = head is not None and (head.verb in (Verb.DROP_TABLES, Verb.DROP_DATABASE) or head.or_replace)
    names = frozenset(column_key(token.text) for token in tokens if token.kind != "symbol")
    return _Told(names, "REFERENCES" in statement.words, removes)


def ask_keys(options: SourceOptions, names: Collection[TableName]) -> dict[TableName, tuple[Cascade, ...]]:
    """Ask the server for the keys of tables; one that is gone has none.

    Raises:
        DisconnectedError: it cannot be reached.
    """

    def steps(_: Endpoint) -> Steps[dict[TableName, tuple[Cascade, ...]]]:
        yield Query(QUOTED)
        found = {}
        for name in sorted(names):
            keys = yield from ask_cascades(name)
            if keys is None:
                _log.warning("%s.%s: the server does not tell whether a foreign key changes its rows", *name)
            found[name] = keys or ()
        return found

    return asyncio.run(ask(options.connection, steps))


def has_orphans(options: SourceOptions, link: Link) -> bool:
    """Tell whether the server has rows that name no row by a foreign key, or does not say so in ORPHANS_S.

    Raises:
        DisconnectedError: it cannot be reached.
    """
    pairs = list(zip(link.key.columns, link.key.parent_columns, strict=True))
    same = " AND ".join(f"c.{quoted(column)} = p.{quoted(of)}" for column, of in pairs)
    named = " AND ".join(f"c.{quoted(column)} IS NOT NULL" for column, _ in pairs)
    child, parent = (".".join(map(quoted, name)) for name in (link.child, link.key.parent))
    text = (
        f"SET STATEMENT max_statement_time = {ORPHANS_S} FOR SELECT 1 FROM {child} c LEFT JOIN {parent} p ON {same} "  # noqa: S608  (names are quoted)
        f"WHERE {named} AND p.{quoted(pairs[0][1])} IS NULL LIMIT 1"
    )

    def steps(_: Endpoint) -> Steps[bool]:
        try:
            rows = yield Query(text)
        except ServerError as error:
            _log.warning("%s.%s: %s", *link.child, error)
            return True
        return bool(rows)

    return asyncio.run(ask(options.connection, steps))
