"""The row of a mirrored table in the control table: its columns, its states, and what they tell of the table.

In and out: values; nothing is read or written here.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.schema.stored import tables_from_json, tables_to_json
from replica.table_reader.cascades import Cascade

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from replica.schema.known_tables import TableName
    from replica.schema.table import TableSchema
    from streaming_source.mirroring.statements.column_defaults import Defaults

READING: Final = "reading"
CURRENT: Final = "current"
FAILED: Final = "failed"
DROPPED: Final = "dropped"
NO_BATCH: Final = -1
"""The batch of a target that was just made."""
_DEFAULTS: Final = "defaults"
_CASCADES: Final = "cascades"
_MISSED: Final = "missed"
_PUT_OFF: Final = "put_off"
_NAMES: Final = "names"
_BEFORE: Final = "before"
_MADE: Final = "made"

COLUMNS: Final = (
    ("mirror", "STRING", "which mirror writes: the id of its query"),
    ("source_database", "STRING", "database of the table on the server"),
    ("source_table", "STRING", "its name there"),
    ("target", "STRING", "the target as SQL names it"),
    (
        "mode",
        "STRING",
        "what the target holds: current, soft_delete, history or append_log",
    ),
    ("state", "STRING", "reading, current, failed (set aside: see error), or dropped"),
    ("keys", "ARRAY<STRING>", "the columns that tell rows apart"),
    ("position", "STRING", "GTID position up to which the target is what the server had"),
    ("batch", "BIGINT", "the last micro-batch that is in the target"),
    ("rows", "BIGINT", "rows read and changes applied since the beginning"),
    ("committed_at", "TIMESTAMP", "commit time of the last change in the target"),
    ("lag", "DOUBLE", "seconds from the commit of the newest transaction up to the position to `updated_at`"),
    ("updated_at", "TIMESTAMP", "when this row was last written"),
    ("error", "STRING", "why the table was set aside, or is to be read again"),
    (
        "definition",
        "STRING",
        "the table's definition at the position, the defaults of its columns, and foreign keys that cascade",
    ),
    ("defined_at", "STRING", "GTID position that the definition was first read at"),
    ("again", "STRING", "the word of snapshotAgain that the target was last made for"),
    ("rules", "STRING", "the rule that the target is made by, as JSON; NULL for a table that is copied as it is"),
    ("waits_for", "STRING", "the request to read the table again that is not followed yet"),
    ("tries", "INT", "how often the table was begun again since it was last current"),
    ("writer", "STRING", "what wrote the last rows: native, or spark with the reason"),
)
"""Name, type and meaning of each column."""


class PutOff(NamedTuple):
    """Tell that what foreign keys cascaded into a table is still to be followed, because rows of it, or of tables above
    it, were being read. `since`: GTID position behind which that may lie; `began`: the one at which the reading began,
    which saw what was before but for commits under way; `lost`: rows above it may have gone since; `foreign`: in tables
    that the mirror does not have, while the reading went on.
    """

    since: str
    began: str
    lost: bool
    foreign: bool = False


def defined(table: TableSchema, defaults: Defaults) -> str:
    """Return a table's definition with the defaults of its columns as text."""
    value = json.loads(tables_to_json({(table.database, table.table): table}))
    return json.dumps(value | {_DEFAULTS: defaults}, separators=(",", ":"), ensure_ascii=False)


