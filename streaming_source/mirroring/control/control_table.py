"""Control table of a mirror: one row for each table, with the position up to which its target is complete.

`ControlRow` is a row, and `mirrored_tables` reads all of them. `write_control` writes them at the end of each micro-
batch, as one commit, so one version of the table has all tables at one position. Nothing else writes the table.
`control_of` finds the control table for users, by the template of the targets or by its own name.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from replica.errors import ConfigError
from replica.schema.known_tables import tables_from_json, tables_to_json
from replica.snapshot.check.facts import Cascade
from streaming_source.driver.own_session import own_session
from streaming_source.mirroring.apply.faults import typed_storage_errors
from streaming_source.mirroring.control.target_names import TargetNames
from streaming_source.mirroring.writers.choose import control_store, kinds
from streaming_source.mirroring.writers.native.data_files import NativeWriteError
from streaming_source.mirroring.writers.native.delta_rows import replace_rows, stored_columns, stored_rows
from streaming_source.mirroring.writers.target_format import METADATA
from streaming_source.schema.row_schema import arrow_schema, spark_type
from streaming_source.sinks.delta import known_folder
from streaming_source.sinks.iceberg.catalogs import is_iceberg, kind_of, register
from streaming_source.transforms.transformed_images import TargetColumn

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pyspark.sql import SparkSession

    from replica.schema.known_tables import TableName
    from replica.schema.table import TableSchema
    from streaming_source.mirroring.statements.added_values import Defaults


# Rows of the control table and their JSON values. Control tables of older versions have to stay readable: add columns,
# but never rename one or change its meaning.


READING: Final = "reading"
CURRENT: Final = "current"
FAILED: Final = "failed"
DROPPED: Final = "dropped"
NO_BATCH: Final = -1
"""Batch number of a target that has no micro-batch yet."""
_FOREIGN_KEYS: Final = (
    "ARRAY<STRUCT<constraint: STRING, parent_database: STRING, parent_table: STRING, actions: ARRAY<STRING>, "
    "columns: ARRAY<STRING>, parent_columns: ARRAY<STRING>>>"
)
_CASCADE_FIELDS: Final = ("constraint", "parent_database", "parent_table", "actions", "columns", "parent_columns")
_OLD_KEYS: Final = frozenset({"defaults", "cascades", "missed", "put_off", "names", "before", "made"})
_DEFERRED: Final = "STRUCT<since: STRING, began: STRING, lost: BOOLEAN, foreign: BOOLEAN>"
_TEXTS: Final = "MAP<STRING, STRING>"
_OF_THE_DEFINITION: Final = (
    ("definition", "STRING", "the table's definition at the position, as JSON"),
    ("defined_at", "STRING", "GTID position at which the definition was first read"),
)
_WITH_THE_DEFINITION: Final = (
    ("defaults", _TEXTS, "the DEFAULT of each column at the position"),
    ("foreign_keys", _FOREIGN_KEYS, "foreign keys that cascade into the table; NULL if they are not known yet"),
    (
        "missed_cascade",
        "STRING",
        "why the target may lack changes by a foreign key, so that the table needs a re-snapshot",
    ),
    (
        "deferred_cascade",
        _DEFERRED,
        "cascades into the target that are still to be applied, with the position after which they may lie",
    ),
    ("target_names", _TEXTS, "for columns that statements renamed: the name in the target, by the current name"),
    ("created_at", "TIMESTAMP", "when the target was created"),
)
_BEFORE: Final = "STRUCT<{}>".format(
    ", ".join(
        f"{name}: {kind}"
        for name, kind, _ in (
            ("began", "BIGINT", ""),
            ("keys", "ARRAY<STRING>", ""),
            ("position", "STRING", ""),
            ("batch", "BIGINT", ""),
            ("rows", "BIGINT", ""),
            ("committed_at", "TIMESTAMP", ""),
            *_OF_THE_DEFINITION,
            *_WITH_THE_DEFINITION,
        )
    )
)

COLUMNS: Final = (
    ("mirror", "STRING", "the mirror that writes the target: the id of its query"),
    ("source_database", "STRING", "database of the table on the server"),
    ("source_table", "STRING", "name of the table on the server"),
    ("target", "STRING", "the target as SQL names it"),
    (
        "mode",
        "STRING",
        "what the target holds: current, soft_delete, history or append_log",
    ),
    ("state", "STRING", "reading, current, failed (suspended: see error), or dropped"),
    ("keys", "ARRAY<STRING>", "the columns that identify a row"),
    ("position", "STRING", "GTID position up to which the target has the server's changes"),
    ("batch", "BIGINT", "the last micro-batch that is in the target"),
    ("rows", "BIGINT", "rows read and changes applied since the beginning"),
    ("committed_at", "TIMESTAMP", "commit time of the last change in the target"),
    ("lag", "DOUBLE", "seconds from the commit of the newest transaction up to the position to `updated_at`"),
    ("updated_at", "TIMESTAMP", "when this row was last written"),
    ("error", "STRING", "why the table was suspended, or needs a re-snapshot"),
    *_OF_THE_DEFINITION,
    ("again", "STRING", "the word after the @ of `resnapshot` for which the target was last created"),
    ("rules", "STRING", "the rule of the table, as JSON; NULL if the table is copied unchanged"),
    ("waits_for", "STRING", "the request for a re-snapshot that has not begun yet"),
    ("tries", "INT", "number of snapshots that were begun again since the table was last current"),
    ("writer", "STRING", "what wrote the last rows: native, or spark with the reason"),
    *_WITH_THE_DEFINITION,
    ("before_snapshot", _BEFORE, "this row before the running snapshot, and the batch in which the snapshot began"),
    (
        "snapshot_end",
        "STRING",
        "GTID position of the server after the snapshot: deferred cascades are applied once the target has reached it",
    ),
)
"""Name, type and meaning of each column."""


class DeferredCascade(NamedTuple):
    """Cascades into a table that are deferred until the snapshots of the table and of all its ancestors are complete.

    Attributes:
        since: GTID position after which the cascades may lie.
        began: GTID position at which the snapshot began. The snapshot includes all changes before this position, except
            those of commits in flight.
        lost: ancestors of the table may have lost rows after `since`.
        foreign: ancestors outside the mirror may have lost rows during the snapshot.
    """

    since: str
    began: str
    lost: bool
    foreign: bool = False


class BeforeSnapshot(NamedTuple):
    """Fields of a table's row before its running snapshot.

    Attributes:
        began: the number of the micro-batch in which the snapshot began.
    """

    began: int
    keys: tuple[str, ...]
    position: str
    batch: int
    rows: int
    committed_at: dt.datetime | None
    definition: str
    defined_at: str
    defaults: Defaults
    foreign_keys: tuple[Cascade, ...] | None
    missed_cascade: str | None
    deferred_cascade: DeferredCascade | None
    target_names: Mapping[str, str] | None
    created_at: dt.datetime | None


def definition_text(table: TableSchema) -> str:
    """Return a table's definition in the form of the control table."""
    return tables_to_json({(table.database, table.table): table})


