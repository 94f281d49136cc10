"""The decision whether a query may continue after a change of a table: the option onSchemaChange.

`SchemaChanges.refusal` compares a table before and after a statement, and as the query was loaded with it. It returns
None, or the error with which the query ends right before the change. A change counts only if the query was loaded with
the earlier table. After a restart, the query is loaded with the new columns, so the same statement does not count. The
comparison is by names and Spark types of columns, so a moved column or a longer VARCHAR changes nothing.

If the values of a column no longer fit its type in a typed query, the query ends in every mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from replica.errors import ColumnsAddedError, SchemaError, UnsupportedColumnError
from replica.rows.tables.widening import fits
from replica.rows.types.types import output_column
from replica.schema.text.naming import column_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from replica.rows.types.types import ValuePolicy
    from replica.schema.known_tables import TableName
    from replica.schema.patterns import ColumnMatcher
    from replica.schema.table import ColumnSchema, TableSchema
    from streaming_source.options.source_options import OnSchemaChange
    from streaming_source.schema.following import TableStep
    from streaming_source.schema.row_schema import TableColumn

_AGAIN = "start the query again with the same checkpoint"
_UNDECODABLE = "a type that cannot be decoded"


@dataclass(frozen=True, slots=True)
class SchemaChanges:
    """The rule for one query.

    `columns`: those of a typed query, None for VARIANT. `loaded`: the tables as the query was loaded with them.
    `shown`: the columns whose changes count; None for all.
    """

    mode: OnSchemaChange
    columns: Sequence[TableColumn] | None
    loaded: Mapping[TableName, TableSchema]
    policy: ValuePolicy
    shown: ColumnMatcher | None = None

    def refusal(
        self, step: TableStep, name: TableName, before: TableSchema | None, after: TableSchema | None
    ) -> SchemaError | None:
        """Return the error with which the query ends before `step`; None if it may continue."""
        loaded = self.loaded.get(name)
        if after is None or loaded is None:
            return None
        known, new = self._types(loaded), self._types(after)
        old = known if before is None else self._types(before)
        where = f"{'.'.join(name)} is changed by the transaction {step.gtid}: {step.sql}"
        for column in self.columns or ():
            key = column_key(column.name)
            kind = new.get(key)
            if kind is not None and kind != old.get(key) == known.get(key) and not fits(kind, column.type):
                return _does_not_fit(where, column, kind)
        if self.mode == "ignore":
            return None
        added = [c.name for c in after.columns if column_key(c.name) in new.keys() - known.keys()]
        other = sorted(
            f"{n} is dropped" if n not in new else f"{n} is {new[n]} instead of {old[n]}"
            for n in old.keys() & known.keys()
            if new.get(n) != old[n] and known[n] == old[n]
        )
        if added and not other and self.mode == "add":
            return ColumnsAddedError(
                f"{where}. New columns: {', '.join(added)}. Everything before is delivered.",
                hint=f"onSchemaChange=add stops the query here: {_AGAIN} to get the new columns.",
            )
        if added or other:
            what = ", ".join([*(f"{n} is new" for n in added), *other])
            return SchemaError(
                f"{where}. {what[0].upper()}{what[1:]}. Everything before is delivered.",
                hint=f"onSchemaChange={self.mode} stops the query here. Make the sink ready for the change, then "
                f"{_AGAIN}. It continues at this place, with the columns that the table has then.",
            )
        return None

    def _types(self, table: TableSchema) -> dict[str, str]:
        """Return the Spark type of each column by its case-insensitive name."""
        return {
            column_key(column.name): self._type(column)
            for column in table.columns
            if not column.hidden and (self.shown is None or self.shown.fits(column.name))
        }

    def _type(self, column: ColumnSchema) -> str:
        try:
            return output_column(column, self.policy).spark
        except UnsupportedColumnError:
            return _UNDECODABLE


def _does_not_fit(where: str, column: TableColumn, kind: str) -> SchemaError:
    if fits(column.type, kind):
        hint = f"{_AGAIN[0].upper()}{_AGAIN[1:]}: then the column is {kind}, also for the rows before the change."
    else:
        hint = (
            "Start the query with a new checkpoint after this transaction and the new schema, or leave the column out "
            "(option columns), or read the table as VARIANT (tables)."
        )
    return SchemaError(
        f"{where}. Column {column.name} becomes {kind}, and in the query it is {column.type}: values would be lost. "
        "Everything before is delivered.",
        hint=hint,
    )
