"""Decoder of one table's rows into RecordBatches, part after part of a log.

`TableDecoder.of` returns the RecordBatches of the next part, in the order of the log. After an ALTER TABLE they have
other columns. If the ALTER was not logged, one part can have rows of several definitions. Then the part is decoded once
per definition and sorted, so memory stays bounded by one range.

Errors: everything that the decoder refuses, an XA COMMIT of any table without its rows, and row changes logged as
statements. The caller may skip the last kind. Rows before the fault are returned first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from replica.arrow.change_batch import change_record_batch, change_schema
from replica.errors import ProtocolError, StatementDmlError
from replica.row_reader.reading import mysql_gtids, of_file
from replica.row_reader.without_rows import StatementChanges
from replica.rows.decode.decode import DecodeOptions, RangeDecoder
from replica.rows.decode.slots import TableCache
from replica.rows.scan.scan import scan
from replica.rows.scan.xa import XaGroup, deliver, unprepared_error
from replica.rows.tables.layout import compile_layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from replica.errors import ReplicaError
    from replica.log_reader.part import Part
    from replica.protocol.rows.table_map import TableMapEvent
    from replica.row_reader.names import Names
    from replica.row_reader.reading import Reading
    from replica.row_reader.without_rows import WithoutRows
    from replica.rows.scan.xa import CarriedGroup
    from replica.rows.tables.target import TableTarget
    from replica.rows.types.types import OutputColumn, ValuePolicy

    Definition = tuple[OutputColumn, ...]

SHOWN_TEXT: Final = 200
"""Characters of a statement in an error message, enough to find the statement."""


@dataclass(slots=True)
class _OneDefinition:
    """`TableResolver` that selects only the rows with one definition of the table."""

    names: Names
    policy: ValuePolicy
    columns: Definition

    def resolve(self, table_map: TableMapEvent) -> TableTarget | None:
        """Return the definition that decodes these rows; None for other definitions and other tables."""
        target = self.names.resolve(table_map)
        if target is None:
            return None
        found = compile_layout(table_map, target.schema, None, self.policy).outputs
        return target if found == self.columns else None


class _Refusal(NamedTuple):
    """Number of a group of a part, and the error that ends the reading at that group."""

    group: int
    error: ReplicaError


@dataclass(slots=True)
class TableDecoder:
    """Reader of one table along a log; `statements_stop`: whether row changes without row events are an error."""

    reading: Reading
    options: DecodeOptions
    statements_stop: bool
    _tables: TableCache | None = None
    _decoders: dict[Definition, RangeDecoder] = field(default_factory=dict)
    _statements: StatementChanges | None = None

    def of(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Yield the row changes of the next part.

        Raises:
            StatementDmlError: A statement that was logged as text may have changed rows of the table.
            ReplicaError: An error of the decoder, with the file's name and the offset in the file.
        """
        if not part.piece.whole:  # the log has no commit of its transaction
            return
        names = self.reading.names
        if part.defines and names.learn(part):
            self._tables = None  # the same table maps may now have other column names
            self._decoders.clear()
        carried, groups = self.reading.carry(part), self.reading.groups(part)
        shown, refused = self.reading.shown(part), self._refused(part, carried)
        if refused is not None:
            before = np.arange(len(groups)) < refused.group
            shown = before if shown is None else shown & before
        if shown is None or shown.any():
            try:
                yield from self._decoded(part, carried, shown)
            except ProtocolError as error:
                raise of_file(error, part) from None
        if refused is not None:
            raise refused.error

    def _refused(self, part: Part, carried: Sequence[CarriedGroup]) -> _Refusal | None:
        """Find the first group that is an error for this reading, although the decoder accepts it."""
        shown, found = self.reading.shown(part), list[_Refusal]()
        unprepared: list[XaGroup] = []
        deliver(self.reading.scan(part), carried, unprepared)
        found += [_Refusal(xa.number, unprepared_error(xa)) for xa in unprepared if shown is None or shown[xa.number]]
        if self.statements_stop:
            self._statements = self._statements or StatementChanges(self.reading.names.wants)
            starts = self.reading.groups(part).start
            for change in self._statements.of(part):
                number = int(np.searchsorted(starts, change.start))
                if shown is None or shown[number]:
                    found.append(_Refusal(number, _without_rows(change)))
        return min(found, key=lambda refusal: refusal.group, default=None)

    def _decoded(
        self, part: Part, carried: Sequence[CarriedGroup], shown: npt.NDArray[np.bool_] | None
    ) -> Iterator[pa.RecordBatch]:
        definitions = self._definitions(part, carried)
        gtids = mysql_gtids(part, self.reading.groups(part))
        if len(definitions) == 1:
            yield from (batch for _, batch in self._rows(definitions[0], part, carried, shown, gtids))
            return
        pieces: list[tuple[int, pa.RecordBatch]] = []
        for columns in definitions:
            for group, batch in self._rows(columns, part, carried, shown, gtids):
                borders = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist(), len(group)]
                pieces += [(int(group[first]), batch.slice(first, end - first)) for first, end in pairwise(borders)]
        yield from (batch for _, batch in sorted(pieces, key=lambda piece: piece[0]))

    def _rows(
        self,
        columns: Definition,
        part: Part,
        carried: Sequence[CarriedGroup],
        shown: npt.NDArray[np.bool_] | None,
        gtids: pa.Array | None,
    ) -> Iterator[tuple[npt.NDArray[np.int32], pa.RecordBatch]]:
        """Yield RecordBatches of one definition, each with the group number of every row (int32)."""
        schema = change_schema(columns)
        decoder = self._decoders.get(columns)
        if decoder is None:
            resolver = _OneDefinition(self.reading.names, self.options.policy, columns)
            decoder = self._decoders[columns] = RangeDecoder(resolver, self.options, columns)
        decoded = decoder.decode(
            part.piece.data,
            checksum=part.piece.checksum,
            carried=carried,
            unprepared=[],  # `_refused` has raised the errors that matter
            only=None if shown is None else lambda _: shown,
        )
        for changes in decoded:
            yield changes.group, change_record_batch(changes, schema, gtids)

    def _definitions(self, part: Part, carried: Sequence[CarriedGroup]) -> list[Definition]:
        """List the definitions of the table's rows in a part, in order of appearance."""
        names, policy = self.reading.names, self.options.policy
        if self._tables is None:
            self._tables = TableCache(names, None, policy)
        found: dict[Definition, None] = {}
        for scanned in (*(scan(group.data, checksum=group.checksum) for group in carried), self.reading.scan(part)):
            slots = self._tables.slots(scanned)
            found |= dict.fromkeys(slots.table(slot).layout.outputs for slot in np.flatnonzero(slots.wanted).tolist())
        return list(found)


def _without_rows(change: WithoutRows) -> StatementDmlError:
    return StatementDmlError(
        f"{change.gtid} changed rows of {', '.join(change.names)} by a statement that was logged without them: "
        f"{change.text[:SHOWN_TEXT]}",
        hint='on_statement_dml="skip" continues without these changes; binlog_format=ROW logs rows.',
    )
