"""Iceberg tables as targets, in all modes.

Spark's tasks write data files, and the driver commits them with PyIceberg (`commits.py`). Each commit is one snapshot,
also that of an ALTER, so that each snapshot has the columns of its rows.

A change rewrites the data files whose bounds admit a changed key (copy-on-write). A commit fails if anything else has
committed since the files were chosen. Then all is read and computed again.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import StorageLevel

from replica.errors import SchemaError
from replica.rows.tables.plan import fits
from streaming_source.mirroring.statements.alterations import renamed
from streaming_source.mirroring.writers.iceberg.commits import (
    OWN_PROPERTIES,
    IcebergTable,
    has_commit,
    stage_snapshot,
    summary_of,
)
from streaming_source.mirroring.writers.iceberg.control import IcebergControl
from streaming_source.mirroring.writers.iceberg.statements import merged, updated
from streaming_source.mirroring.writers.target_format import (
    METADATA,
    UNNUMBERED,
    AddColumns,
    Commit,
    DropColumns,
    RenameColumn,
    SetType,
)
from streaming_source.schema.row_schema import spark_type
from streaming_source.schema.target_modes import MEANINGS
from streaming_source.sinks.iceberg.catalogs import ICEBERG, check_pyiceberg
from streaming_source.sinks.iceberg.columns import ddl_of, iceberg_schema, iceberg_type, spark_schema
from streaming_source.sinks.iceberg.data_files import IcebergFiles, read_rows, write_rows
from streaming_source.sinks.iceberg.snapshots import LAST_COMMIT, snapshot_of, snapshot_rows, tokens
from streaming_source.sinks.sql_text import identifier

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table, Transaction
    from pyspark.sql import DataFrame, SparkSession

    from streaming_source.mirroring.batch.batch_facts import StatementRow
    from streaming_source.mirroring.control.control_table import ControlRow
    from streaming_source.mirroring.control.target_names import TargetNames
    from streaming_source.mirroring.modes.mode import Mode, NetChanges
    from streaming_source.mirroring.statements.added_values import KnownValue
    from streaming_source.mirroring.writers.target_format import TargetAction
    from streaming_source.transforms.transformed_images import TargetColumn

_MOST_KEYS: Final = 200
"""Most keys that PyIceberg compares with the bounds of a file one by one; with more keys, only their range."""
_RANGED: Final = frozenset({"byte", "short", "integer", "long", "date", "string"})
_PARTITION_BYTES: Final = 64 << 20
"""Bytes of rewritten files in one task of the write."""
_TEXT: Final = "STRING"
_AS_TEXT: Final = frozenset({"byte", "short", "integer", "long", "date", "decimal"})
"""Types whose values Spark converts to the same text as the server."""


class IcebergFormat:
    """Format of Iceberg tables."""

    name = ICEBERG
    modes = frozenset(MEANINGS)
    only_folders = False
    own_properties: Mapping[str, str] = OWN_PROPERTIES

    def check_session(self, spark: SparkSession, names: TargetNames, writer: str) -> None:  # noqa: ARG002  (every session)
        """Refuse an environment without PyIceberg.

        Raises:
            InstallationError: PyIceberg is missing, or has another version.
        """
        check_pyiceberg()

    def target(self, spark: SparkSession, name: str, **_: object) -> IcebergTarget:
        """Open a target. Other arguments have no effect: a target that is created again has no commits."""
        return IcebergTarget(spark, name)

    def control(self, spark: SparkSession, name: str) -> IcebergControl:
        """Return the control table of this name."""
        return IcebergControl(spark, name)


@dataclass(slots=True)
class IcebergTarget(IcebergTable):
    """Target that is an Iceberg table."""

    def count(self) -> int | None:
        """Return the number of rows from the table's metadata, or None if other writers left delete files."""
        tasks = list(self._load().scan().plan_files())
        if any(task.delete_files for task in tasks):
            return None
        return sum(task.file.record_count for task in tasks)

    def rows(self) -> DataFrame:
        """Return the current rows."""
        table = self._load()
        with self._errors():
            return read_rows(self.spark, IcebergFiles.of(table, table.metadata), list(table.scan().plan_files()))

    def create(self, columns: Sequence[TargetColumn], comment: str, properties: Mapping[str, str]) -> None:
        """Create the target without rows, or empty the existing target and keep its snapshots."""
        about = {**properties, **({"comment": comment} if comment else {})}
        at = self._session_commit()
        summary = {} if at is None else summary_of(at)
        if not self.exists():
            self._make(columns, about, summary)
            return

        def stage(table: Table, begun: Transaction) -> Sequence[DataFile]:
            if _shape(table.schema()) != _shape(iceberg_schema(columns)):
                with begun.update_schema(allow_incompatible_changes=True) as change:
                    for old in table.schema().fields:
                        change.delete_column((old.name,))
                    for new in iceberg_schema(columns).fields:
                        change.add_column((new.name,), new.field_type, new.doc)
            tokens = [name for name in table.properties if name.startswith(LAST_COMMIT)]
            if tokens:
                begun.remove_properties(*tokens)
            begun.set_properties(about)
            stage_snapshot(begun, summary, [], [task.file for task in table.scan().plan_files()])
            return ()

        self._commit(stage, lambda _: False)

    def _session_commit(self) -> Commit | None:
        """Return the token of the running micro-batch, which the mirror keeps in the session."""
        known = json.loads(str(self.spark.conf.get(METADATA, None) or "{}"))
        return Commit(known["mirror"], known["batch"], known["position"], UNNUMBERED) if "batch" in known else None

    def has(self, at: Commit) -> bool:
        """Return True if the target has a commit, or a later one of the same mirror."""
        return has_commit(self._load(), at)

    def _once(
        self, at: Commit, stage: Callable[[Table, Transaction], tuple[Sequence[DataFile], Sequence[DataFile]]]
    ) -> None:
        """Make one commit, unless the table already has it.

        Args:
            at: the token.
            stage: stages changes of the columns, and returns new files and files that they replace.
        """

        def write(table: Table, begun: Transaction) -> Sequence[DataFile]:
            added, replaced = stage(table, begun)
            if at.part:
                batch, parts = tokens(table, at.mirror)
                listed = sorted({*(parts if batch == at.batch else ()), at.part})
                begun.set_properties({f"{LAST_COMMIT}{at.mirror}": json.dumps([at.batch, listed])})
            stage_snapshot(begun, summary_of(at), added, replaced)
            return added

        self._commit(write, lambda table: has_commit(table, at))

    def alter(self, columns: Sequence[TargetColumn], at: Commit, actions: Sequence[TargetAction] | None = None) -> None:
        """Change the columns in one commit.

        A column whose type Iceberg cannot widen is replaced, and all files are rewritten.
        """
        if actions is None:
            at = at.of(UNNUMBERED)  # it leads to the same columns each time, and the rows end under the token
            if not self._actions(self._load(), columns):
                return

        def stage(table: Table, begun: Transaction) -> tuple[Sequence[DataFile], Sequence[DataFile]]:
            wanted = self._actions(table, columns) if actions is None else actions
            casts: dict[str, str] = {}
            """Types of rewritten columns, by their names in the end."""
            origin = {each.name: each.name for each in table.schema().fields}
            for action in wanted:
                _staged(begun, action, origin, casts)
            if not casts:
                return (), ()
            tasks = list(table.scan().plan_files())
            rows = read_rows(self.spark, IcebergFiles.of(table, table.metadata), tasks)
            named = rows.select(*(rows[identifier(old)].alias(new) for new, old in origin.items()))
            return self._rewritten(table, begun, named, tasks)

        self._once(at, stage)

    def _actions(self, table: Table, columns: Sequence[TargetColumn]) -> list[TargetAction]:
        """Return the actions that lead from the columns of the table to these."""
        wanted = {column.name: column for column in columns}
        existing = {each.name: each.field_type for each in table.schema().fields}
        dropped = tuple(name for name in existing if name not in wanted)
        actions: list[TargetAction] = [DropColumns(dropped)] if dropped else []
        for name, kind in existing.items():
            if (
                name not in wanted
                or iceberg_type(spark_type(wanted[name].type)) == kind
                or _same(wanted[name].type, kind)
            ):
                continue
            old, new = ddl_of(kind), wanted[name].type
            if fits(new, old):
                continue
            if not (fits(old, new) or (new == _TEXT and spark_type(old).typeName() in _AS_TEXT)):
                raise SchemaError(
                    f"the rows in {self.name} have {name} as {old}, and its type is {new} now. Older rows cannot stay.",
                    hint="Drop the target or move it away, and re-snapshot the table (mirror_resnapshot).",
                )
            actions.append(SetType(name, new))
        added = tuple(column for name, column in wanted.items() if name not in existing)
        return [*actions, AddColumns(added)] if added else actions

    def rename(self, names: Mapping[str, str | None], at: Commit) -> None:
        """Rename columns in one commit. Drop columns whose names other columns get."""

        def stage(table: Table, begun: Transaction) -> tuple[Sequence[DataFile], Sequence[DataFile]]:
            existing = [each.name for each in table.schema().fields]
            kept = {old: new for new, old in names.items() if old is not None and old in existing}
            dropped = tuple(name for name in existing if name in names and name not in kept)
            others = [name for name in existing if name not in kept and name not in dropped]
            actions: list[TargetAction] = [DropColumns(dropped)] if dropped else []
            for action in (*actions, *renamed(kept, others)):
                _staged(begun, action, {}, {})
            return (), ()

        self._once(at, stage)

    def fill(self, values: Mapping[str, KnownValue], at: Commit) -> None:
        """Set columns of all rows to these values, in one commit that rewrites all files."""

        def change(rows: DataFrame) -> DataFrame:
            return rows.withColumns(
                {name: value.column().cast(rows.schema[name].dataType) for name, value in values.items()}
            )

        self._once(at, lambda table, begun: self._all_rewritten(table, begun, change))

    def truncate(self, at: Commit) -> None:
        """Delete all rows, without reading them."""
        self._once(at, lambda table, _: ((), [task.file for task in table.scan().plan_files()]))

    def apply(self, mode: Mode, changes: NetChanges) -> None:
        """Apply the MERGE of a mode to the files that may have changed keys, or append its rows."""
        if self.has(changes.at):
            return
        rows, merge = mode.merge(changes)
        if not merge:
            self.append(rows, changes.at)
            return
        self._merge(merge, rows, "changes", changes.keys, changes.at)

    def merge(self, statement: str, rows: DataFrame, placeholder: str) -> None:
        """Run a MERGE that may come again, as that of a foreign key."""
        at = self._session_commit() or Commit("", 0, "", UNNUMBERED)
        self._merge(statement, rows, placeholder, (), at.of(UNNUMBERED))

    def _merge(self, statement: str, rows: DataFrame, placeholder: str, keys: Sequence[str], at: Commit) -> None:
        rows = rows.persist(StorageLevel.MEMORY_ONLY)  # read for the keys and for the join; never on disk: see rules
        try:

            def stage(table: Table, begun: Transaction) -> tuple[Sequence[DataFile], Sequence[DataFile]]:
                tasks = list(table.scan(row_filter=_with_keys(rows, keys, table.schema())).plan_files())
                old = read_rows(self.spark, IcebergFiles.of(table, table.metadata), tasks)
                return self._rewritten(table, begun, merged(statement, old, rows, placeholder), tasks)

            self._once(at, stage)
        finally:
            rows.unpersist()

    def end_rows(self, mode: Mode, statement: StatementRow, at: Commit) -> None:
        """Apply the UPDATE of a mode to all files."""
        update = mode.end_statement(self, statement)
        self._once(at, lambda table, begun: self._all_rewritten(table, begun, lambda rows: updated(update, rows)))

    def append(self, rows: DataFrame, at: Commit) -> None:
        """Append rows in one commit."""

        def stage(table: Table, _: Transaction) -> tuple[Sequence[DataFile], Sequence[DataFile]]:
            files = IcebergFiles.of(table, table.metadata)
            return write_rows(self._columns_as(rows, table.schema()), files), ()

        self._once(at, stage)

    def finish(self, rows: int, at: Commit) -> None:
        """Do nothing: each append is visible at once."""

    def restore(self, row: ControlRow) -> None:
        """Make the snapshot that belongs to the control row the current one, with its columns."""

        def stage(table: Table, begun: Transaction) -> Sequence[DataFile]:
            from pyiceberg.table.update import SetCurrentSchemaUpdate

            snapshot = snapshot_of(table, self.name, row.mirror, row.batch)
            if snapshot.schema_id is not None and snapshot.schema_id != table.schema().schema_id:
                begun._stage((SetCurrentSchemaUpdate.model_validate({"schema-id": snapshot.schema_id}),))  # noqa: SLF001  (there is no public API)
            update, requirement = begun._set_ref_snapshot(  # noqa: SLF001
                snapshot_id=snapshot.snapshot_id, ref_name="main", type="branch"
            )
            begun._stage(update, requirement)  # noqa: SLF001
            return ()

        def done(table: Table) -> bool:
            current = table.current_snapshot()
            return (
                current is not None
                and current.snapshot_id == snapshot_of(table, self.name, row.mirror, row.batch).snapshot_id
            )

        self._commit(stage, done)

    def drop(self) -> None:
        """Remove the table and its files."""
        from pyiceberg.exceptions import NoSuchTableError

        with self._errors(), contextlib.suppress(NoSuchTableError):
            self._catalog.purge_table(self._identifier)

    def rows_at(self, row: ControlRow) -> DataFrame:
        """Return the rows of the snapshot that belongs to a control row."""
        table = self._load()
        snapshot = snapshot_of(table, self.name, row.mirror, row.batch)
        return snapshot_rows(self.spark, table, self.name, snapshot.snapshot_id)

    def _all_rewritten(
        self, table: Table, begun: Transaction, change: Callable[[DataFrame], DataFrame]
    ) -> tuple[Sequence[DataFile], Sequence[DataFile]]:
        tasks = list(table.scan().plan_files())
        rows = read_rows(self.spark, IcebergFiles.of(table, table.metadata), tasks)
        return self._rewritten(table, begun, change(rows), tasks)

    def _rewritten(
        self, table: Table, begun: Transaction, rows: DataFrame, tasks: Sequence[FileScanTask]
    ) -> tuple[Sequence[DataFile], Sequence[DataFile]]:
        """Write the rows that replace those of data files, with the columns of the transaction."""
        files = IcebergFiles.of(table, begun.table_metadata)
        parts = 1 + sum(task.file.file_size_in_bytes for task in tasks) // _PARTITION_BYTES
        added = write_rows(self._columns_as(rows, files.schema).coalesce(int(parts)), files)
        return added, [task.file for task in tasks]


