"""The keys of the tables of a range, for the kernels that look at the keys of rows: one record per table map.

In: the compiled tables of a range, and the key's columns, as the catalog has them, of those that are asked for. Columns
meet by name, whichever table map is met. Refused: a table map without a column of the key, or with one of another type,
because then the rows cannot be told apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from replica.errors import KeyChangedError, SchemaError
from replica.native.arrays import address
from replica.rows.decode.kernel_row_keys import RowKeyRecord
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
    """The records of one range. `asked`: per table map whether its keys are asked for; `most`: columns of the longest
    key.
    """

    def __init__(
        self,
        slots: SlotTable,
        columns_of: Callable[[tuple[str, str]], Sequence[ColumnSchema] | None],
        unfit: dict[int, SchemaError] | None = None,
    ) -> None:
        """Make the records. `columns_of`: the key's columns in key order, None for tables that are not asked for.

        `unfit` takes the numbers of table maps that do not fit their table, with the error; they count as not asked
        for.

        Raises:
            SchemaError: a table map does not fit its table, and `unfit` does not take it.
        """
        count = len(slots.records)
        self.records: Records = np.zeros(count, RowKeyRecord.dtype)
        self.asked: npt.NDArray[np.bool_] = np.zeros(count, np.bool_)
        self.most = 1
        self._keep: list[npt.NDArray[Any]] = []
        for slot in range(count):
            table = slots.table(slot)
            key = columns_of(table.name)
            if key is None:
                continue
            try:
                self._ask(slot, table, key)
            except SchemaError as error:
                if unfit is None:
                    raise
                unfit[slot] = error

    def _ask(self, slot: int, table: CompiledTable, key: Sequence[ColumnSchema]) -> None:
        indexes = key_columns(table.table_map, [plan.name for plan in table.layout.columns], key)
        columns = table.table_map.columns
        for number, declared in zip(indexes, key, strict=True):
            if what := disagreement(columns[number], declared):
                told = f"column {declared.name} is {declared.column_type}, and its {what} in the binlog is another."
                raise _other_key(table.table_map, told)
        ranks = np.full(len(columns), -1, np.int64)
        ranks[indexes] = np.arange(len(indexes))
        try:
            parts = key_records(
                [key_part(number, columns[number], declared) for number, declared in zip(indexes, key, strict=True)]
            )
        except SchemaError as error:
            raise _other_key(table.table_map, error.message) from None
        self._keep += [ranks, parts]
        self.records[slot] = (address(parts), len(parts), address(ranks))
        self.asked[slot] = True
        self.most = max(self.most, len(indexes))


def key_columns(table_map: TableMapEvent, names: Sequence[str], key: Sequence[ColumnSchema]) -> list[int]:
    """Return the numbers of the key's columns on the wire, whose columns have these names."""
    places = {column_key(name): number for number, name in enumerate(names)}
    missing = [column.name for column in key if column_key(column.name) not in places]
    if missing:
        raise _other_key(table_map, f"they have no column {missing[0]}.")
    return [places[column_key(column.name)] for column in key]


def _other_key(table_map: TableMapEvent, why: str) -> KeyChangedError:
    return KeyChangedError(
        f"rows of {table_map.database}.{table_map.table} in the binlog do not have the key that the table is read by, "
        f"so it was altered meanwhile: {why}",
        hint=READ_AGAIN,
    )
