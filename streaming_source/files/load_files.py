"""Survey of the binlog files of a `path` at `.load()`: one pass over the files, which makes the schema of the rows.

`load_files` returns `LoadedFiles`: the partitions with selected rows, and the plan for the tasks. No server is asked.
The typed columns of a table come from its newest definition: the table's last rows (binlog_row_metadata=FULL), else the
DDL in the files, else the file `schemaFile`. Older rows match these columns by name, as in a stream.

Errors: missing, unordered or damaged files; a table that is not in them; rows whose columns have no names; columns that
cannot be decoded; definitions that contradict each other.
"""

from __future__ import annotations

import difflib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from replica.errors import ProtocolError, SchemaError
from replica.protocol.constants import EventType
from replica.protocol.events.decode import decode
from replica.protocol.events.transaction_events import GtidListEvent
from replica.protocol.header import parse_header
from replica.rows.tables.file_tables import FileResolver
from replica.rows.tables.layout import compile_layout
from replica.rows.types.types import OutputColumn, ValuePolicy
from replica.schema.patterns import table_text
from streaming_source.files.partition import Age, FileAccess, FilePartition, FileProbes, find_binlogs
from streaming_source.files.survey import Definition, FileSurvey, Survey
from streaming_source.options.source_options import file_options
from streaming_source.rows.read_plan import ReadPlan
from streaming_source.schema.table_columns import catalog_table_columns, declared_tables, logged_table_columns
from streaming_source.selection.resolver import column_matcher, selected_tables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming_source.schema.row_schema import TableColumn

_log = logging.getLogger(__name__)
_SHOWN: Final = 5  # most tables in a message


@dataclass(frozen=True)
class LoadedFiles:
    """Data of a batch read over files. It can be pickled."""

    plan: ReadPlan
    partitions: tuple[FilePartition, ...]
    definitions: tuple[Definition, ...]

    def check(self, plan: ReadPlan) -> None:
        """Raise, before any task, if `plan` cannot decode the rows. `plan` is `self.plan` or a projection of it.

        Raises:
            SchemaError: a column of a type that cannot be decoded or converted, with the names of table and column.
        """
        output = None
        if plan.columns is not None:
            from streaming_source.schema.row_schema import arrow_type, spark_type

            output = [OutputColumn(c.name, arrow_type(spark_type(c.type)), c.type) for c in plan.columns]
        for table_map, schema in self.definitions:
            compile_layout(table_map, schema, output, _policy(plan), shown=column_matcher(plan.tables.columns))


def load_files(given: Mapping[str, str]) -> LoadedFiles:
    """Survey the files that these options name.

    Raises:
        ConfigError: a bad option, or a path without binlogs.
        ProtocolError: a file is damaged (without skipDamaged), encrypted and without its key, or not a binlog.
        SchemaError: a table or its columns are unknown.
        StatementDmlError: a statement that was logged as text changed rows of a table (onStatementDml=fail).
        DataLossError: rows of an XA transaction are in a file that is not among these.
    """
    options = file_options(given)

    def access(path: str) -> FileAccess:
        return FileAccess(path, options.key_file, options.file_key, options.skip_damaged)

    probes = FileProbes(lambda path: _is_binlog(access(str(path))), lambda path: _age(access(str(path))))
    tables = selected_tables(options, options.patterns, {})
    resolver = FileResolver(
        options.patterns,
        exclude=tables.exclude,
        shadows=tables.shadows,
        schema_file=declared_tables(options.schema_file),
        unnamed=None,
    )
    survey = FileSurvey(
        resolver,
        tables,
        skip_unprepared=options.skip_unprepared_xa,
        on_statement_dml=options.on_statement_dml,
        strict=options.gtid_strict_mode,
    )
    for path in find_binlogs(options.path, probes):
        survey.add_file(access(path))
    found = survey.found
    if found.statement_dml and options.on_statement_dml == "warn":
        _log.warning(
            "%d statements in these files may have changed rows of selected tables; these row changes are not in the "
            "files",
            found.statement_dml,
        )
    for name, note in resolver.notes.items():
        _log.warning("%s: %s", table_text(name), note)
    if found.unread:
        raise _unread(list(found.unread.values()))
    columns = (
        None if options.table is None else _columns(options.table, found, resolver, options.policy, options.columns)
    )
    plan = ReadPlan(
        shape="variant" if columns is None else options.row_shape,
        tables=tables,
        columns=columns,
        server="",
        invalid_dates=options.invalid_dates,
        invalid_text=options.invalid_text,
        geometry=options.geometry,
        include_sql=options.include_sql,
        wide_sequence=options.sequence_numbers == "decimal",
    )
    plan.spark_schema()  # a column name that collides with a metadata column raises here
    return LoadedFiles(plan, tuple(found.partitions), tuple(found.definitions.values()))


def _policy(plan: ReadPlan) -> ValuePolicy:
    return ValuePolicy(plan.invalid_dates, plan.invalid_text, plan.geometry)


def _is_binlog(access: FileAccess) -> bool:
    try:
        access.open().close()
    except ProtocolError:
        return False
    return True


def _age(access: FileAccess) -> Age:
    """Return the age of a file: the number of groups logged before it, and the Unix second of its first event.

    The number comes from the file's GTID_LIST.
    """
    with access.open() as file:
        first = next(access.ranges(file))
        begun, start = parse_header(first.data).timestamp, 0
        while start < len(first.data):
            header = parse_header(first.data, start)
            if header.event_type == EventType.GTID_LIST:
                event = decode(first.data[start : start + header.event_length], first.description)
                assert isinstance(event, GtidListEvent)  # noqa: S101
                return sum(gtid.seq_no for gtid in event.gtids), begun
            start += header.event_length
    return 0, begun


def _columns(
    table: tuple[str, str],
    found: Survey,
    resolver: FileResolver,
    policy: ValuePolicy,
    chosen: Sequence[str] | None,
) -> tuple[TableColumn, ...]:
    """Return the columns of the one table by its newest definition; `chosen`: the option `columns`."""
    if table in found.last:
        table_map, schema = found.last[table]
        return logged_table_columns(table_map, schema, policy, chosen)
    schema = resolver.history.table(*table)
    if schema is None:
        raise _no_table(table_text(table), found.names)
    return catalog_table_columns(schema, policy, chosen)


def _no_table(name: str, names: set[str]) -> SchemaError:
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    others = ", ".join(sorted(names)[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    hint = f"Did you mean {' or '.join(near)}?" if near else f"The files have rows of {others or 'no table at all'}."
    return SchemaError(f"{name} has no rows and no definition in these files.", hint=hint)


def _unread(errors: Sequence[SchemaError]) -> SchemaError:
    more = f" (and of {len(errors) - _SHOWN} more tables)" if len(errors) > _SHOWN else ""
    return SchemaError(
        " ".join(error.message for error in errors[:_SHOWN]) + more,
        hint="Give their CREATE TABLE statements in schemaFile (mariadb-dump --no-data writes them); "
        "with binlog_row_metadata=FULL on the primary, rows name their columns themselves.",
    )
