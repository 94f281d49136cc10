"""`audit()`: one call that compares tables of a server with their copies, at one GTID position.

It takes the session, the copy of each table, the position and the source's options, and returns an `AuditResult`. A
table that cannot be compared raises an error of this project; in an audit of a mirror, the table is listed in
`left_out` instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from replica.errors import ConfigError, ReplicaError, SchemaError
from replica.schema.patterns import table_named, table_text
from streaming_source.auditing.comparison import Comparison, rechecks
from streaming_source.auditing.copies import (
    control_named,
    in_catalog,
    position_now,
    source_options,
    value_policy,
)
from streaming_source.auditing.mirror.from_mirror import mirrored_copies, mirrored_rows
from streaming_source.auditing.mirror.records import RepairingMirror, make_records, make_requests, write_records
from streaming_source.auditing.result import AuditResult, LeftOut, TableAudit
from streaming_source.driver.own_session import own_session
from streaming_source.sinks.iceberg.catalogs import is_iceberg, register
from streaming_source.sinks.queries import SPARK_ERRORS, first_line, side_by_side
from streaming_source.transforms.hashes import read_hash_key

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import DataFrame, SparkSession

    from replica.schema.known_tables import TableName
    from streaming_source.auditing.comparison import Probe
    from streaming_source.auditing.mirror.from_mirror import MirroredCopy
    from streaming_source.transforms.hashes import HashKey

AT_ONCE = 3
"""Tables compared at a time. A read as of a position waits some ten seconds until the position is surely committed.
Each read takes a process of some 200 MB on the driver's machine.
"""
BUCKETS = 256
"""Buckets of a table. With 10 million rows a bucket has 40 000, which are compared again if one row differs."""
SHOWN = 20
"""Rows of each kind that the audit brings to the driver and shows."""
MOST_BUCKETS = 1 << 16
MOST_SHOWN = 10_000
_UNKEYED = "snapshotUnkeyed"
"""Option with which the source accepts tables without a key. A mirror counts the rows of such tables."""


def audit(
    spark: SparkSession,
    *,
    tables: Mapping[str, Any] | None = None,
    mirror: str | None = None,
    at: str | None = None,
    keys: Mapping[str, Collection[str]] | None = None,
    ignore: Collection[str] = (),
    buckets: int = BUCKETS,
    shown: int = SHOWN,
    record: bool = True,
    repair: bool = False,
    hashKeyFile: str | None = None,  # noqa: N803  (as the mirror spells it)
    icebergCatalog: str | Mapping[str, str] | None = None,  # noqa: N803
    **source: object,
) -> AuditResult:
    """Check whether tables of a server are equal to their copies in the lakehouse, all at one GTID position.

    The server may continue to write meanwhile. docs/audit.md describes how rows and values are compared.

    Args:
        spark: a session that can read the copies.
        tables: the copy of each table, by database.table. A copy is a name in the catalog or the path of a Delta table,
            with or without a version (`lake.orders@v12`), or a DataFrame. The version of an Iceberg table is the id of
            a snapshot.
        mirror: instead of `tables`, the control table of a mirror. It has the copies, versions, keys and position.
        at: the GTID position of the copies. Unset: the current end of the binlog, for copies that do not change.
        keys: the columns that identify a row, by table. Unset: the primary key. () compares whole rows.
        ignore: columns that are not compared, such as columns that only the copies have.
        buckets: number of groups into which keys are divided, from 1 to 65536. Each group has one hash.
        shown: how many differing rows of each kind are shown, from 1 to 10000.
        record: for a mirror, whether the result is written to `<control table>_audits`. Use False in a session that may
            only read.
        repair: for a mirror, whether the audit asks it to correct the rows that differ. Audit again to see the outcome.
        hashKeyFile: for a mirror whose rules hash columns, the file with the key of all hashes.
        icebergCatalog: the catalog of a mirror with `format="iceberg"`, as `mirror` takes it. A process that has called
            `mirror` already knows the catalog. With `tables`, names of copies are tables of this catalog.
        source: options of the source, as `spark.read` takes them: host, user, passwordFile, …

    Returns:
        The compared tables and their differences. `equal` is the verdict.

    Raises:
        ConfigError: an argument is invalid, or the server has not reached the position.
        SchemaError: the columns of a table and its copy do not match, or a table was altered after the position.
        PositionPurgedError: the server has removed the binlogs after the position.
        StorageError: the Iceberg catalog cannot be reached.
        ReplicaError: any error of reading the tables.
    """
    for name, value, most in (("buckets", buckets, MOST_BUCKETS), ("shown", shown, MOST_SHOWN)):
        if not isinstance(value, int) or not 1 <= value <= most:
            raise ConfigError(f"{name}={value} is not a number from 1 to {most}.")
    compared = Comparison(spark, source_options(source), tuple(ignore), buckets, shown)
    if mirror is not None:
        if tables is not None or at is not None:
            raise ConfigError(
                "a mirror's control table already has the tables and their position.",
                hint="Leave out tables and at, or mirror.",
            )
        if repair and ignore:
            raise ConfigError(
                "rows whose columns are partly ignored cannot be repaired.", hint="Leave out ignore, or repair."
            )
        key = None if hashKeyFile is None else read_hash_key(hashKeyFile)
        compared = compared._replace(spark=own_session(spark))
        control = control_named(compared.spark, mirror, icebergCatalog)
        return _of_mirror(compared, control, _by_name(keys or {}), key, record=record, repair=repair)
    if hashKeyFile is not None:
        raise ConfigError(
            "hashKeyFile is only for the targets of a mirror.", hint="Leave it out, or name its control table."
        )
    if repair:
        raise ConfigError(
            "only copies of a mirror can be repaired, because the mirror repairs them itself.",
            hint="Name its control table.",
        )
    if icebergCatalog is not None and isinstance(tables, Mapping):
        catalog = register(icebergCatalog)
        tables = {table: in_catalog(copy, catalog) for table, copy in tables.items()}
    return _of_tables(compared, tables, _by_name(keys or {}), at)


def _of_tables(
    compared: Comparison, tables: Mapping[str, Any] | None, keys: Mapping[TableName, Collection[str]], at: str | None
) -> AuditResult:
    if not tables or not isinstance(tables, Mapping):
        raise ConfigError("no table with its copy is named.", hint='Name some: tables={"shop.orders": "lake.orders"}.')
    copies = _by_name(tables)
    position = at or position_now(compared.options, table_text(next(iter(copies))))
    compared = compared._replace(spark=own_session(compared.spark))

    def compare(name: TableName) -> TableAudit:
        return compared.audited(table_text(name), copies[name], position, keys.get(name)).audit

    found = side_by_side(compared.spark, compare, copies, at_once=AT_ONCE, name="audit")
    return AuditResult(position, tuple(found))


def _by_name(given: Mapping[str, Any]) -> dict[TableName, Any]:
    """Return the values by parsed table name.

    Raises:
        ConfigError: a key is not the name of one table.
    """
    found = {}
    for table, value in given.items():
        try:
            found[table_named(table)] = value
        except ValueError as error:
            raise ConfigError(f"{table!r} {error}.", hint="Name each table as database.table.") from None
    return found


def _of_mirror(
    compared: Comparison,
    control: str,
    keys: Mapping[TableName, Collection[str]],
    key: HashKey | None,
    *,
    record: bool,
    repair: bool,
) -> AuditResult:
    if repair and is_iceberg(control):
        raise ConfigError(
            "an audit cannot repair Iceberg targets.",
            hint="Leave out repair, and re-snapshot the tables that differ (mirror_resnapshot).",
        )
    if _UNKEYED.lower() not in map(str.lower, compared.options):
        compared = compared._replace(options={**compared.options, _UNKEYED: "whole"})
    copies, left_out = mirrored_copies(compared.spark, control)
    if repair:
        make_requests(compared.spark, control)
    if record:
        make_records(compared.spark, control)  # before the hours that a comparison may take, because it can fail

    def probe(copy: MirroredCopy, before: DataFrame | None, *, last: bool) -> Probe:
        policy = value_policy(compared.options, copy.table)
        way = mirrored_rows(copy.mode, copy.rules, copy.definition, policy, key)
        mirror = RepairingMirror(control, copy.mirror, copy.batch) if repair and last else None
        names = keys.get(table_named(copy.table), way.keys(copy.keys))
        arguments = (copy.table, copy.target, copy.position, names, way, mirror)
        return compared.audited(*arguments, before=before, keep=not last)

    def compare(copy: MirroredCopy) -> TableAudit | LeftOut:
        try:
            return rechecks(compared.spark, compared.options, control, copy, probe, repair=repair)
        except ReplicaError as error:
            reason = compared.altered(copy) if isinstance(error, SchemaError) else None
            return LeftOut(copy.table, f"{type(error).__name__}: {reason or error}")
        except SPARK_ERRORS as error:  # for instance a removed file of the target: the other tables are compared
            return LeftOut(copy.table, f"it cannot be compared: {first_line(error)}")

    results = side_by_side(compared.spark, compare, copies, at_once=AT_ONCE, name="audit")
    left_out += [one for one in results if isinstance(one, LeftOut)]
    found = [one for one in results if isinstance(one, TableAudit)]
    result = AuditResult(copies[0].position if copies else "", tuple(found), tuple(left_out))
    if record:
        write_records(compared.spark, control, result)
    return result