class ControlRow(NamedTuple):
    """The state of one mirrored table. The fields are the columns of the control table."""

    mirror: str
    source_database: str
    source_table: str
    target: str
    mode: str
    state: str
    keys: tuple[str, ...]
    position: str
    batch: int
    rows: int
    committed_at: dt.datetime | None
    lag: float | None
    updated_at: dt.datetime
    error: str | None
    definition: str
    defined_at: str
    again: str | None
    rules: str | None
    waits_for: str | None = None
    tries: int = 0
    writer: str | None = None

    @property
    def name(self) -> TableName:
        """The table on the server."""
        return self.source_database, self.source_table

    @property
    def table(self) -> TableSchema:
        """The table's definition at the position."""
        return tables_from_json(self.definition)[self.name]

    @property
    def defaults(self) -> Defaults:
        """What stands behind DEFAULT at the position, by column."""
        found: Defaults = json.loads(self.definition).get(_DEFAULTS, {})
        return found

    def defined(self, table: TableSchema, defaults: Defaults) -> ControlRow:
        """Return the row with another definition of its table."""
        known = json.loads(self.definition)
        kept = {key: known[key] for key in (_CASCADES, _MISSED, _PUT_OFF, _NAMES, _BEFORE, _MADE) if key in known}
        return self._replace(definition=_more(defined(table, defaults), kept))

    @property
    def cascades(self) -> tuple[Cascade, ...] | None:
        """The foreign keys by which the server changes rows of the table; None: not asked for yet."""
        if f'"{_CASCADES}"' not in self.definition:
            return None
        found = json.loads(self.definition).get(_CASCADES)
        return None if found is None else tuple(_cascade(*one) for one in found)

    def with_cascades(self, keys: Sequence[Cascade]) -> ControlRow:
        """Return the row with other foreign keys."""
        return self._replace(definition=_more(self.definition, {_CASCADES: keys}))

    @property
    def missed(self) -> str | None:
        """Why rows of the target may not be what a foreign key made of them, so that the table is to be read again."""
        if f'"{_MISSED}"' not in self.definition:
            return None
        found: str | None = json.loads(self.definition).get(_MISSED)
        return found

    def with_missed(self, why: str) -> ControlRow:
        """Return the row of a table that is to be read again for its foreign keys."""
        return self._replace(definition=_more(self.definition, {_MISSED: why}))

    @property
    def put_off(self) -> PutOff | None:
        """What foreign keys changed in the target and is still to be followed; None: nothing."""
        if f'"{_PUT_OFF}"' not in self.definition:
            return None
        found = json.loads(self.definition).get(_PUT_OFF)
        return None if found is None else PutOff(*found)

    def with_put_off(self, put_off: PutOff | None) -> ControlRow:
        """Return the row with other cascades to follow."""
        return self._replace(definition=_more(self.definition, {_PUT_OFF: put_off}))

    @property
    def names(self) -> dict[str, str] | None:
        """What columns of the definition are called in the target, where statements renamed them since it was last
        written; None: the same.
        """
        if f'"{_NAMES}"' not in self.definition:
            return None
        found: dict[str, str] | None = json.loads(self.definition).get(_NAMES)
        return found

    def with_names(self, names: Mapping[str, str]) -> ControlRow:
        """Return the row with other names in the target."""
        return self._replace(definition=_more(self.definition, {_NAMES: names}))

    @property
    def made_at(self) -> dt.datetime | None:
        """When the target was made: its table's changes were committed later. None: not known."""
        if f'"{_MADE}"' not in self.definition:
            return None
        found = json.loads(self.definition).get(_MADE)
        return None if found is None else dt.datetime.fromtimestamp(found, dt.UTC)

    def with_made_at(self, moment: dt.datetime) -> ControlRow:
        """Return the row of a target that is made now."""
        return self._replace(definition=_more(self.definition, {_MADE: int(moment.timestamp())}))

    @property
    def before(self) -> tuple[int, ControlRow] | None:
        """The table before the reading that goes on, and the batch that the reading began with; None: nothing was."""
        if f'"{_BEFORE}"' not in self.definition:
            return None
        found = json.loads(self.definition).get(_BEFORE)
        if found is None:
            return None
        number, keys, position, batch, rows, committed_us, definition, defined_at = found
        committed = None if committed_us is None else dt.datetime.fromtimestamp(committed_us / 1_000_000, dt.UTC)
        old = self._replace(
            keys=tuple(keys),
            position=position,
            batch=batch,
            rows=rows,
            committed_at=committed,
            definition=definition,
            defined_at=defined_at,
        )
        return number, old

    def with_before(self, before: tuple[int, ControlRow] | None) -> ControlRow:
        """Return the row of a table that is read again, with what it was before; None: its rows are all there."""
        if before is None:
            known = json.loads(self.definition)
            known.pop(_BEFORE, None)
            return self._replace(definition=_text(known))
        number, old = before
        committed = None if old.committed_at is None else int(old.committed_at.timestamp() * 1_000_000)
        told = (number, old.keys, old.position, old.batch, old.rows, committed, old.definition, old.defined_at)
        return self._replace(definition=_more(self.definition, {_BEFORE: told}))

    @property
    def live(self) -> bool:
        """Whether changes of the table go into its target."""
        return self.state in (READING, CURRENT) and self.waits_for is None


def _more(definition: str, more: Mapping[str, object]) -> str:
    return _text(json.loads(definition) | more)


def _text(value: Mapping[str, object]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _cascade(
    constraint: str,
    parent: Sequence[str],
    actions: Sequence[str],
    columns: Sequence[str],
    parent_columns: Sequence[str],
) -> Cascade:
    """Return a foreign key as JSON has it."""
    database, table = parent
    return Cascade(constraint, (database, table), tuple(actions), tuple(columns), tuple(parent_columns))