class ControlRow(NamedTuple):
    """State of one mirrored table; the fields are the columns of the control table."""

    mirror: str
    source_database: str
    source_table: str
    target: str
    mode: str
    state: str
    keys: tuple[str, ...]
    position: str
    batch: int
    rows: int
    committed_at: dt.datetime | None
    lag: float | None
    updated_at: dt.datetime
    error: str | None
    definition: str
    defined_at: str
    again: str | None
    rules: str | None
    waits_for: str | None = None
    tries: int = 0
    writer: str | None = None
    defaults: Defaults = {}  # noqa: RUF012  (never changed in place)
    foreign_keys: tuple[Cascade, ...] | None = None
    missed_cascade: str | None = None
    deferred_cascade: DeferredCascade | None = None
    target_names: Mapping[str, str] | None = None
    created_at: dt.datetime | None = None
    before_snapshot: BeforeSnapshot | None = None
    snapshot_end: str | None = None

    @property
    def name(self) -> TableName:
        """Name of the table on the server: database and table."""
        return self.source_database, self.source_table

    @property
    def table(self) -> TableSchema:
        """Definition of the table at the position."""
        return _table_of(self.definition, self.name)

    def defined(self, table: TableSchema, defaults: Defaults) -> ControlRow:
        """Return the row with another definition of its table."""
        return self._replace(definition=definition_text(table), defaults=defaults)

    @property
    def before(self) -> tuple[int, ControlRow] | None:
        """Micro-batch at which the running snapshot began, and the row before the snapshot; None without a snapshot."""
        if self.before_snapshot is None:
            return None
        known = self.before_snapshot._asdict()
        return known.pop("began"), self._replace(before_snapshot=None, **known)

    def with_before(self, began: int, row: ControlRow) -> ControlRow:
        """Return this row with the row that the table had before its running snapshot.

        Args:
            began: the number of the micro-batch in which the snapshot began.
            row: the row before the snapshot.
        """
        known = {name: getattr(row, name) for name in BeforeSnapshot._fields[1:]}
        return self._replace(before_snapshot=BeforeSnapshot(began, **known))

    @property
    def live(self) -> bool:
        """Whether changes of the table are applied to its target."""
        return self.state in (READING, CURRENT) and self.waits_for is None


