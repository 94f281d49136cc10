"""Plan a batch read of tables: read all of them into a folder, moved to the position of the read, and name the parts.

In: the options, the plan of the rows, and the offset at which they hold. A replica receives what is committed behind it
into the same folder, while tables are read: with that, rows that were read later are moved back. Both end when the last
table is read; the rows stay as long as the DataFrame may be used (folders.py).

Refused: tables that cannot be read so, tables that were altered while they were read, and rows that do not fit into
relayMaxBytes.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import RelayError, SchemaError
from replica.protocol.gtid import GtidPosition
from replica.relay_log.disk import replace_file
from replica.relay_log.location import index_path, relay_numbers, relay_path
from replica.table_reader.batches import BatchName, find_batch
from replica.table_reader.frontier import Frontier
from streaming_source.attached.folder import attached_directory
from streaming_source.batch.folders import finish, take_folder
from streaming_source.batch.planning import PlannedRange
from streaming_source.planning.admission import batch_limits
from streaming_source.planning.feed import ReplicaFeed
from streaming_source.planning.open_planner import open_cutter
from streaming_source.planning.open_reading import open_reading
from streaming_source.planning.table_rows import range_of
from streaming_source.ranges.places import RelayPlaces

if TYPE_CHECKING:
    from pathlib import Path

    from replica.relay_log.location import RelayHead
    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.options.source_options import SourceOptions
    from streaming_source.rows.partition import MappedRange
    from streaming_source.rows.read_plan import ReadPlan

STEPS_NAME: Final = "tables.json"
SPOOL_NAME: Final = "tables"
POLL_S: Final = 0.05
"""How often it is looked whether rows are there."""
NAMED: Final = 5
"""The names of tables in a message."""
LOST: Final = "It was changed by someone else: load() again."


class _Steps(NamedTuple):
    """The batches of rows that were written, by the frontiers between them, and the position at which they hold."""

    frontiers: tuple[Frontier, ...]
    position: GtidPosition

    @classmethod
    def read(cls, folder: Path) -> _Steps:
        try:
            told = json.loads((folder / STEPS_NAME).read_text(encoding="utf-8"))
            frontiers = tuple(Frontier.parse(value) for value in told["frontiers"])
            return cls(frontiers, GtidPosition.parse(told["position"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RelayError(f"{folder / STEPS_NAME} cannot be read: {error!r}.", hint=LOST) from None

    def write(self, folder: Path) -> None:
        told = {"frontiers": [frontier.json() for frontier in self.frontiers], "position": str(self.position)}
        replace_file(folder / STEPS_NAME, json.dumps(told).encode())


def plan_tables(options: SourceOptions, plan: ReadPlan, begin: SourceOffset, load: str) -> PlannedRange:
    """Return the partitions of the rows of all tables, as they are at an offset.

    Raises:
        PrerequisiteError: a table cannot be read so that its rows are right.
        DiskFullError: the rows do not fit into relayMaxBytes, or on the disk.
        ReplicaError: whatever reading and receiving raise.
    """
    if attached_directory(options) is not None:  # a daemon's folder is no place for rows of ours
        options = replace(options, relay_dir=None)
    folder, complete = take_folder(options, f"{load}|tables|{begin.position}|{begin.resume}")
    try:
        if not complete:
            _read(options, plan, begin, folder).write(folder)
            finish(folder)
        cutter = open_cutter(options, plan)
        partitions = cutter.on_board(cutter.of_tables(_parts(folder, begin)))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return PlannedRange.of(partitions, folder)


def _read(options: SourceOptions, plan: ReadPlan, begin: SourceOffset, folder: Path) -> _Steps:
    """Read all tables into the folder, and remove the relay log that was needed for it."""
    feed = ReplicaFeed(options, folder)
    try:
        places = RelayPlaces(feed)
        v = places.head_at(places.of_start(replace(begin, anchor=False)))
        steps = _rows_at(v, feed, options, plan, folder)
    finally:
        feed.close()
    for number in relay_numbers(folder):
        relay_path(folder, number).unlink(missing_ok=True)
        index_path(folder, number).unlink(missing_ok=True)
    return steps


def _rows_at(v: RelayHead, feed: ReplicaFeed, options: SourceOptions, plan: ReadPlan, folder: Path) -> _Steps:
    reading = open_reading(options, plan, feed.log.directory, folder / SPOOL_NAME, batch_limits(options, inline=False))
    frontiers = [Frontier()]
    try:
        reading.start(frontiers[0])
        while not frontiers[-1].finished:
            step = reading.advance(frontiers[-1], v)
            if step is not None:
                frontiers.append(step.frontier)
                continue
            if reading.held_back:
                tables = ", ".join(map(".".join, reading.held_back[:NAMED]))
                raise SchemaError(
                    f"{tables} was altered since load(), which settled that rows hold at {v.position}.",
                    hint="Load again: the rows are then those behind that statement.",
                )
            feed.head()  # what is behind the feed says there why nothing comes any more
            time.sleep(POLL_S)
    finally:
        reading.close()
    return _Steps(tuple(frontiers), v.position)


def _parts(folder: Path, begin: SourceOffset) -> list[MappedRange]:
    steps = _Steps.read(folder)
    found: list[MappedRange] = []
    for before, after in zip(steps.frontiers, steps.frontiers[1:], strict=False):
        if before.rows == after.rows:
            continue
        parts = find_batch(folder / SPOOL_NAME, BatchName(before, after, steps.position))
        if parts is None:
            raise RelayError(f"rows that were read into {folder} are gone.", hint=LOST)
        found += [range_of(part, begin) for part in parts]
    return found
