"""Foreign keys that cascade, kept in the control table and updated with the statements of micro-batches.

In: the facts of a micro-batch, the rows of the control table. Out: these rows with the foreign keys after the
micro-batch. Also out: all foreign keys that were valid in it, by the table that they refer to.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from streaming_source.mirroring.foreign_keys.links import ask_keys, keys_behind, links_by_parent
from streaming_source.mirroring.statements.statement_scope import statements_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from replica.schema.known_tables import TableName
    from replica.snapshot.check.cascades import Cascade
    from streaming_source.mirroring.batch.batch_facts import BatchFacts
    from streaming_source.mirroring.control.control_row import ControlRow
    from streaming_source.mirroring.foreign_keys.links import Link
    from streaming_source.mirroring.settings import MirrorSettings

_log = logging.getLogger(__name__)


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
        """Set the foreign keys of each table after the micro-batch."""
        said = {name: statements_of(facts, name) for name in {*rows, *(p for r in rows.values() for p in _parents(r))}}
        altered = {name for name, row in rows.items() if any(said.get(one) for one in (name, *_parents(row)))}
        wanted = {name for name, row in rows.items() if row.live and (row.foreign_keys is None or name in altered)}
        if not wanted:
            return
        for name, now in ask_keys(self._options, wanted).items():
            row = rows[name]
            effects = [one.effect for table in (name, *_parents(row)) for one in said.get(table, ())]
            keys = keys_behind(row.foreign_keys, now, effects)
            if keys != row.foreign_keys:
                _tell_of_foreign(name, keys, rows)
            rows[name] = row._replace(foreign_keys=tuple(keys))

    def _of_others(self, keys: Mapping[TableName, Iterable[Cascade]]) -> Mapping[TableName, Sequence[Cascade]]:
        """Return the foreign keys of tables outside the mirror to which its tables refer.

        They can delete rows of the mirror's tables, too. They are read once for each start, because statements on such
        tables are not in the stream.
        """
        known: Mapping[TableName, Iterable[Cascade]] = keys
        while new := {key.parent for some in known.values() for key in some} - keys.keys() - self._others.keys():
            known = ask_keys(self._options, new)
            self._others |= dict.fromkeys(new, ()) | known
        return self._others


def _parents(row: ControlRow) -> list[TableName]:
    return [key.parent for key in row.foreign_keys or ()]


def _tell_of_foreign(name: TableName, keys: Collection[Cascade], rows: Mapping[TableName, ControlRow]) -> None:
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