def _shape(schema: Schema) -> list[tuple[str, str, str | None]]:
    """Return the columns for a comparison, without field ids."""
    return [(each.name, ddl_of(each.field_type), each.doc) for each in schema.fields]


def _same(name: str, kind: Any) -> bool:
    return ddl_of(iceberg_type(spark_type(name))) == ddl_of(kind)


def _staged(begun: Transaction, action: TargetAction, origin: dict[str, str], casts: dict[str, str]) -> None:
    """Stage an action on the columns.

    Args:
        begun: the transaction.
        action: the action.
        origin: the names of columns before the transaction, by their current names. It is changed.
        casts: types of columns whose values have to be rewritten, by name. It is changed.
    """
    with begun.update_schema(allow_incompatible_changes=True) as change:
        match action:
            case AddColumns(columns):
                for new in iceberg_schema(columns).fields:
                    change.add_column((new.name,), new.field_type, new.doc)
            case DropColumns(names):
                for name in names:
                    change.delete_column((name,))
                    origin.pop(name, None)
                    casts.pop(name, None)
            case RenameColumn(old, new_name):
                change.rename_column((old,), new_name)
                for known in (origin, casts):
                    if old in known:
                        known[new_name] = known.pop(old)
            case SetType(name, kind):
                _retype(begun, change, name, kind, casts)
            case _:
                pass  # all columns are optional


