"""The state of a table that cannot go on: the one place where an error of a table becomes its state.

In: the table's row of the control table, an error. Out: the row of a suspended table, with its reason, and with a
request to read it again if the fault may pass. A target whose table was being read again gets back the rows that it
had before, once the control table has the state: a suspended table keeps its rows. What is no table's fault never comes
here (`faults.py`).

If the values of a table must not be shown, its reason has Spark's condition alone, as Spark's documentation lists it,
or the words of ours where an expression of ours raised it: these name columns and transactions, never values.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

from replica.errors import ConfigError, ReplicaError, SchemaError
from replica.plain_text import one_line
from replica.schema.patterns import table_text
from streaming_source.mirroring.apply.faults import full_disk, may_pass
from streaming_source.mirroring.apply.missing_targets import gone_error, is_target_there
from streaming_source.mirroring.control.control_row import NO_BATCH
from streaming_source.mirroring.control.states import faulted, refused
from streaming_source.mirroring.reading.reread import MOST_TRIES, RESYNC
from streaming_source.mirroring.writers.choose import open_target
from streaming_source.queries.delta_folder import DELTA
from streaming_source.queries.short_errors import SPARK_ERRORS, told_by, without_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming_source.mirroring.apply.table_applier import TableApplier
    from streaming_source.mirroring.control.control_row import ControlRow
    from streaming_source.mirroring.settings import MirrorSettings

LONGEST_ERROR: Final = 1000
"""Characters of a reason in the control table."""
_log = logging.getLogger(__name__)
_OURS: Final = "USER_RAISED_EXCEPTION"
"""Spark's condition for what `raise_error` raises."""
_OF_ROWS: Final = ("InvariantViolationException", "SparkRuntimeException", "SparkArithmeticException")
"""The ends of the names of Java's classes for what a row is the cause of; Delta writes it inside of other errors."""
_DEEPEST: Final = 10


def suspended(row: ControlRow, error: Exception, number: int | None = None, *, why: str | None = None) -> ControlRow:
    """Return the row of a table that does not go on, or not before it is read again because the fault may pass.

    Args:
        row: the table before.
        error: what went wrong.
        number: the batch that the error is of, if the table is to be read again by itself.
        why: the reason to show instead of the error's own text.
    """
    why = (told_by(error) if why is None else why)[:LONGEST_ERROR]
    _log.error("%s is suspended: %s", one_line(table_text(row.name)), one_line(why))
    if number is not None and may_pass(error) and row.tries < MOST_TRIES:
        return faulted(row, number, why)
    return refused(row, why)


def suspended_by_work(settings: MirrorSettings, work: TableApplier, error: Exception) -> ControlRow:
    """Return the row of a table whose target could not be written: with the name of the error alone if its text may
    have values that rules hide.
    """
    row, spark = work.row, work.part.spark
    hides = settings.rule_of(row.name).hides
    hint = RESYNC.format(table=table_text(row.name))
    if isinstance(error, AnalysisException) and not is_target_there(spark, row):
        return suspended(row, gone_error(row, hint))
    lacking = _lacking_columns(work) if isinstance(error, SPARK_ERRORS) and settings.format.name == DELTA else []
    if lacking:  # Delta may have no better word for it than an internal error
        changed = f"its target {row.target} has no column {', '.join(lacking)} any more: something else changed it."
        return suspended(row, ConfigError(changed, hint=hint))
    broken = refused_row(error, hides=hides) if isinstance(error, Py4JJavaError) else None
    if broken is not None:
        return suspended(row, SchemaError(broken, hint=hint))
    if hides and isinstance(error, SPARK_ERRORS):
        named = error_name(error) if isinstance(error, PySparkException) else "Delta refuses a row or a batch."
        return suspended(row, error, work.part.commit.batch, why=str(SchemaError(named, hint=hint)))
    full = full_disk(error, row.target)
    why = str(error) if isinstance(error, ReplicaError) else with_hint(error, hint)
    return suspended(row, error, work.part.commit.batch, why=why if full is None else str(full))


def with_hint(error: Exception, hint: str) -> str:
    """Return what an error of Spark or delta-rs says, without Spark's plan, and what to do about it."""
    return str(SchemaError(without_plan(error)[: LONGEST_ERROR - len(hint) - 2], hint=hint))


def _lacking_columns(work: TableApplier) -> list[str]:
    """Return the columns that a target lost; none if it cannot be looked at, so that the first error is the reason."""
    try:
        return work.part.lacking_columns()
    except (ReplicaError, *SPARK_ERRORS):
        return []


def kept(row: ControlRow, old: ControlRow, number: int) -> ControlRow:
    """Return the first row of a target that was emptied for a reading, with what it was before; `number`: the batch."""
    if old.before_snapshot is not None:
        return row._replace(before_snapshot=old.before_snapshot)
    return row if old.batch == NO_BATCH else row.with_before(number, old)


def put_back(spark: SparkSession, row: ControlRow) -> ControlRow:
    """Give the target of a suspended table the rows back that it had before its reading, and return the row that
    belongs to them.

    It stays as it is if the format, or the storage, does not have them any more. After a crash it is done again.
    """
    if row.before is None:
        return row
    _, old = row.before
    try:
        open_target(spark, row.target).put_back(old)
    except (ReplicaError, *SPARK_ERRORS) as error:
        _log.warning("%s cannot be put back to what it was before it was read again: %s", row.target, told_by(error))
        return row._replace(before_snapshot=None)
    return old


def error_name(error: PySparkException) -> str:
    """Return what went wrong, without a value of any row."""
    condition = error.getCondition() or type(error).__name__
    if condition.startswith(_OURS):
        told = error.getMessageParameters() or {}
        return str(told.get("errorMessage", condition))
    return _hidden(condition)


def refused_row(error: Py4JJavaError, *, hides: bool) -> str | None:
    """Return what the target says of a row that it refuses; None for an error that no row is the cause of."""
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
    return f"Spark refuses a row or a batch: {condition}. Its text is not shown, as it may have values that are hidden."