@lru_cache(maxsize=4096)
def _table_of(definition: str, name: TableName) -> TableSchema:
    """Return the table of a definition.

    The result is cached: each micro-batch asks several times, mostly for the same tables.
    """
    return tables_from_json(definition)[name]


def to_columns(row: ControlRow) -> dict[str, Any]:
    """Return the column values of a row, as Arrow takes them."""
    return _plain(row._asdict())


def of_columns(values: Mapping[str, Any]) -> ControlRow:
    """Return the row with these column values; columns that a table of an older version lacks are NULL.

    Args:
        values: the columns, with structs and maps as dictionaries.
    """
    return ControlRow(**_typed(_of_older_version(values)))


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    known: dict[str, Any] = {name: _instant(value) for name, value in values.items()}
    known["keys"] = list(known["keys"])
    known["defaults"] = list(known["defaults"].items())
    if known["foreign_keys"] is not None:
        known["foreign_keys"] = [
            dict(zip(_CASCADE_FIELDS, (key.constraint, *key.parent, *key[2:]), strict=True))
            for key in known["foreign_keys"]
        ]
    if known["target_names"] is not None:
        known["target_names"] = list(known["target_names"].items())
    if known["deferred_cascade"] is not None:
        known["deferred_cascade"] = known["deferred_cascade"]._asdict()
    if known.get("before_snapshot") is not None:
        known["before_snapshot"] = _plain(known["before_snapshot"]._asdict())
    return known


def _typed(values: Mapping[str, Any]) -> dict[str, Any]:
    known: dict[str, Any] = {name: _instant(value) for name, value in values.items()}
    known["keys"] = tuple(known["keys"] or ())
    known["defaults"] = dict(known.get("defaults") or {})  # delta-rs returns a map as a list of pairs
    if known.get("target_names") is not None:
        known["target_names"] = dict(known["target_names"])
    keys, deferred = known.get("foreign_keys"), known.get("deferred_cascade")
    if keys is not None:
        known["foreign_keys"] = tuple(map(_cascade, keys))
    if deferred is not None:
        known["deferred_cascade"] = DeferredCascade(**deferred)
    if known.get("before_snapshot") is not None:
        known["before_snapshot"] = BeforeSnapshot(**_typed(known["before_snapshot"]))
    return known


