"""Read tables into a folder as they were at a position, beside a replica that receives what was committed behind it.

In: the options, the plan, the offset, the folder. Out: the frontiers between the batches of rows that are there then.
Rows are read as they are now, and moved back by the changes since. An XA transaction that was prepared before the
position and committed behind it has its rows before it: then the replica begins earlier, first where the binlog file
begins that holds the position, then with the oldest file.

Refused: tables that a statement changed as a whole behind the position, by its text; changes that take more than
relayMaxBytes; a position between which and the reading the domains went another way.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import (
    AmbiguousPositionError,
    DataLossError,
    PositionPurgedError,
    PrerequisiteError,
    RelayError,
    SchemaError,
)
from replica.handshake.ask import ask
from replica.handshake.start.start import earliest_position
from replica.live.embedded import library_logger
from replica.primary_reader.on_primary import PrimaryReader
from replica.protocol.gtid import Order, covers
from replica.relay_log.location import index_path, relay_numbers, relay_path
from replica.relay_log.walks.xa import follow
from replica.schema.patterns import table_text
from replica.snapshot.frontier import Frontier
from replica.snapshot.reconcile.statements_behind import StatementsBehind, shown
from streaming_source.planning.admission import batch_limits
from streaming_source.planning.feed import ReplicaFeed
from streaming_source.planning.tables.open_reading import open_reading
from streaming_source.ranges.places import RelayPlaces

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from replica.protocol.gtid import GtidPosition
    from replica.relay_log.location import RelayHead
    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.options.source_options import SourceOptions
    from streaming_source.rows.read_plan import ReadPlan

SPOOL_NAME: Final = "tables"
NAMED: Final = 5
"""The names of tables in a message."""
POLL_S: Final = 0.05
"""How often it is looked whether rows are there."""


class TablesRead(NamedTuple):
    """The batches of rows that were written, by the frontiers between them, and the position at which they hold."""

    frontiers: tuple[Frontier, ...]
    position: GtidPosition


def read_tables(options: SourceOptions, plan: ReadPlan, begin: SourceOffset, folder: Path) -> TablesRead:
    """Read all tables into the folder, and remove the relay log that was needed for it.

    Raises:
        SchemaError: a statement behind the position altered, emptied, moved or dropped one of them.
        DataLossError: rows of an XA transaction that was committed behind the position are in no binlog any more.
        ReplicaError: whatever reading and receiving raise.
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
    """An XA transaction was committed whose rows lie before the relay log; it never leaves this module."""

    def __init__(self, cause: DataLossError) -> None:
        super().__init__(cause.message)
        self.cause = cause


def _beginnings(options: SourceOptions, begin: SourceOffset) -> Iterator[SourceOffset]:
    """Yield the offset with the places to receive from, each earlier than the one before."""
    yield begin
    if options.ending_position is None:
        return  # at the end of the binlog the server told what was prepared
    reader = PrimaryReader(options.connection, library_logger())
    try:
        yield replace(begin, resume=reader.file_before(begin.position))
    except PositionPurgedError:
        return
    yield replace(begin, resume=asyncio.run(ask(options.connection, lambda _: earliest_position())))


class _PastReading:
    """One attempt: a replica into the folder from an offset on, and the tables read beside it."""

    def __init__(self, options: SourceOptions, plan: ReadPlan, begin: SourceOffset, folder: Path) -> None:
        self._options = options
        self._plan = plan
        self._begin = begin
        self._folder = folder
        self._feed = ReplicaFeed(options, folder)

    def read(self) -> TablesRead:
        """Read; the rows are in the folder then, and no relay log.

        Raises:
            _PreparedBeforeError: begin earlier.
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
                f"{self._begin.position} is no place of this server's binlog: its domains come in another order there, "
                f"and where all have reached it, it is at {v.position}.",
                hint="Name a position of this server, or read from the server that it is of.",
            )
        return v

    def _lacks_prepared(self) -> bool:
        """Tell whether the log has an XA COMMIT of what was prepared before it begins."""
        log, head = self._feed.log, self._feed.log.head()
        if head is None:
            return False
        needs, _ = follow(log, [(log.oldest(), head.location)], ())
        return any(part.unknown for part in needs)

    def _rows_at(self, v: RelayHead) -> TablesRead:
        feed, options, wanted = self._feed, self._options, self._plan.tables
        behind = StatementsBehind(feed.log, v.location, wanted.wants, wanted.wants_database)
        spool, limits = self._folder / SPOOL_NAME, batch_limits(options, inline=False)
        reading = open_reading(options, self._plan, feed.log.directory, spool, limits)
        frontiers = [Frontier()]
        try:
            reading.start(frontiers[0])
            listed = feed.server_position()  # what was dropped before the tables were listed lies before it
            while not frontiers[-1].finished:
                step = reading.advance(frontiers[-1], v)
                if step is not None:
                    frontiers.append(step.frontier)
                    continue
                self._look_at(behind, v)
                if reading.forward_only:
                    tables = ", ".join(map(table_text, reading.forward_only[:NAMED]))
                    raise PrerequisiteError(
                        f"changes of {tables} behind {v.position}, where rows are asked for, were logged without whole "
                        "row images, so that they cannot be taken back.",
                        hint="Let every session write with binlog_row_image=FULL, and load() again.",
                    )
                time.sleep(POLL_S)
            while not covers(self._look_at(behind, v).position, listed):
                time.sleep(POLL_S)
        finally:
            reading.close()
        return TablesRead(tuple(frontiers), v.position)

    def _look_at(self, behind: StatementsBehind, v: RelayHead) -> RelayHead:
        """Refuse what has come since, if it keeps the tables from being read as they were; return the log's end."""
        head = self._feed.head()  # what is behind the feed says there why nothing comes any more
        statement = behind.first_up_to(head.location)
        if statement is None and self._options.table is not None:
            statement = next(iter(behind.created.values()), None)
        if statement is not None:
            raise SchemaError(
                f"a selected table was altered, emptied, renamed or dropped behind {v.position}, where its rows are "
                f"asked for: {shown(statement)}.",
                hint="Name an endingPosition behind that statement, or load() again for the rows as they are now.",
            )
        if self._feed.full and not covers(head.position, self._feed.server_position()):
            raise RelayError(
                f"the changes behind {v.position} do not fit into relayMaxBytes, "
                f"{self._options.connection.relay_max_bytes >> 20} MB: that is full at {head.position}.",
                hint="Raise relayMaxBytes, or read the tables at a later position.",
            )
        return head
