"""The function that starts a mirror, `mirror()`.

In: the session, the source tables, the template of target names, the options of the source. Out: a running
StreamingQuery. Refused before the query starts: invalid arguments, and a checkpoint that does not belong to the control
table.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JJavaError

from replica.errors import ConfigError
from streaming_source.driver.hadoop_files import hadoop_text
from streaming_source.driver.own_session import own_session
from streaming_source.mirroring.apply.faults import full_disk
from streaming_source.mirroring.apply.parallel_applier import keep_compiled_classes
from streaming_source.mirroring.arguments import BY_NAME, PARALLEL
from streaming_source.mirroring.control.control_table import complete_control, mirrored_tables
from streaming_source.mirroring.reading.resnapshot import request_resnapshot
from streaming_source.mirroring.reading.rules import check_modes, check_rules
from streaming_source.mirroring.settings import mirror_settings
from streaming_source.mirroring.writers.choose import control_store
from streaming_source.mirroring.writers.native.conditional_put import check_conditional_put
from streaming_source.sinks.delta import known_folder
from streaming_source.sinks.queries import SPARK_ERRORS, first_line, started, unlogged_calls
from streaming_source.sinks.storage_faults import bucket_fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from streaming_source.mirroring.control.control_table import ControlRow
    from streaming_source.mirroring.settings import MirrorSettings


_STORAGE: Final = "Name one that can be read and written, and give the session the jar and the settings of its storage."


def mirror(
    spark: SparkSession,
    *,
    tables: str,
    into: str,
    checkpointLocation: str,  # noqa: N803  (as Spark spells it)
    control: str | None = None,
    format: str = "delta",  # noqa: A002  (as Spark spells it)
    icebergCatalog: str | Mapping[str, str] | None = None,  # noqa: N803
    writer: str | None = None,
    onTruncate: str = "apply",  # noqa: N803
    onDrop: str = "keep",  # noqa: N803
    onSwap: str = "apply",  # noqa: N803
    onAlter: str = "evolve",  # noqa: N803
    onCascade: str = "apply",  # noqa: N803
    onTableError: str = "suspend",  # noqa: N803
    parallel: int = PARALLEL,
    tableProperties: Mapping[str, str] | None = None,  # noqa: N803
    rules: Mapping[str, Mapping[str, object]] | None = None,
    hashKeyFile: str | None = None,  # noqa: N803
    storageOptions: Mapping[str, object] | None = None,  # noqa: N803
    auditEvery: str | None = None,  # noqa: N803
    trigger: Mapping[str, object] | None = None,
    **source: object,
) -> StreamingQuery:
    """Start the query that creates Delta tables from a server's tables and keeps them equal.

    docs/mirror.md describes the mirror.

    Args:
        spark: a classic session whose catalog can hold Delta tables. Without Delta, targets have to be local folders.
        tables: the source tables, as in the option of that name: `shop.*,crm.customer`.
        into: the template of target names: `lake.{database}_{table}`.
        checkpointLocation: a folder that only this mirror uses.
        control: the control table, which holds the state of each target. Unset: `mirror_control` beside the targets.
        format: the format of targets: `delta`, `parquet` for folders in the mode append_log, or `iceberg`.
        icebergCatalog: the catalog of Iceberg targets: its name in PyIceberg's configuration, or its properties.
        writer: what writes targets. `native`: the tasks that decode the rows of a table, and Spark for the changes that
            they cannot write. `spark`: Spark's MERGE alone. Unset: `native` for Delta tables.
        onTruncate: `apply` empties the target, `stop` suspends the table.
        onDrop: `keep` leaves the target with its last rows, `drop` removes it.
        onSwap: if another table takes a table's name, or a statement exchanges rows of its partitions, `apply`
            re-snapshots the table, `stop` suspends it.
        onAlter: `evolve` alters the target with its table, `stop` suspends the table.
        onCascade: if a foreign key changed rows, which no binlog records, `apply` changes them in the target, `stop`
            suspends the table, `ignore` leaves them.
        onTableError: what an error of one table does: `suspend` suspends this table with the reason, and all other
            tables continue; `fail` ends the query.
        parallel: how many tables are written at the same time.
        tableProperties: properties of new targets. They are added to the mirror's own properties and override them.
        rules: rules by table pattern, for tables that are not copied unchanged: `{"shop.orders": {"leaveOut":
            ["secret"], "hash": ["email"], "where": "country = 'DE'"}}`.
        hashKeyFile: a file with the key of all hashes.
        storageOptions: options of delta-rs for targets in S3. They override the settings of the session
            (`fs.s3a.…`), and these override the environment.
        auditEvery: the interval between audits of all tables while the query runs, such as `1d`. Unset: no audits.
        trigger: arguments of Spark's `trigger()`, such as `{"availableNow": True}`. Unset: batch after batch.
        source: options of the source, as `spark.readStream` takes them: host, user, passwordFile, …

    Returns:
        The running query.

    Raises:
        ConfigError: an argument is invalid. The checkpoint or the control table belongs to another mirror. The session
            has no Delta, which the targets need, or a Delta that was built for another Spark.
        StorageError: the bucket of the checkpoint or of the control table refuses requests, does not answer, or has no
            conditional PUT. The Iceberg catalog does not answer.
        PrerequisiteError: a selected table cannot be read, or the server cannot be replicated from.
    """
    given = locals()  # here `locals()` has only the parameters
    settings = mirror_settings({name: given[name] for name in BY_NAME}, source)
    if trigger is not None and "once" in trigger:
        trigger = {"availableNow": True}  # `once` is one batch, which could not end before a DDL statement
    _check_session()
    settings.format.check_session(spark, settings.names, settings.writer)
    keep_compiled_classes(spark)
    own = own_session(spark)
    control_folder = known_folder(own, settings.names.control, settings.storage)
    for row in _checked_rows(own, settings):
        if row.waits_for is not None:
            # the request is a local file, and the driver may have moved
            request_resnapshot(settings.checkpoint, [row.name], row.waits_for)
    check_rules(own, settings)
    check_conditional_put(own, (control_folder, into))
    complete_control(own, settings.names.control)
    from streaming_source.mirroring.batch.manifest import ManifestSource
    from streaming_source.mirroring.sink import MirrorSink

    spark.dataSource.register(ManifestSource)
    with unlogged_calls():  # the options have the password
        changes = spark.readStream.format(ManifestSource.name()).options(**settings.given).load()
    sink = changes.writeStream.foreachBatch(MirrorSink(settings)).option("checkpointLocation", settings.checkpoint)
    if trigger is not None:
        sink = sink.trigger(**trigger)
    with _storage_errors(own, f"the checkpoint {settings.checkpoint}", (Py4JJavaError,)):
        query = started(sink)
    if settings.audit_every_s is not None:
        from streaming_source.mirroring.control.scheduled_audit import audit_beside

        audit_beside(own, query, settings, settings.audit_every_s)
    return query


def _check_session() -> None:
    from pyspark.sql import is_remote

    if is_remote():
        raise ConfigError(
            "a mirror runs in the driver, but this is a session of Spark Connect.",
            hint="Start it with spark-submit, on classic Spark.",
        )


def _checked_rows(spark: SparkSession, settings: MirrorSettings) -> list[ControlRow]:
    """Return the rows of the control table.

    Raises:
        ConfigError: the checkpoint or the control table is missing although the other one is in use, or they belong to
            different mirrors.
    """
    with _storage_errors(spark, f"the control table {settings.names.control}"):
        rows = mirrored_tables(spark, settings.names.control)
    with _storage_errors(spark, f"the checkpoint {settings.checkpoint}"):
        query = _query_of(spark, settings.checkpoint)
    if rows and query != rows[0].mirror:
        whose = "is new" if query is None else f"belongs to the query {query}"
        raise ConfigError(
            f"{settings.names.control} belongs to the mirror {rows[0].mirror}, but the checkpoint "
            f"{settings.checkpoint} {whose}.",
            hint="Start a mirror with the checkpoint that it began with. To begin again, drop the control table and "
            "the targets, and name a new checkpoint.",
        )
    begun = query is not None and _has_batches(spark, settings.checkpoint)
    with _storage_errors(spark, f"the control table {settings.names.control}"):
        lost = begun and not control_store(spark, settings.names.control).exists()
    if lost:
        raise ConfigError(
            f"the checkpoint {settings.checkpoint} is in use, but the control table "
            f"{settings.names.control} does not exist.",
            hint="Name the control table that the mirror began with (control), or a new checkpoint.",
        )
    check_modes(rows, settings)
    return rows


@contextlib.contextmanager
def _storage_errors(
    spark: SparkSession, what: str, kinds: tuple[type[Exception], ...] = SPARK_ERRORS
) -> Iterator[None]:
    """Raise a ConfigError if Spark cannot read or write the storage.

    Args:
        spark: the session whose settings the storage is used with.
        what: the storage, for the message.
        kinds: the exceptions that become a ConfigError.
    """
    try:
        yield
    except kinds as error:
        typed = full_disk(error, what) or bucket_fault(error, what, spark)
        raise typed or ConfigError(f"{what} cannot be used: {first_line(error)}", hint=_STORAGE) from None


def _query_of(spark: SparkSession, checkpoint: str) -> str | None:
    """Return the id of the query that a checkpoint belongs to, or None for a new checkpoint."""
    written = hadoop_text(spark, f"{checkpoint}/metadata")
    return None if written is None else str(json.loads(written)["id"])


def _has_batches(spark: SparkSession, checkpoint: str) -> bool:
    return hadoop_text(spark, f"{checkpoint}/commits/0") is not None
