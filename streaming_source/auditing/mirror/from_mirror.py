"""Tables of a mirror that an audit compares: each target in the version that its control row refers to.

`mirrored_copies` returns one copy, with its position and key, for each table that is current, and the tables that
cannot be compared, with the reason. It reads the control table once, so that all rows are from one moment. `version_of`
finds the version of a Delta target, and `snapshot_of` the snapshot of an Iceberg target. `MirroredRows` makes rows of
the table comparable with rows of its target. A table that is not a control table is an error.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import ConfigError, DataLossError, ReplicaError
from replica.schema.known_tables import tables_from_json
from replica.schema.patterns import table_text
from replica.snapshot.check.facts import tables_above
from streaming_source.auditing.result import LeftOut
from streaming_source.auditing.rows.columns import time_text
from streaming_source.schema.target_modes import CURRENT, OWN_COLUMNS, live_rows
from streaming_source.sinks.delta import known_folder
from streaming_source.sinks.delta_folders import read_delta
from streaming_source.sinks.iceberg.catalogs import is_iceberg, load_table, table_exists
from streaming_source.sinks.iceberg.small_tables import small_rows
from streaming_source.sinks.iceberg.snapshots import snapshot_of
from streaming_source.sinks.queries import SPARK_ERRORS, first_line
from streaming_source.sinks.sql_text import identifier
from streaming_source.sinks.storage import delta_table
from streaming_source.transforms.hashes import hashed
from streaming_source.transforms.table_rules import fingerprint_of_text, rule_of_text
from streaming_source.transforms.transformed_images import Transformed, shown_columns, target_keys

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyspark.sql import DataFrame, Row, SparkSession

    from replica.rows.types.types import ValuePolicy
    from replica.schema.known_tables import TableName
    from replica.schema.table import TableSchema
    from streaming_source.transforms.hashes import HashKey

# `version_of` returns the version before the mirror's first commit of a later batch. This version includes the writes
# of others into the target until this commit. If the log of the target does not reach back to the version, an error is
# raised.


_log = logging.getLogger(__name__)


def version_of(spark: SparkSession, target: str, mirror: str, batch: int) -> int:
    """Return the version of a target to read with VERSION AS OF.

    Raises:
        DataLossError: the target's history does not reach back that far.
    """
    found = None
    for version, metadata in commits_of(spark, target):
        if batch_of(metadata, mirror) > batch:
            break
        found = version
    if found is None:
        raise DataLossError(
            f"{target} has no version of the batch {batch} any more.",
            hint="Audit again, because the control table has advanced. Keep the target's log longer "
            "(delta.logRetentionDuration).",
        )
    return found


def commits_of(spark: SparkSession, target: str) -> list[tuple[int, str | None]]:
    """Return version and user metadata of each commit in a target's log, the oldest first."""
    commits = _commits_without_spark(known_folder(spark, target))
    if commits is None:
        history = spark.sql(f"DESCRIBE HISTORY {target}").select("version", "userMetadata").collect()
        commits = [(int(version), metadata) for version, metadata in history]
    return sorted(commits, key=lambda commit: commit[0])


def _commits_without_spark(folder: str | None) -> list[tuple[int, str | None]] | None:
    """Return the commits as delta-rs reads them, in a hundredth of Spark's time; None if it cannot."""
    try:
        from deltalake.exceptions import DeltaError
    except ImportError:  # deltalake is optional
        return None
    if folder is None:
        return None
    try:
        history = delta_table(folder).history()
    except (DeltaError, OSError) as refused:
        _log.debug("Spark reads the log of %s: %s", folder, refused)
        return None
    return [(int(one["version"]), one.get("userMetadata")) for one in history]


def batch_of(user_metadata: str | None, mirror: str) -> int:
    """Return the batch of a commit of the mirror; -1 for the commits of others."""
    try:
        about = json.loads(user_metadata or "{}")
    except ValueError:
        return -1
    if not isinstance(about, dict) or about.get("mirror") != mirror:
        return -1
    return int(str(about.get("batch", -1)))


_COLUMNS: Final = (
    *("mirror", "source_database", "source_table", "target", "mode", "state", "keys", "position", "batch", "error"),
    *("rules", "definition"),
)
_FOREIGN_KEYS: Final = "foreign_keys"
"""Column that control tables of version 0.1 do not have. Their table definitions contain the foreign keys."""
_CONTROL_HINT: Final = (
    "It is beside the mirror's targets, and its name is mirror_control, unless the mirror sets another."
)
_CURRENT: Final = "current"
_DROPPED: Final = "dropped"
"""State of a table that does not exist on the server any more, so its target has no counterpart."""


