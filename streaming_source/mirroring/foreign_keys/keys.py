"""Foreign keys with which the server changes rows of the mirror's tables, kept in the control table.

`KeptKeys.links` returns the foreign keys that were valid in a micro-batch, by parent table, and updates the control
rows to its end. The server reports its current keys, which may be later than the micro-batch. So `keys_after` adds or
drops a key only if a statement names the key. `has_orphans` asks whether the server itself has orphans.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import SchemaError, ServerError
from replica.handshake.login.login import ask
from replica.handshake.registration import Query
from replica.schema.statements.statements import Verb
from replica.schema.text.naming import column_key, quoted, quoted_table
from replica.snapshot.check.facts import QUOTED, Cascade, ask_cascades
from streaming_source.mirroring.statements.alterations import statements_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from replica.handshake.registration import Steps
    from replica.options.config import Endpoint
    from replica.schema.effects.effect import StatementEffect
    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.batch.batch_facts import BatchFacts
    from streaming_source.mirroring.control.control_table import ControlRow
    from streaming_source.mirroring.settings import MirrorSettings
    from streaming_source.options.source_options import SourceOptions

ORPHANS_S: Final = 60
"""Most seconds for the query that looks for orphans. The query scans the child table once, and looks up the parent's
key.
"""
_log = logging.getLogger(__name__)


class Link(NamedTuple):
    """Foreign key of the table `child`."""

    child: TableName
    key: Cascade

    def action(self, event: str) -> str | None:
        """Return what an event of a parent row does to rows of the child: CASCADE, SET NULL, or None."""
        begin = f"ON {event} "
        return next((one.removeprefix(begin) for one in self.key.actions if one.startswith(begin)), None)


def links_by_parent(keys: Mapping[TableName, Iterable[Cascade]]) -> dict[TableName, list[Link]]:
    """Return foreign keys by their parent table."""
    found: dict[TableName, list[Link]] = {}
    for name, some in keys.items():
        for key in some:
            found.setdefault(key.parent, []).append(Link(name, key))
    return found


def keys_after(
    known: Sequence[Cascade] | None, now: Sequence[Cascade], statements: Iterable[StatementEffect]
) -> tuple[Cascade, ...]:
    """Return the foreign keys of a table after statements on the table or its parents.

    Args:
        known: the keys before the statements; None if they are unknown.
        statements: the statements of the micro-batch.
        now: the server's current keys, which may be later than the micro-batch.
    """
    if known is None:
        return tuple(now)
    parsed = [_key_statement(one) for one in statements]
    named = {name for one in parsed for name in one.names}
    current = {key.constraint: key for key in now}
    kept = []
    for key in known:
        stays = column_key(key.constraint) not in named and not any(one.removes for one in parsed)
        if key.constraint in current or stays:  # a later statement may have dropped it
            kept.append(current.pop(key.constraint, key))
    refers = any(one.refers for one in parsed)
    added = [key for key in current.values() if refers or column_key(key.constraint) in named]
    return (*kept, *added)


class _KeyStatement(NamedTuple):
    """Part of a statement that may concern foreign keys. Names are folded, as they are compared."""

    names: frozenset[str]
    refers: bool
    removes: bool


def _key_statement(statement: StatementEffect) -> _KeyStatement:
    try:
        head, tokens = statement.head, statement.tokens
    except SchemaError:  # an unreadable statement may concern any key
        names = frozenset(map(column_key, re.findall(r"[\w$]+", statement.sql)))
        return _KeyStatement(names, refers=True, removes=True)
    removes = head is not None and (head.verb in (Verb.DROP_TABLES, Verb.DROP_DATABASE) or head.or_replace)
    names = frozenset(column_key(token.text) for token in tokens if token.kind != "symbol")
    return _KeyStatement(names, "REFERENCES" in statement.words, removes)


def read_keys(options: SourceOptions, names: Collection[TableName]) -> dict[TableName, tuple[Cascade, ...]]:
    """Return the server's foreign keys of tables; a dropped table has none.

    Raises:
        DisconnectedError: the server cannot be reached.
    """

    def steps(_: Endpoint) -> Steps[dict[TableName, tuple[Cascade, ...]]]:
        yield Query(QUOTED)
        found = {}
        for name in sorted(names):
            keys = yield from ask_cascades(name)
            if keys is None:
                _log.warning("%s.%s: the server does not report whether a foreign key changes its rows", *name)
            found[name] = keys or ()
        return found

    return asyncio.run(ask(options.connection, steps))


def has_orphans(options: SourceOptions, link: Link) -> bool:
    """Return True if the server itself has orphans of a foreign key, or does not answer within ORPHANS_S.

    Raises:
        DisconnectedError: the server cannot be reached.
    """
    pairs = list(zip(link.key.columns, link.key.parent_columns, strict=True))
    same = " AND ".join(f"c.{quoted(column)} = p.{quoted(of)}" for column, of in pairs)
    named = " AND ".join(f"c.{quoted(column)} IS NOT NULL" for column, _ in pairs)
    child, parent = map(quoted_table, (link.child, link.key.parent))
    text = (
        f"SET STATEMENT max_statement_time = {ORPHANS_S} FOR SELECT 1 FROM {child} c LEFT JOIN {parent} p ON {same} "  # noqa: S608
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


class KeptKeys:
    """Foreign keys of a mirror; one for each start."""

    def __init__(self, settings: MirrorSettings) -> None:
        self._options = settings.options
        self._others: dict[TableName, tuple[Cascade, ...]] = {}

    def links(self, facts: BatchFacts, rows: dict[TableName, ControlRow]) -> dict[TableName, list[Link]]:
        """Return the foreign keys that were valid in a micro-batch, and update the rows to its end.

        Raises:
            DisconnectedError: the server cannot be reached.
        """
        earlier = {name: row.foreign_keys or () for name, row in rows.items()}
        self._learn(facts, rows)
        # A foreign key that the micro-batch drops may have cascaded before.
        keys = {name: dict.fromkeys((*(row.foreign_keys or ()), *earlier[name])) for name, row in rows.items()}
        return links_by_parent({**self._of_others(keys), **keys})

    def _learn(self, facts: BatchFacts, rows: dict[TableName, ControlRow]) -> None:
        """Set the foreign keys of each table to those after the micro-batch."""
        statements = {
            name: statements_of(facts, name) for name in {*rows, *(p for r in rows.values() for p in _parents(r))}
        }
        altered = {name for name, row in rows.items() if any(statements.get(one) for one in (name, *_parents(row)))}
        wanted = {name for name, row in rows.items() if row.live and (row.foreign_keys is None or name in altered)}
        if not wanted:
            return
        for name, now in read_keys(self._options, wanted).items():
            row = rows[name]
            effects = [one.effect for table in (name, *_parents(row)) for one in statements.get(table, ())]
            keys = keys_after(row.foreign_keys, now, effects)
            if keys != row.foreign_keys:
                _warn_of_foreign(name, keys, rows)
            rows[name] = row._replace(foreign_keys=tuple(keys))

    def _of_others(self, keys: Mapping[TableName, Iterable[Cascade]]) -> Mapping[TableName, Sequence[Cascade]]:
        """Return the foreign keys of tables outside the mirror to which its tables refer.

        Such a parent can delete rows of the mirror's tables, too. Its keys are read once for each start, because
        statements on tables outside the mirror are not in the stream.
        """
        known: Mapping[TableName, Iterable[Cascade]] = keys
        while new := {key.parent for some in known.values() for key in some} - keys.keys() - self._others.keys():
            known = read_keys(self._options, new)
            self._others |= dict.fromkeys(new, ()) | known
        return self._others


def _parents(row: ControlRow) -> list[TableName]:
    return [key.parent for key in row.foreign_keys or ()]


def _warn_of_foreign(name: TableName, keys: Collection[Cascade], rows: Mapping[TableName, ControlRow]) -> None:
    for key in keys:
        if key.parent not in rows:
            _log.warning(
                "%s.%s: its foreign key %s (%s) refers to %s.%s, which the mirror does not have. Select that "
                "table, too. Otherwise this one is re-snapshotted after changes of that one, every ten minutes at most",
                *name,
                key.constraint,
                ", ".join(key.actions),
                *key.parent,
            )
