"""Rows of a target that the server changed by a foreign key, found by the values that their parents lost.

`stale_rows` finds the rows that refer to lost values. `unchanged_since` keeps the rows that have no later change of
their own. `orphan_rows` finds rows without a parent row. `FoundRows` collects the rows of one target and writes them as
one commit, which can be repeated.

A row is in doubt if its order relative to the loss is unknown, or if a collation may treat its value as equal to the
lost value. Text is compared by Unicode's rules, without case, accents and trailing spaces. Only identical text is
certain.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from replica.rows.types.arrow_arrays import array_of_values
from streaming_source.mirroring.foreign_keys.lost_values import (
    TRANSACTION_COLUMNS,
    change_places,
    collected,
    numbers_of,
    places,
)
from streaming_source.mirroring.writers.choose import open_target
from streaming_source.sinks.sql_text import braced, identifier
from streaming_source.sinks.upserts import sql_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from streaming_source.mirroring.foreign_keys.lost_values import Lost, Place
    from streaming_source.mirroring.modes.mode import Mode

MOST_LITERALS: Final = 1_000
"""Most values that are compared as literals, so that Spark skips files without these values. More values are joined."""
_LITERALS: Final = frozenset({"byte", "short", "integer", "long", "decimal", "string", "binary", "date"})
"""Types whose literals do not depend on the session's time zone."""
_ALIKE: Final = "UNICODE_CI_AI_RTRIM"

Key = tuple[Any, ...]


class Referring(NamedTuple):
    """Columns of a child's target; all names are those of the target.

    Attributes:
        columns: the columns of the foreign key.
        keys: the key columns of the child.
        shown: the columns to which foreign keys of other tables refer.
    """

    columns: Sequence[str]
    keys: Sequence[str]
    shown: Sequence[str]


class Stale(NamedTuple):
    """Rows of a target that lost their parent.

    Attributes:
        rows: one row each, with their keys k0, … and their shown columns r0, ….
        keys: the key of each row.
        lost: the number of the lost value of each row.
        alike: for each row, whether its value is identical to the lost value.
    """

    rows: pa.Table
    keys: list[Key]
    lost: list[int]
    alike: list[bool]

    def take(self, chosen: Sequence[int]) -> Stale:
        """Return the rows at these row numbers."""
        return Stale(
            self.rows.take(numbers_of(chosen)),
            [self.keys[row] for row in chosen],
            [self.lost[row] for row in chosen],
            [self.alike[row] for row in chosen],
        )


def stale_rows(target: DataFrame, lost: Lost, by: Referring) -> Stale:
    """Return the rows that refer to a lost value.

    Raises:
        TooManyRowsError: there are more rows than the driver takes.
    """
    found = collected(_naming(_named_rows(target, by), lost.values, len(by.columns)))
    numbers = {value: number for number, value in enumerate(_tuples(lost.values, "v", len(by.columns)))}
    exact = [numbers.get(value) for value in _tuples(found, "f", len(by.columns))]
    return Stale(
        found.drop_columns([f"f{n}" for n in range(len(by.columns))]),
        _tuples(found, "k", len(by.keys)),
        [number or 0 for number in exact],
        [number is not None for number in exact],
    )


def _named_rows(target: DataFrame, by: Referring) -> DataFrame:
    """Return rows of a target with the columns f0, … of the foreign key, k0, … and r0, …."""
    from pyspark.sql import functions as f

    named = (("f", by.columns), ("k", by.keys), ("r", by.shown))
    return target.select(
        *(f.col(identifier(name)).alias(f"{kind}{n}") for kind, names in named for n, name in enumerate(names))
    )


