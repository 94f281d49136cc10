"""A target whose table is read again, in a mode that keeps what was: its rows stay, as rows of the past.

In: the table's old row of the control table, and the batch that the reading begins with. Out: the target with the
columns that its table has now and all its rows ended; the rows that are read then come on top. Where the batch comes
again, it goes on after the commits that are in the target.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.schema.effects.effect import StatementEffect
from streaming_source.mirroring.batch.batch_facts import StatementRow
from streaming_source.mirroring.control.control_row import NO_BATCH
from streaming_source.mirroring.modes.choose import mode_of
from streaming_source.mirroring.modes.kinds import own_columns
from streaming_source.mirroring.writers.versions import AGAIN
from streaming_source.schema.target_modes import CURRENT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from replica.protocol.gtid import GtidPosition
    from streaming_source.mirroring.control.control_row import ControlRow
    from streaming_source.mirroring.writers.target_format import TableWriter
    from streaming_source.mirroring.writers.versions import Commit
    from streaming_source.ruling.target_columns import TargetColumn

_ORDINAL: Final = 899_999_999_999
"""The place of a reading among the changes of a transaction: behind all of them, before the rows that are read."""


class NewReading(NamedTuple):
    """The beginning of a reading: the row of the table before it, the position at the end of the batch, its token."""

    row: ControlRow
    position: GtidPosition
    commit: Commit

    def keeps(self, first: ControlRow) -> bool:
        """Tell whether there is something to keep for a target that begins with this row, by the same rule."""
        same = (self.row.mode, self.row.rules) == (first.mode, first.rules)
        return same and self.row.mode != CURRENT and self.row.batch != NO_BATCH


def keep_rows(target: TableWriter, reading: NewReading, columns: Sequence[TargetColumn]) -> None:
    """End all rows of a target, and give it these columns."""
    at = reading.commit.of(AGAIN)
    if reading.row.target_names is not None:
        names = names_there(reading.row.target_names, columns, own_columns(reading.row.mode))
        target.rename(names, at.step("names"))
    target.alter(columns, at)
    mode_of(reading.row.mode, reading.row.keys).all_gone(target, _place(reading), "again", at)
    target.finish(1, at)


def names_there(
    names: Mapping[str, str], columns: Sequence[TargetColumn], own: Sequence[TargetColumn]
) -> dict[str, str | None]:
    """Return what the columns of a target are called in it; None: it does not have them. `names`: what those of its
    table were called, by their names now. A column that the table's rule renames keeps its name on the server.
    """
    mode = {column.name for column in own}
    old = {column.name: names.get(column.of) for column in columns if column.name not in mode}
    same = {column.name: column.of for column in columns}
    return {name: name if before == same[name] else before for name, before in old.items()}


def _place(reading: NewReading) -> StatementRow:
    """Return the place at which the old rows end: behind the last change that the target has."""
    last = next(iter(reading.position), None)
    ended = reading.row.committed_at or dt.datetime.now(dt.UTC)
    return StatementRow(
        domain=0 if last is None else last.domain_id,
        number=0 if last is None else last.seq_no,
        ordinal=_ORDINAL,
        gtid=str(reading.position),
        effect=StatementEffect(""),
        committed_us=int(ended.timestamp()) * 1_000_000,
    )
