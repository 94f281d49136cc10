"""Suspension of a table: the only place at which an error of a table becomes the table's state.

`suspended` returns the control row of a suspended table with the reason. If the fault may be transient, the row also
requests a re-snapshot. A suspended table keeps its rows. If its snapshot was running, `restore` gives its target the
rows from before the snapshot, once the control table records the suspension. `faults.py` handles errors that concern
more than one table.

If rules hide values of a table, the reason has only Spark's error condition, as Spark's documentation lists it. The
text of our own `raise_error` expressions is shown: it names columns and transactions, never values.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

from replica.errors import ConfigError, ReplicaError, SchemaError
from replica.protocol.plain_text import one_line
from replica.schema.patterns import table_text
from streaming_source.mirroring.apply.faults import full_disk, may_pass
from streaming_source.mirroring.apply.missing_targets import missing_target_error, target_exists
from streaming_source.mirroring.control.control_table import NO_BATCH
from streaming_source.mirroring.control.states import faulted, refused
from streaming_source.mirroring.reading.resnapshot import MOST_TRIES, RESNAPSHOT_HINT
from streaming_source.mirroring.writers.choose import open_target
from streaming_source.sinks.delta import DELTA
from streaming_source.sinks.queries import SPARK_ERRORS, message_of, without_plan
from streaming_source.sinks.storage_faults import bucket_fault

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming_source.mirroring.apply.table_applier import TableApplier
    from streaming_source.mirroring.control.control_table import ControlRow
    from streaming_source.mirroring.settings import MirrorSettings

LONGEST_ERROR: Final = 1000
"""Most characters of a reason in the control table."""
_log = logging.getLogger(__name__)
_OURS: Final = "USER_RAISED_EXCEPTION"
"""Spark's condition for errors of `raise_error`."""
_OF_ROWS: Final = ("InvariantViolationException", "SparkRuntimeException", "SparkArithmeticException")
"""Suffixes of the Java classes of errors that a row causes. Delta wraps these errors in its own."""
_DEEPEST: Final = 10


def suspended(row: ControlRow, error: Exception, number: int | None = None, *, why: str | None = None) -> ControlRow:
    """Return the row of a suspended table, or of one that waits for a re-snapshot because the fault may be transient.

    Args:
        row: the row of the table before the error.
        error: the error.
        number: the micro-batch of the error, if the mirror may re-snapshot the table itself.
        why: the reason to show instead of the error's text.
    """
    why = (message_of(error) if why is None else why)[:LONGEST_ERROR]
    _log.error("%s is suspended: %s", one_line(table_text(row.name)), one_line(why))
    if number is not None and may_pass(error) and row.tries < MOST_TRIES:
        return faulted(row, number, why)
    return refused(row, why)


def suspended_by_work(settings: MirrorSettings, work: TableApplier, error: Exception) -> ControlRow:
    """Return the row of a table whose target could not be written.

    If the error text may contain values that rules hide, the row has only the name of the error.
    """
    row, spark = work.row, work.part.spark
    hides = settings.rule_of(row.name).hides
    hint = RESNAPSHOT_HINT.format(table=table_text(row.name))
    if isinstance(error, AnalysisException) and not target_exists(spark, row):
        return suspended(row, missing_target_error(row, hint))
    lacking = _lacking_columns(work) if isinstance(error, SPARK_ERRORS) and settings.format.name == DELTA else []
    if lacking:  # Delta may report a missing column only as an internal error
        changed = f"its target {row.target} has no column {', '.join(lacking)} any more: something else changed it."
        return suspended(row, ConfigError(changed, hint=hint))
    broken = refused_row(error, hides=hides) if isinstance(error, Py4JJavaError) else None
    if broken is not None:
        return suspended(row, SchemaError(broken, hint=hint))
    if hides and isinstance(error, SPARK_ERRORS):
        named = error_name(error) if isinstance(error, PySparkException) else "Delta refuses a row or a batch."
        return suspended(row, error, work.part.commit.batch, why=str(SchemaError(named, hint=hint)))
    typed = full_disk(error, row.target) or bucket_fault(error, row.target)
    why = str(error) if isinstance(error, ReplicaError) else with_hint(error, hint)
    return suspended(row, error, work.part.commit.batch, why=why if typed is None else str(typed))


def with_hint(error: Exception, hint: str) -> str:
    """Return the text of an error of Spark or delta-rs, without Spark's plan, and with a hint."""
    return str(SchemaError(without_plan(error)[: LONGEST_ERROR - len(hint) - 2], hint=hint))


def _lacking_columns(work: TableApplier) -> list[str]:
    """Return the columns that a target lost; empty if the target cannot be read.

    An unreadable target is no reason of its own: the error of the write stays the reason.
    """
    try:
        return work.part.lacking_columns()
    except (ReplicaError, *SPARK_ERRORS):
        return []


def kept(row: ControlRow, old: ControlRow, number: int) -> ControlRow:
    """Return the first row of a target that was emptied for a re-snapshot. It contains the table's earlier row.

    Args:
        row: the first row of the new target.
        old: the table's row before the re-snapshot.
        number: the micro-batch in which the re-snapshot began.
    """
    if old.before_snapshot is not None:
        return row._replace(before_snapshot=old.before_snapshot)
    return row if old.batch == NO_BATCH else row.with_before(number, old)


def restore(spark: SparkSession, row: ControlRow) -> ControlRow:
    """Give the target of a suspended table the rows that it had before its re-snapshot, and return their control row.

    If the format or the storage no longer has these rows, the target is left unchanged. The call can be repeated after
    a crash.
    """
    if row.before is None:
        return row
    _, old = row.before
    try:
        open_target(spark, row.target).restore(old)
    except (ReplicaError, *SPARK_ERRORS) as error:
        _log.warning("%s cannot be restored to its rows before the re-snapshot: %s", row.target, message_of(error))
        return row._replace(before_snapshot=None)
    return old


def error_name(error: PySparkException) -> str:
    """Return the name of an error, without values of rows."""
    condition = error.getCondition() or type(error).__name__
    if condition.startswith(_OURS):
        parameters = error.getMessageParameters() or {}
        return str(parameters.get("errorMessage", condition))
    return _hidden(condition)


def refused_row(error: Py4JJavaError, *, hides: bool) -> str | None:
    """Return the target's error text about a row that it refuses; None for an error that no row caused.

    Args:
        error: the error of Spark.
        hides: whether rules hide values of the table, so that only the error condition may be shown.
    """
    cause: Any = error.java_exception
    for _ in range(_DEEPEST):
        if cause is None:
            break
        if str(cause.getClass().getName()).endswith(_OF_ROWS):
            condition = str(cause.getCondition() or cause.getClass().getSimpleName())
            return _hidden(condition) if hides else str(cause.getMessage())
        cause = cause.getCause()
    return None


def _hidden(condition: str) -> str:
    return f"Spark refuses a row or a batch: {condition}. Its text is not shown, because it may have hidden values."