class MirroredCopy(NamedTuple):
    """Target as its control row describes it.

    Attributes:
        ancestors: the ancestors of the table by foreign keys, whose changes cascade into the table.
        unknown: whether some ancestors are not tables of the mirror, so that not all are known.
    """

    table: str
    target: str
    position: str
    keys: tuple[str, ...]
    mirror: str
    batch: int
    mode: str
    rules: str | None
    definition: TableSchema
    ancestors: frozenset[TableName] = frozenset()
    unknown: bool = False


def mirrored_copies(spark: SparkSession, control: str) -> tuple[list[MirroredCopy], list[LeftOut]]:
    """Return the copies that can be compared, and the tables that are left out.

    Raises:
        ConfigError: there is no such control table.
    """
    from pyspark.errors import AnalysisException

    try:
        table = _control_rows(spark, control)
        rows = table.select(*_COLUMNS, *({_FOREIGN_KEYS} & set(table.columns))).collect()
    except AnalysisException as error:
        raise ConfigError(
            f"{control} is not the control table of a mirror: {first_line(error)}",
            hint=_CONTROL_HINT,
        ) from error
    parents = {(row["source_database"], row["source_table"]): _parents(row) for row in rows}
    copies, left_out = [], []
    for row in sorted(rows, key=lambda row: (row["source_database"], row["source_table"])):
        name = table_text((row["source_database"], row["source_table"]))
        if live_rows(row["mode"]) is None and row["state"] != _DROPPED:
            left_out.append(LeftOut(name, f"its target has the mode {row['mode']}: it holds changes, not rows"))
        elif row["state"] == _CURRENT:
            try:
                copies.append(_copy(spark, name, row, parents))
            except ReplicaError as error:
                left_out.append(LeftOut(name, str(error)))
            except SPARK_ERRORS as error:  # for instance a dropped target: the other tables are compared
                left_out.append(LeftOut(name, f"its target cannot be read: {first_line(error)}"))
        elif row["state"] != _DROPPED:
            left_out.append(LeftOut(name, f"{row['state']}: {row['error'] or 'its snapshot is still running'}"))
    return copies, left_out


def _control_rows(spark: SparkSession, control: str) -> DataFrame:
    if not is_iceberg(control):
        return read_delta(spark, control)
    if not table_exists(control):
        raise ConfigError(f"there is no control table {control}.", hint=_CONTROL_HINT)
    return small_rows(spark, load_table(control), control)


def _copy(
    spark: SparkSession, table: str, row: Row, parents: Mapping[TableName, Collection[TableName]]
) -> MirroredCopy:
    name = row["source_database"], row["source_table"]
    definition = tables_from_json(row["definition"])[name]
    ancestors = tables_above(name, parents)
    return MirroredCopy(
        table=table,
        target=f"{row['target']}@v{_version(spark, row['target'], row['mirror'], row['batch'])}",
        position=row["position"],
        keys=tuple(row["keys"] or ()),
        mirror=row["mirror"],
        batch=row["batch"],
        mode=row["mode"],
        rules=row["rules"],
        definition=definition,
        ancestors=frozenset(ancestors),
        unknown=not ancestors <= parents.keys(),
    )


def _version(spark: SparkSession, target: str, mirror: str, batch: int) -> int:
    """Return the version of a Delta target, or the id of the snapshot of an Iceberg target.

    Raises:
        DataLossError: the target does not keep it any more.
    """
    if not is_iceberg(target):
        return version_of(spark, target, mirror, batch)
    snapshot: int = snapshot_of(load_table(target), target, mirror, batch).snapshot_id
    return snapshot


def _parents(row: Row) -> set[TableName]:
    """Return the parents of a table by foreign keys with CASCADE and SET NULL, as the control row lists them."""
    keys = row.asDict(recursive=True).get(_FOREIGN_KEYS)
    if keys is not None:
        return {(key["parent_database"], key["parent_table"]) for key in keys}
    old = json.loads(row["definition"] or "{}").get("cascades") or ()
    return {(str(key[1][0]), str(key[1][1])) for key in old}


# `MirroredRows` makes both sides comparable. It applies the rule to the table's rows with the same expressions as the
# mirror. Of the target it keeps the rows that the server has now, without the columns of the mode. A rule with hashes
# needs the key with which the target was made.


_ROW = "row"


class MirroredRows(NamedTuple):
    """Conversion from a table to its target.

    Attributes:
        ruled: the table with its rule; None if the rows are copied unchanged.
    """

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
        as_struct = rows.select(f.struct(*shown).alias(_ROW))
        return hashed(as_struct, self.ruled.hashes, self.ruled.key, sides=(_ROW,)).select(f"{_ROW}.*")

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
        reason = "no key is given" if key is None else "hashKeyFile has another key than the target"
        raise ConfigError(
            f"its rule hashes columns, and {reason}.", hint="Give the audit the mirror's own hashKeyFile."
        )
    return MirroredRows(mode, Transformed(table, policy, rule_of_text(rules), key))
