"""Comparison of one table with its copy, at one GTID position.

`Comparison.audited` takes the table, its copy and the position, and returns a `Probe`: a `TableAudit`, and the
differing rows if they are to be rechecked. `rechecks` compares a mirror's table again at a later position, because the
binlog does not record cascades. If table and copy cannot be compared, an error of this project is raised, not Spark's
(`typed_errors`).
"""

from __future__ import annotations

import contextlib
import re
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from pyspark.errors import PySparkException

from replica import errors
from replica.errors import ReplicaError
from replica.protocol.gtid import GtidPosition, covers
from replica.schema.patterns import table_text
from replica.schema.text.naming import column_key
from streaming_source.auditing.copies import passing_reads, position_now, read_source, read_target
from streaming_source.auditing.mirror.from_mirror import AS_IT_IS, MirroredRows, mirrored_copies
from streaming_source.auditing.mirror.records import RepairingMirror, request_repair
from streaming_source.auditing.result import KINDS, LeftOut, TableAudit
from streaming_source.auditing.rows.columns import compared_columns, key_columns
from streaming_source.auditing.rows.differences import (
    BucketSummary,
    ComparedRows,
    FoundDifferences,
    bucket_summaries,
    find_differences,
)
from streaming_source.sinks.queries import unlogged_calls

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from streaming_source.auditing.mirror.from_mirror import MirroredCopy
# The exception of a failed job has the class and text of the original error in its own text.


_WRAPPED_ERROR: Final = re.compile(r"replica\.errors\.(\w+): ([^\n]*)")


def error_of_ours(error: BaseException) -> errors.ReplicaError | None:
    """Return the error of this project that an exception of Spark wraps; None if it wraps none."""
    wrapped = _WRAPPED_ERROR.search(str(error))
    kind = getattr(errors, wrapped[1], None) if wrapped is not None else None
    if wrapped is None or not isinstance(kind, type) or not issubclass(kind, errors.ReplicaError):
        return None
    return kind(wrapped[2])


