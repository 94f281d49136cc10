"""The rows of one target that foreign keys changed, and the MERGE that changes them there.

In: keys of rows, and what became of each. Out: one commit, which may come again: what is gone stays so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from replica.rows.types.arrow_arrays import array_of_values
from streaming_source.mirroring.cascading.lost_values import numbers_of
from streaming_source.queries.upserts import in_braces, sql_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from streaming_source.mirroring.cascading.stale_rows import Key, Stale


@dataclass(slots=True)
class FoundRows:
    """The rows of one target. `keys`: names of its key columns; `told`: the foreign keys; `gone`: the rows that went;
    `nulls`: the columns of a row that became NULL.
    """

    keys: Sequence[str]
    told: set[str] = field(default_factory=set)
    gone: set[Key] = field(default_factory=set)
    nulls: dict[Key, set[str]] = field(default_factory=dict)
    _parts: list[pa.Table] = field(default_factory=list)
    _numbers: dict[Key, int] = field(default_factory=dict)

    def add(self, stale: Stale, nulls: Sequence[str] | None) -> Stale:
        """Note that rows went, or that these columns of theirs became NULL; return those that are new as gone."""
        first = sum(part.num_rows for part in self._parts)
        self._parts.append(stale.rows.select([f"k{number}" for number in range(len(self.keys))]))
        for number, key in enumerate(stale.keys):
            self._numbers.setdefault(key, first + number)
        new = [row for row, key in enumerate(stale.keys) if key not in self.gone]
        if nulls is None:
            self.gone.update(stale.keys)
        else:
            for key in stale.keys:
                self.nulls.setdefault(key, set()).update(nulls)
        return stale.take(new)

    def write(self, spark: SparkSession, target: str) -> None:
        """Change the rows in the target."""
        import pyarrow as pa

        columns = sorted({name for names in self.nulls.values() for name in names})
        rows = [*self.gone, *(key for key in self.nulls if key not in self.gone)]
        table = pa.concat_tables(self._parts).take(numbers_of([self._numbers[key] for key in rows]))
        flags = {"deleted": [key in self.gone for key in rows]}
        flags |= {f"n{n}": [name in self.nulls.get(key, ()) for key in rows] for n, name in enumerate(columns)}
        for name, values in flags.items():
            table = table.append_column(name, array_of_values(values, pa.bool_()))
        spark.sql(merge_of_found(target, self.keys, columns), gone=spark.createDataFrame(table))


def merge_of_found(target: str, keys: Sequence[str], nulls: Sequence[str]) -> str:
    """Return the MERGE of `{gone}`: it deletes the rows with `deleted`, and of the others makes the columns NULL of
    which `n0`, … are true.
    """
    same = " AND ".join(f"target.{sql_name(key)} <=> gone.k{number}" for number, key in enumerate(keys))
    clauses = "WHEN MATCHED AND gone.deleted THEN DELETE"
    if nulls:
        names = [sql_name(name) for name in nulls]
        values = (f"target.{name} = if(gone.n{n}, NULL, target.{name})" for n, name in enumerate(names))
        clauses += f" WHEN MATCHED THEN UPDATE SET {', '.join(values)}"
    return f"MERGE INTO {in_braces(target)} AS target USING {{gone}} AS gone ON {same} {clauses}"
