"""The rows that the target of a mirror has to hold, by the table's mode and rule.

`MirroredRows` makes both sides comparable. It applies the rule to the table's rows with the expressions that the mirror
writes with. Of the target it keeps the rows that the server has now, without the columns of the mode. A rule with
hashes needs the key that the target was made with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from replica.errors import ConfigError
from streaming_source.auditing.rows.columns import time_text
from streaming_source.schema.target_modes import CURRENT, OWN_COLUMNS, live_rows
from streaming_source.sinks.sql_text import identifier
from streaming_source.transforms.kept_rule import fingerprint_of_text, rule_of_text
from streaming_source.transforms.keyed_hash import hashed
from streaming_source.transforms.target_columns import target_keys
from streaming_source.transforms.transformed_images import Transformed, shown_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from replica.rows.types.types import ValuePolicy
    from replica.schema.table import TableSchema
    from streaming_source.transforms.hash_key import HashKey

_ROW = "row"


class MirroredRows(NamedTuple):
    """The conversion from a table to its target. `ruled` is None if the rows are copied unchanged."""

    mode: str
    ruled: Transformed | None

    def of_table(self, rows: DataFrame) -> DataFrame:
        """Return the rows that the target has to hold for these rows of the table."""
        if self.ruled is None:
            return rows
        from pyspark.sql import functions as f
        from pyspark.sql.types import DayTimeIntervalType

        times = [field for field in rows.schema if isinstance(field.dataType, DayTimeIntervalType)]
        rows = rows.withColumns({field.name: time_text(rows[identifier(field.name)], field) for field in times})
        if self.ruled.rule.where is not None:
            rows = rows.where(self.ruled.rule.where)
        shown = [value.alias(name) for name, value in shown_columns(self.ruled, rows).items()]
        if self.ruled.key is None or not self.ruled.hashes:
            return rows.select(*shown)
        whole = rows.select(f.struct(*shown).alias(_ROW))
        return hashed(whole, self.ruled.hashes, self.ruled.key, sides=(_ROW,)).select(f"{_ROW}.*")

    def of_target(self, rows: DataFrame) -> DataFrame:
        """Return the target's rows that the server has now, with only the table's columns."""
        live = live_rows(self.mode)
        own = OWN_COLUMNS[self.mode]
        return rows.where(live).drop(*(column.name for column in own)) if live is not None and own else rows

    def keys(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Return the names that the table's key columns have in the target."""
        return tuple(keys) if self.ruled is None else target_keys(keys, self.ruled.columns)


AS_IT_IS = MirroredRows(CURRENT, None)


def mirrored_rows(
    mode: str, rules: str | None, table: TableSchema, policy: ValuePolicy, key: HashKey | None
) -> MirroredRows:
    """Return the conversion for the table of a control row.

    Args:
        mode: the mode of the target.
        rules: the rule of the target, as the control table keeps it; None for none.
        table: the definition of the table.
        policy: how values are converted.
        key: the key of the hashes.

    Raises:
        ConfigError: the target holds hashes of another key, or no key is given.
    """
    if rules is None:
        return MirroredRows(mode, None)
    wanted = fingerprint_of_text(rules)
    if wanted is not None and (key is None or key.fingerprint != wanted):
        told = "no key is given" if key is None else "hashKeyFile has another key than the target"
        raise ConfigError(f"its rule hashes columns, and {told}.", hint="Give the audit the mirror's own hashKeyFile.")
    return MirroredRows(mode, Transformed(table, policy, rule_of_text(rules), key))