def _naming(rows: DataFrame, values: pa.Table, width: int) -> DataFrame:
    """Return the rows that refer to one of the values v0, …, or to a value that a collation may treat as equal."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructField, StructType

    kinds = [rows.schema[f"f{number}"].dataType for number in range(width)]

    def alike(value: Column, number: int) -> Column:
        return f.collate(value, _ALIKE) if kinds[number].typeName() == "string" else value

    if width == 1 and values.num_rows <= MOST_LITERALS and kinds[0].typeName() in _LITERALS:
        literals = [alike(f.lit(value), 0) for value in values.column("v0").to_pylist()]
        return rows.where(alike(f.col("f0"), 0).isin(literals))
    schema = StructType([StructField(f"v{number}", kind) for number, kind in enumerate(kinds)])
    local = f.broadcast(rows.sparkSession.createDataFrame(values.select(schema.names), schema))
    pairs = (alike(f.col(f"f{n}"), n) == alike(f.col(f"v{n}"), n) for n in range(width))
    return rows.join(local, reduce(and_, pairs), "left_semi")


def _tuples(table: pa.Table, kind: str, width: int) -> list[Key]:
    """Return the values of columns as one tuple for each row."""
    columns = [table.column(f"{kind}{number}").to_pylist() for number in range(width)]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def orphan_rows(target: DataFrame, parents: DataFrame, to: Sequence[str], by: Referring) -> Stale:
    """Return child rows whose foreign key has no matching parent row.

    Args:
        target: the rows of the child's target.
        parents: the rows of the parent's target.
        to: the referenced columns of the parent.
        by: the columns of the child.

    Returns:
        The orphans. `lost` is 0 for all rows. `alike` is False if a collation may treat the key of an existing parent
        as equal.

    Raises:
        TooManyRowsError: there are more rows than the driver takes.
    """
    from pyspark.sql import functions as f

    width = len(by.columns)
    named, referred = ([f"{kind}{number}" for number in range(width)] for kind in "fv")
    rows = _named_rows(target, by).dropna(subset=named)
    values = parents.select(*(f.col(identifier(name)).alias(alias) for name, alias in zip(to, referred, strict=True)))
    same = reduce(and_, (f.col(one) == f.col(other) for one, other in zip(named, referred, strict=True)))
    found = collected(rows.join(values, same, "left_anti"))
    texts = any(rows.schema[name].dataType.typeName() == "string" for name in named)
    wanted = found.select(named).rename_columns(referred)
    doubt = found.num_rows > 0 and texts and _naming(values.toDF(*named), wanted, width).limit(1).count() > 0
    keys = _tuples(found, "k", len(by.keys))
    return Stale(found.drop_columns(named), keys, [0] * len(keys), [not doubt] * len(keys))


def last_changes(rows: DataFrame, keys: Sequence[str], wanted: Stale) -> dict[Key, tuple[Place, set[int]]]:
    """Return the last change of each wanted key: its place, and the domains of all changes of the key.

    Args:
        rows: the change rows of the table.
        keys: the key columns.
        wanted: the rows whose keys are looked up.

    Raises:
        TooManyRowsError: the wanted keys have more changes than the driver takes.
    """
    from pyspark.sql import functions as f

    images = f.explode(f.array("before", "after")).alias("image")
    changed = rows.where("op <> 'read'").select(images, *places()).where("image IS NOT NULL")
    named = (f.col("image")[name].alias(f"k{number}") for number, name in enumerate(keys))
    found = collected(_of_keys(changed.select(*named, "number", "ordinal", "domain"), wanted, len(keys)))
    stale = set(wanted.keys)
    changes: dict[Key, tuple[Place, set[int]]] = {}
    for key, (at, domain) in zip(_tuples(found, "k", len(keys)), change_places(found), strict=True):
        if key in stale:
            last, domains = changes.get(key, (at, set()))
            changes[key] = max(last, at), domains | {domain}
    return changes


def _of_keys(changed: DataFrame, wanted: Stale, width: int) -> DataFrame:
    """Return only the changes of wanted keys, so that the driver gets no others."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructField, StructType

    names = [f"k{number}" for number in range(width)]
    kinds = [changed.schema[name].dataType for name in names]
    if width == 1 and len(wanted.keys) <= MOST_LITERALS and kinds[0].typeName() in _LITERALS:
        return changed.where(f.col("k0").isin([value for (value,) in wanted.keys]))
    schema = StructType([StructField(name, kind) for name, kind in zip(names, kinds, strict=True)])
    local = changed.sparkSession.createDataFrame(wanted.rows.select(names), schema)
    local = f.broadcast(local.toDF(*(f"w{number}" for number in range(width))))
    same = reduce(and_, (f.col(f"k{number}").eqNullSafe(f.col(f"w{number}")) for number in range(width)))
    return changed.join(local, same, "left_semi")


def unchanged_since(
    stale: Stale, lost: Lost, changes: Mapping[Key, tuple[Place, set[int]]], known: Collection[Key] = ()
) -> tuple[list[int], set[int]]:
    """Return the rows that have no change of their own after their loss.

    Returns:
        Row numbers of `stale`, one for each key that is not in `known`, and the set of those row numbers that are in
        doubt.
    """
    chosen: dict[Key, int] = {}
    doubt: set[int] = set()
    for row in sorted(range(len(stale.keys)), key=lambda row: not stale.alike[row]):  # certain rows first
        key, number, alike = stale.keys[row], stale.lost[row], stale.alike[row]
        at, domains = changes.get(key, (None, set()))
        ordered = domains <= {lost.domain[number]}
        if key in known or key in chosen or (at is not None and ordered and at >= lost.at[number]):
            continue
        if lost.doubt[number] or not alike or not ordered:
            doubt.add(row)
        chosen[key] = row
    return list(chosen.values()), doubt