def _retype(begun: Transaction, change: Any, name: str, kind: str, casts: dict[str, str]) -> None:
    from pyiceberg.exceptions import ResolveError
    from pyiceberg.schema import promote

    old = next(each for each in begun.table_metadata.schema().fields if each.name == name)
    new = iceberg_type(spark_type(kind))
    if ddl_of(new) == ddl_of(old.field_type):
        return
    try:
        promote(old.field_type, new)
    except ResolveError:
        change.delete_column((name,))
        change.add_column((name,), new, old.doc)
        casts[name] = kind
    else:
        change.update_column((name,), field_type=new)


def _with_keys(rows: DataFrame, keys: Sequence[str], schema: Schema) -> BooleanExpression:
    """Return a filter for files that may have rows with the keys of changes; it may also admit others."""
    from pyiceberg import expressions
    from pyspark.sql import functions as f

    of: Any = expressions  # PyIceberg accepts names and values, but its types do not say so
    found: Any = of.AlwaysTrue()
    types = {each.name: each.dataType.typeName() for each in spark_schema(schema)}
    for key in keys:
        if key not in rows.columns or "." in key or types.get(key) not in _RANGED:
            continue
        value = f.col(identifier(key))
        one = rows.agg(f.min(value), f.max(value), f.count_if(value.isNull())).first()
        if one is None or one[0] is None or one[2]:
            continue
        low, high = (_literal(bound) for bound in one[:2])
        found = of.And(found, of.GreaterThanOrEqual(key, low), of.LessThanOrEqual(key, high))
        some = [row[0] for row in rows.select(value).distinct().limit(_MOST_KEYS + 1).collect()]
        if 1 < len(some) <= _MOST_KEYS:
            found = of.And(found, of.In(key, {_literal(each) for each in some}))
    return found


def _literal(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else value