@contextlib.contextmanager
def typed_errors() -> Iterator[None]:
    """Raise the project's error in place of the Spark exception that wraps it."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        ours = error_of_ours(error)
        if ours is None:
            raise
        raise ours from None


class Probe(NamedTuple):
    """Outcome of a comparison.

    Attributes:
        differing: the rows that the next comparison rechecks; None if the caller asked for none, or nothing differs.
    """

    audit: TableAudit
    differing: DataFrame | None


class Comparison(NamedTuple):
    """Arguments that are the same for all tables of an audit."""

    spark: SparkSession
    options: Mapping[str, str]
    ignore: tuple[str, ...]
    buckets: int
    shown: int

    def audited(
        self,
        table: str,
        copy: Any,
        position: str,
        keys: Collection[str] | None,
        way: MirroredRows = AS_IT_IS,
        mirror: RepairingMirror | None = None,
        *,
        before: DataFrame | None = None,
        keep: bool = False,
    ) -> Probe:
        """Compare a table with its copy.

        Args:
            table: the table, as database.table.
            copy: the target, as in `audit`.
            position: the GTID position at which the table is read.
            keys: the columns that identify a row; None for the primary key.
            way: how rows of the table become rows of the target.
            mirror: the mirror to ask for a repair of the rows that differ.
            before: the rows that differed in an earlier comparison, as in `find_differences`.
            keep: whether to return the differing rows for a recheck.
        """
        begun = time.monotonic()
        with typed_errors(), passing_reads(self.options, table) as options:
            target = read_target(self.spark, table, copy)
            source = way.of_table(read_source(self.spark, options, table, position))
            copied = way.of_target(target.rows)
            columns = compared_columns(table, source.schema, copied.schema, self.ignore)
            rows = ComparedRows(columns, key_columns(table, source.schema, keys), self.buckets)
            ours, theirs = bucket_summaries(source, copied, rows)
            differing = [number for number in ours.keys() | theirs.keys() if ours.get(number) != theirs.get(number)]
            differences = FoundDifferences(dict.fromkeys(KINDS, 0), ())
            if differing:
                differences = find_differences(source, copied, rows, differing, self.shown, before=before, keep=keep)
            repair = None
            if differences.buckets and mirror is not None:
                repair = _request_repair(mirror, way, table, position, (source, copied), rows, differing, before)
        here, there = (sum(found.values(), BucketSummary()) for found in (ours, theirs))
        outcome = TableAudit(
            table=table,
            target=target.name,
            version=target.version,
            position=position,
            source_rows=here.rows,
            target_rows=there.rows,
            source_hash=here.text,
            target_hash=there.text,
            buckets=self.buckets,
            differing_buckets=differences.buckets,
            counts=differences.counts,
            differences=differences.examples,
            keys=rows.keys,
            seconds=time.monotonic() - begun,
            repair=repair,
            cascaded=differences.passed,
        )
        return Probe(outcome, differences.rows)

    def altered(self, copy: MirroredCopy) -> str | None:
        """Return why the table's columns are not those that its mirror knows.

        Returns:
            None if the columns are the same, or cannot be read.
        """
        try:
            with typed_errors():
                columns = read_source(self.spark, self.options, copy.table, copy.position).columns
        except ReplicaError:
            return None
        now = {column_key(name) for name in columns}
        known = {column_key(column.name): column.hidden for column in copy.definition.columns}
        shown = {name for name, hidden in known.items() if not hidden}
        if shown <= now <= known.keys():
            return None
        reason = f"{copy.table} was altered after {copy.position}, the position of its target."
        return f"{reason} Audit it again when the mirror has applied the change."


def _request_repair(
    mirror: RepairingMirror,
    way: MirroredRows,
    table: str,
    position: str,
    sides: tuple[DataFrame, DataFrame],
    rows: ComparedRows,
    differing: Collection[int],
    before: DataFrame | None,
) -> str:
    """Ask for the repair of rows that differ; return the text that the result shows."""
    if way != AS_IT_IS:
        return "rows of a target with a rule, or of a mode other than current, are not repaired: use mirror_resnapshot"
    try:
        request_repair(mirror, table, position, sides, rows, differing, before)
    except ReplicaError as error:
        return str(error)
    return "the mirror was asked for the repair"


# No binlog has the changes of CASCADE and SET NULL. So a read as of a position lacks rows that cascades deleted after
# the position, while the copy has these rows. If no row of an ancestor table changed after the position, the first
# comparison counts. Otherwise `rechecks` compares again when the mirror has reached a later position. Only rows that
# differ in both comparisons, with the same row of the copy, count. A mirror that stands still while ancestor rows
# change is an error.


MOST_PROBES: Final = 3
"""Most comparisons of a table. A correct row differs in all of them only if it was deleted and inserted again, with the
same values, before each.
"""
STILL_S: Final = 120.0
"""Seconds without a finished batch after which a mirror counts as standing still."""
POLL_S: Final = 2.0


class Rechecking(Protocol):
    """Function that compares a copy with its table.

    `before` has the rows that differed in the last comparison. `last`: no comparison follows.
    """

    def __call__(self, copy: MirroredCopy, before: DataFrame | None, *, last: bool) -> Probe: ...


def rechecks(
    spark: SparkSession,
    options: Mapping[str, str],
    control: str,
    copy: MirroredCopy,
    probe: Rechecking,
    *,
    repair: bool,
) -> TableAudit | LeftOut:
    """Compare a copy with its table, and repeat until cascades cannot explain the differences.

    Errors of `probe` pass through. With `repair`, the last comparison asks for a repair.
    """
    before: DataFrame | None = None
    for number in range(1, MOST_PROBES + 1):
        found = probe(copy, before, last=number == MOST_PROBES or not copy.ancestors)
        if found.differing is None or found.audit.equal:
            break
        now = position_now(options, copy.table)
        if not copy.unknown and not _ancestors_changed(spark, options, copy, now):
            return probe(copy, before, last=True).audit if repair else found.audit
        later = _later(spark, control, copy, now)
        if isinstance(later, LeftOut):
            return later
        copy, before = later, found.differing
    return found.audit


def _ancestors_changed(spark: SparkSession, options: Mapping[str, str], copy: MirroredCopy, now: str) -> bool:
    """Return True if rows of ancestor tables were deleted or updated after the copy's position, or this is unknown."""
    if now == copy.position:
        return False
    changes = {"tables": ",".join(map(table_text, sorted(copy.ancestors))), "operations": "delete,update"}
    changes |= {"startingPosition": copy.position or "earliest", "endingPosition": now}
    try:
        with typed_errors(), passing_reads(options, copy.table) as passing:
            with unlogged_calls():  # the options have the password
                rows = spark.read.format("mariadb-binlog").options(**passing, **changes).load()
            return rows.limit(1).count() > 0
    except (ReplicaError, PySparkException):
        return True


def _later(spark: SparkSession, control: str, copy: MirroredCopy, position: str) -> MirroredCopy | LeftOut:
    """Wait until the mirror has reached a position, and return the copy there."""
    wanted = GtidPosition.parse(position)
    batch, progressed_s = copy.batch, time.monotonic()
    while True:
        copies, left_out = mirrored_copies(spark, control)
        now = next((one for one in copies if one.table == copy.table), None)
        if now is not None and covers(GtidPosition.parse(now.position), wanted):
            return now
        reached = max((one.batch for one in copies), default=batch)
        if reached != batch:
            batch, progressed_s = reached, time.monotonic()
        if time.monotonic() - progressed_s > STILL_S:
            left = next((one for one in left_out if one.table == copy.table), None)
            return left or LeftOut(
                copy.table,
                f"rows differ, and foreign keys may have changed them after {copy.position}, which the binlog does not "
                "show. Only the progress of the mirror can show it, but the mirror stands still. Audit the table while "
                "the mirror runs, or while no rows are deleted from the tables that it refers to.",
            )
        time.sleep(POLL_S)
