"""Rows of one target that foreign keys changed, and the MERGE that changes them.

In: keys of rows, the action on each row, and the loss that caused it. Out: one commit, which can be repeated: deleted
rows stay deleted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from replica.rows.types.arrow_arrays import array_of_values
from streaming_source.mirroring.foreign_keys.lost_values import TOLD, numbers_of
from streaming_source.sinks.sql_text import braced
from streaming_source.sinks.upserts import sql_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from streaming_source.mirroring.foreign_keys.lost_values import Lost, Place
    from streaming_source.mirroring.foreign_keys.stale_rows import Key, Stale
    from streaming_source.mirroring.modes.mode import Mode


@dataclass(slots=True)
class FoundRows:
    """Rows of one target that foreign keys changed.

    Attributes:
        keys: the names of the key columns.
        told: the names of the foreign keys.
        gone: the keys of deleted rows.
        nulls: the columns that became NULL, by key.
    """

    keys: Sequence[str]
    told: set[str] = field(default_factory=set)
    gone: set[Key] = field(default_factory=set)
    nulls: dict[Key, set[str]] = field(default_factory=dict)
    _parts: list[pa.Table] = field(default_factory=list)
    _places: list[Place] = field(default_factory=list)
    _numbers: dict[tuple[Key, bool], int] = field(default_factory=dict)

    def add(self, stale: Stale, lost: Lost, nulls: Sequence[str] | None) -> Stale:
        """Add rows that were deleted, or whose columns `nulls` became NULL; return those not yet known as deleted."""
        first, losses = len(self._places), lost.of(stale.lost)
        part = stale.rows.select([f"k{number}" for number in range(len(self.keys))])
        for name in TOLD:
            part = part.append_column(name, losses.values.column(name))
        self._parts.append(part)
        self._places += losses.at
        for number, key in enumerate(stale.keys):
            self._numbers.setdefault((key, nulls is None), first + number)
        new = [row for row, key in enumerate(stale.keys) if key not in self.gone]
        if nulls is None:
            self.gone.update(stale.keys)
        else:
            for key in stale.keys:
                self.nulls.setdefault(key, set()).update(nulls)
        return stale.take(new)

    def write(self, spark: SparkSession, target: str, mode: Mode) -> None:
        """Change the rows in the target."""
        import pyarrow as pa
        from pyspark.sql.types import StructField, StructType

        columns = sorted({name for names in self.nulls.values() for name in names})
        rows = [*((key, True) for key in self.gone), *((key, False) for key in self.nulls if key not in self.gone)]
        numbers = [self._numbers[row] for row in rows]
        table = pa.concat_tables(self._parts).take(numbers_of(numbers))
        there = spark.table(target).schema
        schema = StructType([StructField(f"k{n}", there[key].dataType) for n, key in enumerate(self.keys)])
        schema = schema.add("gtid", "string").add("committed", "timestamp").add("sequence", "string")
        told = (f"{number:020d}.{ordinal:012d}" for number, ordinal in (self._places[number] for number in numbers))
        table = table.append_column("sequence", array_of_values(list(told), pa.string()))
        flags = {"deleted": [gone for _, gone in rows]}
        flags |= {f"n{n}": [name in self.nulls.get(key, ()) for key, _ in rows] for n, name in enumerate(columns)}
        for name, values in flags.items():
            table, schema = table.append_column(name, array_of_values(values, pa.bool_())), schema.add(name, "boolean")
        spark.sql(merge_of_found(target, self.keys, columns, mode), gone=spark.createDataFrame(table, schema))


def merge_of_found(target: str, keys: Sequence[str], nulls: Sequence[str], mode: Mode) -> str:
    """Return the MERGE from `{gone}`: it ends rows with `deleted`, and sets columns with a true flag n0, … to NULL."""
    same = " AND ".join(f"target.{sql_name(key)} <=> gone.k{number}" for number, key in enumerate(keys))
    names = [sql_name(name) for name in nulls]
    values = [f"target.{name} = if(gone.n{n}, NULL, target.{name})" for n, name in enumerate(names)]
    return f"MERGE INTO {braced(target)} AS target USING {{gone}} AS gone ON {same} {mode.cascaded(values)}"
