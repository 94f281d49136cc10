"""MERGE of delta-rs: net changes as a query on a table, for targets whose files are not rewritten.

`merge_by_query` takes the result of `net_changes` for the target's mode. The caller limits the size of the table,
because delta-rs holds the changed files in memory. The caller also makes the properties of the commit.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

from streaming_source.mirroring.writers.native.merge.equal_rows import EqualRows, combined, row_codes
from streaming_source.mirroring.writers.native.merge.partial_images import KEPT
from streaming_source.schema.target_modes import CURRENT, HISTORY
from streaming_source.sinks.sql_text import double_quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, WriterProperties

    from streaming_source.mirroring.writers.native.delta_rows import TargetShape

_HISTORY_ENDS: Final = ("_valid_to", "_to_gtid", "_to_sequence", "_current")


def merge_by_query(
    table: DeltaTable,
    rows: pa.Table,
    target: TargetShape,
    writer_properties: WriterProperties,
    commit_properties: CommitProperties,
    after: PostCommitHookProperties,
) -> None:
    """Merge changes into a table, in one commit.

    Args:
        table: the table.
        rows: the changes, with the types of the table.
        target: the target.
        writer_properties: the settings for files.
        commit_properties: the properties of the commit.
        after: the actions after the commit.
    """
    if target.mode == HISTORY:
        rows = _with_valid_values(table, rows, target)
    columns = list(target.names)
    changes = {name: _column("source", str(number)) for number, name in enumerate(target.names)}
    values = {double_quoted(name): number for name, number in changes.items()}
    kept = set(_kept_columns(rows, target).values())
    updated = {double_quoted(name): _kept(target, name) if name in kept else changes[name] for name in changes}
    ends = _column("source", str(len(columns)))
    same = " AND ".join(f"{_column('target', key)} = {changes[key]}" for key in target.keys)
    merger = table.merge(
        rows,
        predicate=f"{same} AND {_same_version(changes, ends)}" if target.mode == HISTORY else same,
        source_alias="source",
        target_alias="target",
        writer_properties=writer_properties,
        commit_properties=commit_properties,
        post_commithook_properties=after,
    )
    if target.mode == CURRENT:
        merger = merger.when_matched_delete(ends).when_matched_update(updated)
    elif target.mode == HISTORY:
        merger = merger.when_matched_update({double_quoted(name): changes[name] for name in _HISTORY_ENDS}, ends)
    else:
        merger = merger.when_matched_update(updated)
    merger.when_not_matched_insert(values, f"NOT {ends}" if len(rows.schema) > len(columns) else None).execute()


def _column(table: str, name: str) -> str:
    return f"{table}.{double_quoted(name)}"


def _kept_columns(rows: pa.Table, target: TargetShape) -> dict[int, str]:
    """Return the columns of which some changes keep the target's value, by their numbers."""
    return {number: name for number, name in enumerate(target.names) if f"{KEPT}{number}" in rows.schema.names}


def _kept(target: TargetShape, name: str) -> str:
    """Return the new value of a column that some changes lack. Such a change keeps the value of the target."""
    number = target.names.index(name)
    keeps, existing = _column("source", f"{KEPT}{number}"), _column("target", name)
    return f"CASE WHEN {keeps} THEN {existing} ELSE {_column('source', str(number))} END"


def _same_version(changes: Mapping[str, str], closes: str) -> str:
    """Return the condition by which a row of the changes matches a version.

    A closing row matches the valid version, unless this is the version that the micro-batch leaves. An opening row
    matches its own version.
    """
    own = " AND ".join(
        f"({_column('target', name)} IS NOT DISTINCT FROM {changes[name]})" for name in ("_from_gtid", "_from_sequence")
    )
    return f"CASE WHEN {closes} THEN {_column('target', '_current')} AND NOT ({own}) ELSE ({own}) END"


def _with_valid_values(table: DeltaTable, rows: pa.Table, target: TargetShape) -> pa.Table:
    """Return versions with the values that images lack, from the valid versions of the target, or NULL.

    A target that already has the micro-batch has other valid versions. Then each version of the micro-batch matches
    itself, and none is inserted.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from replica.rows.types.arrow_arrays import array_of

    kept = _kept_columns(rows, target)
    if not kept:
        return rows
    keys = [str(target.names.index(key)) for key in target.keys]
    keeps = {number: rows.column(f"{KEPT}{number}") for number in kept}
    wanted = rows.filter(reduce(pc.or_, keeps.values())).select(keys).combine_chunks()
    valid_rows = _valid_versions(
        table, wanted, pa.schema([rows.field(name) for name in [*keys, *map(str, kept)]]), target
    )
    codes = row_codes(pa.concat_tables([valid_rows.select(keys), rows.select(keys)]))
    places = np.full(codes.max(initial=0) + 1, -1)
    places[codes[: valid_rows.num_rows]] = np.arange(valid_rows.num_rows)
    valid = places[codes[valid_rows.num_rows :]]
    for number in kept:
        before = combined(valid_rows.column(str(number))).take(array_of(np.maximum(valid, 0), valid < 0))
        value = pc.if_else(keeps[number], before, rows.column(str(number)))
        rows = rows.set_column(number, str(number), value)
    return rows.drop_columns([f"{KEPT}{number}" for number in kept])


def _valid_versions(table: DeltaTable, wanted: pa.Table, schema: pa.Schema, target: TargetShape) -> pa.Table:
    """Return the valid versions of some keys, with some columns named by their numbers."""
    import pyarrow as pa
    from deltalake import QueryBuilder

    from replica.rows.types.arrow_arrays import array_of

    columns = ", ".join(f"{double_quoted(target.names[int(name)])} AS {double_quoted(name)}" for name in schema.names)
    query = f"SELECT {columns} FROM there WHERE {double_quoted('_current')}"  # noqa: S608  (the names are quoted)
    rows = EqualRows(wanted)
    found: list[pa.RecordBatch] = []
    for batch in pa.RecordBatchReader.from_stream(QueryBuilder().register("there", table).execute(query)):
        rows_read = batch.cast(schema)  # delta-rs returns string_view, which few pyarrow functions take
        places, _ = rows.places(rows_read)
        if len(places):
            found.append(rows_read.take(array_of(places)))
    return pa.Table.from_batches(found, schema)
