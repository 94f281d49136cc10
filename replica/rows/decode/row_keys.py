"""Key records of the tables of a range, one per table map, for kernels that read the keys of rows.

`RowKeys` matches the catalog's key columns to each table map by name. A table map that lacks a key column, or has one
of another type, is refused, because its rows cannot be identified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from replica.errors import KeyChangedError, SchemaError
from replica.native.arrays import address
from replica.rows.decode.kernels.kernel_frontier import RowKeyRecord
from replica.rows.tables.match import disagreement
from replica.rows.types.keys import READ_AGAIN, key_part, key_records
from replica.schema.text.naming import column_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from replica.native.record import Records
    from replica.protocol.rows.table_map import TableMapEvent
    from replica.rows.decode.slots import CompiledTable, SlotTable
    from replica.schema.table import ColumnSchema


class RowKeys:
    """The records of one range.

    Attributes:
        records: RowKeyRecord per table map.
        wanted: Mask of the table maps whose keys are read.
        most: Number of columns of the longest key.
    """

    def __init__(
        self,
        slots: SlotTable,
        columns_of: Callable[[tuple[str, str]], Sequence[ColumnSchema] | None],
        unfit: dict[int, SchemaError] | None = None,
    ) -> None:
        """Make the records.

        Args:
            slots: The tables of the range.
            columns_of: Returns the key columns of a table in key order, None for a table whose key is not read.
            unfit: Receives the numbers of table maps that do not fit their table, with the error. Their keys are not
                read.

        Raises:
            SchemaError: A table map does not fit its table, and `unfit` is None.
        """
        count = len(slots.records)
        self.records: Records = np.zeros(count, RowKeyRecord.dtype)
        self.wanted: npt.NDArray[np.bool_] = np.zeros(count, np.bool_)
        self.most = 1
        self._keep: list[npt.NDArray[Any]] = []
        for slot in range(count):
            table = slots.table(slot)
            key = columns_of(table.name)
            if key is None:
                continue
            try:
                self._add(slot, table, key)
            except SchemaError as error:
                if unfit is None:
                    raise
                unfit[slot] = error

    def _add(self, slot: int, table: CompiledTable, key: Sequence[ColumnSchema]) -> None:
        indexes = key_columns(table.table_map, [plan.name for plan in table.layout.columns], key)
        columns = table.table_map.columns
        for number, declared in zip(indexes, key, strict=True):
            if what := disagreement(columns[number], declared):
                why = f"column {declared.name} is {declared.column_type}, but its {what} in the binlog is different."
                raise _key_changed_error(table.table_map, why)
        ranks = np.full(len(columns), -1, np.int64)
        ranks[indexes] = np.arange(len(indexes))
        try:
            parts = key_records(
                [key_part(number, columns[number], declared) for number, declared in zip(indexes, key, strict=True)]
            )
        except SchemaError as error:
            raise _key_changed_error(table.table_map, error.message) from None
        self._keep += [ranks, parts]
        self.records[slot] = (address(parts), len(parts), address(ranks))
        self.wanted[slot] = True
        self.most = max(self.most, len(indexes))


def key_columns(table_map: TableMapEvent, names: Sequence[str], key: Sequence[ColumnSchema]) -> list[int]:
    """Return the wire numbers of the key's columns; `names` are the names of the wire columns."""
    places = {column_key(name): number for number, name in enumerate(names)}
    missing = [column.name for column in key if column_key(column.name) not in places]
    if missing:
        raise _key_changed_error(table_map, f"they have no column {missing[0]}.")
    return [places[column_key(column.name)] for column in key]


def _key_changed_error(table_map: TableMapEvent, why: str) -> KeyChangedError:
    return KeyChangedError(
        f"rows of {table_map.database}.{table_map.table} in the binlog do not have the key that the snapshot uses, "
        f"so the table was altered meanwhile: {why}",
        hint=READ_AGAIN,
    )