def lost_with(stale: Stale, lost: Lost, shown: Sequence[str]) -> Callable[[Sequence[str]], Lost]:
    """Return a function from some of the shown columns to the values that are lost when `stale` is deleted."""

    def values(columns: Sequence[str]) -> Lost:
        names = {name: f"r{number}" for number, name in enumerate(shown)}
        some = stale.rows.select([names[name] for name in columns])
        named = some.rename_columns([f"v{number}" for number in range(len(columns))])
        losses = lost.of(stale.lost)
        for name in TRANSACTION_COLUMNS:
            named = named.append_column(name, losses.values.column(name))
        return losses._replace(values=named)

    return values


@dataclass(slots=True)
class FoundRows:
    """Rows of one target that foreign keys changed.

    Attributes:
        keys: the names of the key columns.
        constraints: the names of the foreign keys.
        deleted: the keys of deleted rows.
        nulls: the columns that became NULL, by key.
    """

    keys: Sequence[str]
    constraints: set[str] = field(default_factory=set)
    deleted: set[Key] = field(default_factory=set)
    nulls: dict[Key, set[str]] = field(default_factory=dict)
    _parts: list[pa.Table] = field(default_factory=list)
    _places: list[Place] = field(default_factory=list)
    _numbers: dict[tuple[Key, bool], int] = field(default_factory=dict)

    def add(self, stale: Stale, lost: Lost, nulls: Sequence[str] | None) -> Stale:
        """Add rows, and return those that were not yet known as deleted.

        Args:
            stale: the rows.
            lost: the losses to which the rows belong.
            nulls: the columns of the rows that became NULL; None if the rows were deleted.
        """
        first, losses = len(self._places), lost.of(stale.lost)
        part = stale.rows.select([f"k{number}" for number in range(len(self.keys))])
        for name in TRANSACTION_COLUMNS:
            part = part.append_column(name, losses.values.column(name))
        self._parts.append(part)
        self._places += losses.at
        for number, key in enumerate(stale.keys):
            self._numbers.setdefault((key, nulls is None), first + number)
        new = [row for row, key in enumerate(stale.keys) if key not in self.deleted]
        if nulls is None:
            self.deleted.update(stale.keys)
        else:
            for key in stale.keys:
                self.nulls.setdefault(key, set()).update(nulls)
        return stale.take(new)

    def write(self, spark: SparkSession, target: str, mode: Mode) -> None:
        """Change the rows in the target."""
        import pyarrow as pa
        from pyspark.sql.types import StructField, StructType

        columns = sorted({name for names in self.nulls.values() for name in names})
        rows = [
            *((key, True) for key in self.deleted),
            *((key, False) for key in self.nulls if key not in self.deleted),
        ]
        numbers = [self._numbers[row] for row in rows]
        table = pa.concat_tables(self._parts).take(numbers_of(numbers))
        opened = open_target(spark, target)
        target_schema = opened.rows().schema
        schema = StructType([StructField(f"k{n}", target_schema[key].dataType) for n, key in enumerate(self.keys)])
        schema = schema.add("gtid", "string").add("committed", "timestamp").add("sequence", "string")
        sequences = (
            f"{number:020d}.{ordinal:012d}" for number, ordinal in (self._places[number] for number in numbers)
        )
        table = table.append_column("sequence", array_of_values(list(sequences), pa.string()))
        flags = {"deleted": [deleted for _, deleted in rows]}
        flags |= {f"n{n}": [name in self.nulls.get(key, ()) for key, _ in rows] for n, name in enumerate(columns)}
        for name, values in flags.items():
            table, schema = table.append_column(name, array_of_values(values, pa.bool_())), schema.add(name, "boolean")
        opened.merge(merge_of_found(target, self.keys, columns, mode), spark.createDataFrame(table, schema), "gone")


def merge_of_found(target: str, keys: Sequence[str], nulls: Sequence[str], mode: Mode) -> str:
    """Return the MERGE of found rows. The caller replaces `{gone}` by the source of the MERGE.

    The MERGE ends rows with `deleted`. In other rows it sets each column to NULL whose flag (n0, …) is true.
    """
    same = " AND ".join(f"target.{sql_name(key)} <=> gone.k{number}" for number, key in enumerate(keys))
    names = [sql_name(name) for name in nulls]
    values = [f"target.{name} = if(gone.n{n}, NULL, target.{name})" for n, name in enumerate(names)]
    return f"MERGE INTO {braced(target)} AS target USING {{gone}} AS gone ON {same} {mode.cascaded(values)}"