def _cascade(key: Mapping[str, Any]) -> Cascade:
    return Cascade(
        key["constraint"],
        (key["parent_database"], key["parent_table"]),
        *(tuple(key[name]) for name in ("actions", "columns", "parent_columns")),
    )


def _instant(value: object) -> object:
    """Return a time in UTC; Spark returns it in the zone of this machine."""
    return value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value


def _of_older_version(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the columns of a row of version 0.1, which kept some columns in the JSON of the definition."""
    known = json.loads(values["definition"])
    if not _OLD_KEYS & known.keys():
        return values
    found = {**values, "defaults": known.pop("defaults", {}), "definition": ""}
    keys, deferred, made = (known.pop(name, None) for name in ("cascades", "put_off", "made"))
    before = known.pop("before", None)
    if keys is not None:
        found["foreign_keys"] = [dict(zip(_CASCADE_FIELDS, (one[0], *one[1], *one[2:]), strict=True)) for one in keys]
    if deferred is not None:
        found["deferred_cascade"] = dict(zip(DeferredCascade._fields, deferred, strict=True))
    found["missed_cascade"] = known.pop("missed", None)
    found["target_names"] = known.pop("names", None)
    found["created_at"] = None if made is None else dt.datetime.fromtimestamp(made, dt.UTC)
    if before is not None:
        old = dict(zip(BeforeSnapshot._fields, before, strict=False))
        old |= dict.fromkeys(BeforeSnapshot._fields[len(before) :])
        micros = old["committed_at"]
        old["committed_at"] = None if micros is None else dt.datetime.fromtimestamp(micros / 1_000_000, dt.UTC)
        found["before_snapshot"] = _of_older_version(old)
    found["definition"] = json.dumps(known, separators=(",", ":"), ensure_ascii=False)
    return found


CHECKPOINT: Final = "mariadb.checkpoint"
"""Property of the control table that names its checkpoint."""
_log = logging.getLogger(__name__)
_HINT = "Give the value with which the mirror was started."
_ICEBERG_HINT = " A mirror with format=iceberg is found only with its icebergCatalog."


def mirrored_tables(spark: SparkSession, control: str) -> list[ControlRow]:
    """Return the rows of one version of a control table; no rows if the table does not exist yet."""
    found = _rows_without_spark(spark, control)
    if found is not None:
        return found
    store = control_store(spark, control)
    if not store.exists():
        return []
    table = store.rows()
    existing = [
        name for name in ControlRow._fields if name in table.columns
    ]  # a table of an older version lacks columns
    return _sorted(row.asDict(recursive=True) for row in table.select(*existing).collect())


def _rows_without_spark(spark: SparkSession, control: str) -> list[ControlRow] | None:
    """Return the rows as delta-rs reads them; None if delta-rs cannot read the table.

    Spark needs a hundred times as long.
    """
    folder, names = _columns_without_spark(spark, control)
    existing = [name for name in ControlRow._fields if name in names]
    if not existing:
        return None
    try:
        found = stored_rows(folder, existing)
    except NativeWriteError as refused:
        _log.debug("Spark reads %s instead of delta-rs: %s", control, refused)
        return None
    return _sorted(dict(zip(existing, row, strict=True)) for row in found)


def _columns_without_spark(spark: SparkSession, control: str) -> tuple[str, Collection[str]]:
    """Return the folder and the columns of a control table; no columns if delta-rs cannot read the table."""
    folder = known_folder(spark, control)
    try:
        return ("", ()) if folder is None else (folder, stored_columns(folder))
    except (NativeWriteError, ImportError) as refused:  # deltalake is optional
        _log.debug("Spark checks %s instead of delta-rs: %s", control, refused)
        return "", ()


def _sorted(rows: Iterable[Mapping[str, Any]]) -> list[ControlRow]:
    return sorted(map(of_columns, rows), key=lambda row: row.name)


def make_control(
    spark: SparkSession, control: str, namespace: str | None, checkpoint: str, properties: Mapping[str, str]
) -> None:
    """Create an empty control table and its namespace, if they do not exist."""
    if namespace is not None:
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
    control_store(spark, control).make(_columns(), {CHECKPOINT: checkpoint, **properties})


def complete_control(spark: SparkSession, control: str) -> None:
    """Add the columns that a control table of an older version lacks."""
    _, names = _columns_without_spark(spark, control)
    if {name for name, _, _ in COLUMNS} <= set(names):
        return
    store = control_store(spark, control)
    if store.exists():
        existing = store.rows().columns
        lacking = [column for column in _columns() if column.name not in existing]
        if lacking:
            store.add_columns(lacking)


def write_control(spark: SparkSession, control: str, rows: Iterable[ControlRow], folder: str | None = None) -> None:
    """Replace all rows of the control table in one commit.

    Args:
        spark: the session that writes.
        control: the name of the control table.
        rows: the new rows.
        folder: the folder of the control table, if delta-rs may write it.
    """
    import pyarrow as pa  # Arrow rows are part of Spark's plan; for a list, Spark starts Python
    from pyspark.sql.types import StructField, StructType

    schema = StructType([StructField(name, spark_type(kind)) for name, kind, _ in COLUMNS])
    listed = [to_columns(row) for row in rows]
    values = {name: [row[name] for row in listed] for name, _, _ in COLUMNS}
    if folder is not None:
        try:
            replace_rows(folder, values, str(spark.conf.get(METADATA, "")))
        except NativeWriteError as refused:
            _log.debug("Spark writes %s instead of delta-rs: %s", control, refused)
        else:
            return
    table = pa.table(values, schema=arrow_schema(schema))
    with typed_storage_errors(f"the control table {control}"):
        control_store(spark, control).replace(spark.createDataFrame(table, schema).coalesce(1))


def is_as_written(folder: str | None, rows: Iterable[ControlRow]) -> bool:
    """Return True if the control table in a folder has exactly these rows.

    Return False if only Spark could decide this: Spark needs a second to read the table, and a micro-batch would wait.
    """
    names = ("mirror", "source_database", "source_table", "batch", "position")
    try:
        stored = None if folder is None else set(stored_rows(folder, names))
    except NativeWriteError as refused:
        _log.debug("Spark reads %s instead of delta-rs: %s", folder, refused)
        return False
    return stored == {tuple(getattr(row, name) for name in names) for row in rows}


def _columns() -> list[TargetColumn]:
    return [TargetColumn(name, kind, nullable=True, comment=about) for name, kind, about in COLUMNS]


def control_of(
    spark: SparkSession,
    call: str,
    into: str | None,
    control: str | None,
    catalog: str | Mapping[str, str] | None = None,
) -> tuple[str, list[ControlRow]]:
    """Return the name of a control table, and its rows.

    Args:
        spark: a session that sees the control table.
        call: the function that the user called, for errors.
        into: the template of the targets' names. Not needed with `control`.
        control: the name of the control table.
        catalog: the Iceberg catalog that has the control table. Without it, the formats are searched for the control
            table, and then the catalogs that this process knows.

    Raises:
        ConfigError: neither `into` nor `control` is given, or there is no such control table.
        StorageError: the catalog cannot be reached.
    """
    if into is None and control is None:
        raise ConfigError(f"{call} needs into or control.", hint=_HINT)
    searched = kinds() if catalog is None else [kind_of(register(catalog))]
    names = [TargetNames("{table}" if into is None else into, control, kind).control for kind in searched]
    spark = own_session(spark)
    name = next((each for each in names if control_store(spark, each).exists()), None)
    if name is None:
        more = "" if any(map(is_iceberg, names)) else _ICEBERG_HINT
        raise ConfigError(f"there is no control table {names[0]}.", hint=f"{_HINT}{more}")
    return name, mirrored_tables(spark, name)
