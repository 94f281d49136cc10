"""Snapshot of tables in a folder, as they were at a position, made while a replica receives later transactions.

`read_tables` takes the options, the plan, the offset and the folder, and returns the frontiers between the batches of
rows. It reads rows as they are now and reverts the changes after the position. If an XA transaction was prepared before
the position and committed after it, its rows are in the binlog before the position. Then the replica starts earlier:
first at the beginning of the binlog file with the position, then at the oldest file.

Errors: a statement after the position, logged as text, that changed a table as a whole; changes of more than
relayMaxBytes; a position that the server's binlog passes with its domains in another order.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import (
    AmbiguousPositionError,
    ConfigError,
    DataLossError,
    PositionLostError,
    PositionPurgedError,
    PrerequisiteError,
    RelayError,
    SchemaError,
)
from replica.handshake.login.login import ask
from replica.handshake.start.start import earliest_position
from replica.live.embedded import library_logger
from replica.protocol.gtid import GtidPosition, Order, covers
from replica.readers.primary import PrimaryReader
from replica.relay_log.location import index_path, relay_numbers, relay_path
from replica.relay_log.walks.xa import follow
from replica.schema.patterns import table_text
from replica.snapshot.frontier import Frontier
from replica.snapshot.reconcile.statements import StatementsAfter, shown
from streaming_source.driver.deployment import private_base
from streaming_source.planning.admission import batch_limits
from streaming_source.planning.feed import ReplicaFeed
from streaming_source.planning.tables.open_reading import open_reading
from streaming_source.ranges.places import RelayPlaces

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from replica.options.values import Position
    from replica.relay_log.location import RelayHead
    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.options.source_options import SourceOptions
    from streaming_source.rows.read_plan import ReadPlan

SPOOL_NAME: Final = "tables"
NAMED: Final = 5
"""Most names of tables in a message."""
POLL_S: Final = 0.05
"""Seconds between two checks whether rows have been read."""


class TablesRead(NamedTuple):
    """Batches of rows that were written, by the frontiers between them, and the position of the rows."""

    frontiers: tuple[Frontier, ...]
    position: GtidPosition


def read_tables(options: SourceOptions, plan: ReadPlan, begin: SourceOffset, folder: Path) -> TablesRead:
    """Read all tables into the folder, and remove the relay log afterwards.

    Raises:
        SchemaError: a statement after the position altered, emptied, moved or dropped one of the tables.
        DataLossError: rows of an XA transaction that was committed after the position are in no binlog any more.
        ReplicaError: any error of reading and receiving.
    """
    lost: DataLossError | None = None
    for offset in _beginnings(options, begin):
        try:
            return _PastReading(options, plan, offset, folder).read()
        except _PreparedBeforeError as error:
            lost = error.cause
    if lost is None:
        raise RuntimeError("there is no beginning to read from")
    raise lost


class _PreparedBeforeError(Exception):
    """Signal that an XA transaction was committed whose rows are before the start of the relay log.

    The error stays in this module.
    """

    def __init__(self, cause: DataLossError) -> None:
        super().__init__(cause.message)
        self.cause = cause


def _beginnings(options: SourceOptions, begin: SourceOffset) -> Iterator[SourceOffset]:
    """Yield the offset with the places to receive from, each earlier than the last."""
    yield begin
    if options.ending_position is None:
        return  # `begin` is the end of the binlog, before all prepared groups
    reader = PrimaryReader(options.connection, library_logger())
    try:
        yield replace(begin, resume=reader.file_before(begin.position))
    except PositionPurgedError:
        return
    yield replace(begin, resume=asyncio.run(ask(options.connection, lambda _: earliest_position())))


class _PastReading:
    """One attempt: a replica that writes the folder from an offset on, and a table reader that runs meanwhile."""

    def __init__(self, options: SourceOptions, plan: ReadPlan, begin: SourceOffset, folder: Path) -> None:
        self._options = options
        self._plan = plan
        self._begin = begin
        self._folder = folder
        self._feed = ReplicaFeed(options, folder)

    def read(self) -> TablesRead:
        """Read the tables. Afterwards the folder has the rows and no relay log.

        Raises:
            _PreparedBeforeError: the read has to begin at an earlier place.
            ReplicaError: see `read_tables`.
        """
        shutil.rmtree(self._folder / SPOOL_NAME, ignore_errors=True)
        try:
            return self._rows_at(self._position())
        except DataLossError as error:
            if self._lacks_prepared():
                raise _PreparedBeforeError(error) from error
            raise
        finally:
            self._feed.close()
            for number in relay_numbers(self._folder):
                relay_path(self._folder, number).unlink(missing_ok=True)
                index_path(self._folder, number).unlink(missing_ok=True)

    def _position(self) -> RelayHead:
        """Return the position as a place of the relay log."""
        places = RelayPlaces(self._feed)
        v = places.head_at(places.of_start(replace(self._begin, anchor=False)))
        if v.position.compare(self._begin.position) is not Order.EQUAL:
            raise AmbiguousPositionError(
                f"{self._begin.position} is not a place of this server's binlog: its domains have another order "
                f"there. The first place that covers it is at {v.position}.",
                hint="Name a position of this server, or read from the server that it belongs to.",
            )
        return v

    def _lacks_prepared(self) -> bool:
        """Return True if the log has an XA COMMIT of a transaction that was prepared before the log begins."""
        log, head = self._feed.log, self._feed.log.head()
        if head is None:
            return False
        needs, _ = follow(log, [(log.oldest(), head.location)], ())
        return any(part.unknown for part in needs)

    def _rows_at(self, v: RelayHead) -> TablesRead:
        feed, options, wanted = self._feed, self._options, self._plan.tables
        later = StatementsAfter(feed.log, v.location, wanted.selects, wanted.selects_database)
        spool, limits = self._folder / SPOOL_NAME, batch_limits(options, inline=False)
        reading = open_reading(options, self._plan, feed.log.directory, spool, limits)
        frontiers = [Frontier()]
        try:
            reading.start(frontiers[0])
            listed = feed.server_position()  # a drop before the tables were listed lies before this position
            while not frontiers[-1].finished:
                step = reading.advance(frontiers[-1], v)
                if step is not None:
                    frontiers.append(step.frontier)
                    continue
                self._check_statements(later, v)
                if reading.forward_only:
                    tables = ", ".join(map(table_text, reading.forward_only[:NAMED]))
                    raise PrerequisiteError(
                        f"changes of {tables} after {v.position}, the position of the requested rows, were logged "
                        "without whole row images, and cannot be undone.",
                        hint="Let every session write with binlog_row_image=FULL, and load() again.",
                    )
                time.sleep(POLL_S)
            while not covers(self._check_statements(later, v).position, listed):
                time.sleep(POLL_S)
        finally:
            reading.close()
        return TablesRead(tuple(frontiers), v.position)

    def _check_statements(self, later: StatementsAfter, v: RelayHead) -> RelayHead:
        """Refuse new groups that prevent reading the tables as they were; return the end of the log."""
        head = self._feed.head()  # raises if the replica has failed
        statement = later.first_up_to(head.location)
        if statement is None and self._options.table is not None:
            statement = next(iter(later.created.values()), None)
        if statement is not None:
            raise SchemaError(
                f"a selected table was altered, emptied, renamed or dropped after {v.position}, the position of the "
                f"requested rows: {shown(statement)}.",
                hint="Set an endingPosition after that statement, or load() again for the rows as they are now.",
            )
        if self._feed.full and not covers(head.position, self._feed.server_position()):
            raise RelayError(
                f"the changes after {v.position} do not fit into relayMaxBytes, "
                f"{self._options.connection.relay_max_bytes >> 20} MB, which is full at {head.position}.",
                hint="Raise relayMaxBytes, or read the tables at a later position.",
            )
        return head


# `offset_at_end` returns the offset of endingPosition, or of the end of the binlog. It waits up to connectRetry for a
# server that has not reached the position. Errors: the server has removed the transactions after the position; the
# position is from another history; the server does not reach it in time; the time is in the future.


POSITION_POLL_S: Final = 0.2
"""Seconds between two questions to a server that lags. Each question is a login."""
_PURGED: Final = (
    "Rows at a past position are made by undoing the changes after it. Set a later endingPosition, or remove the "
    "option."
)
_ANOTHER: Final = (
    "Set endingPosition to a position of this server. SELECT @@gtid_binlog_pos shows its newest position, "
    "mariadb-replica position finds the position of a time."
)


def offset_at_end(options: SourceOptions) -> SourceOffset:
    """Return the offset of endingPosition, or of the end of the binlog.

    Raises:
        ConfigError: the server has not reached the position, or the time is in the future.
        PositionPurgedError: transactions after the position were removed.
        PositionLostError: the position is from another history.
        ReplicaError: the server cannot be asked.
    """
    end: Position = "latest" if options.ending_position is None else options.ending_position
    # fail_on_data_loss, because a later position in place of a purged one would give other rows.
    asking = ReplicaFeed(replace(options, starting_position=end, fail_on_data_loss=True), private_base())
    try:
        if isinstance(end, GtidPosition):
            _await(asking, end, options.connection.connect_retry_s)
        return asking.starting_offset()
    except AmbiguousPositionError:
        raise
    except PositionLostError as error:
        hint = _PURGED if isinstance(error, PositionPurgedError) else _ANOTHER
        raise type(error)(error.message, code=error.code, sqlstate=error.sqlstate, hint=hint) from None
    finally:
        asking.close()


def _await(asking: ReplicaFeed, position: GtidPosition, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while not covers(reached := asking.server_position(), position):
        if time.monotonic() >= deadline:
            raise ConfigError(
                f"endingPosition {position} is not reached: the binlog is at {reached or 'its beginning'}, after "
                f"{patience_s:g} s of waiting.",
                hint="Set endingPosition to a position that this server has. If the server is a replica that lags, "
                "raise connectRetry to wait longer.",
            )
        time.sleep(POSITION_POLL_S)
