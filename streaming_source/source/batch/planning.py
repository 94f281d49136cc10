"""Planning of a batch read of changes: resolve the range, fetch it if needed, and cut it into partitions.

`plan_range` takes the options, the plan and the end of the binlog at load(). It returns the partitions and the private
folder that contains their bytes, if there is one. server.py lists the errors.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Self

from replica.errors import ConfigError, RelayError
from replica.handshake.start.start import ServerEnd
from replica.protocol.gtid import GtidPosition, covers
from streaming_source.attached.feed import AttachedFeed
from streaming_source.attached.folder import attached_directory
from streaming_source.driver.deployment import private_base
from streaming_source.planning.feed import ReplicaFeed
from streaming_source.planning.open_planner import planner_over
from streaming_source.ranges.end import has_end, is_at_or_after, offset_of_end
from streaming_source.ranges.places import LONG_POLL_S
from streaming_source.rows.partition import InlineRange
from streaming_source.source.batch.folders import FetchedFeed, finish, take_folder

if TYPE_CHECKING:
    from pathlib import Path

    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.options.source_options import SourceOptions
    from streaming_source.ranges.places import Feed
    from streaming_source.rows.partition import ChangePartition
    from streaming_source.rows.read_plan import ReadPlan


class PlannedRange(NamedTuple):
    """Planned range.

    Attributes:
        folder: the folder with the bytes of the partitions; None if they are inline or in a daemon's folder.
    """

    partitions: list[ChangePartition]
    folder: Path | None

    @classmethod
    def of(cls, partitions: list[ChangePartition], folder: Path) -> Self:
        """Make a planned range, and remove the folder if the partitions carry all bytes inline."""
        if all(isinstance(part, InlineRange) for partition in partitions for part in partition.ranges):
            shutil.rmtree(folder, ignore_errors=True)
            return cls(partitions, None)
        return cls(partitions, folder)


def plan_range(options: SourceOptions, plan: ReadPlan, latest: ServerEnd, load: str) -> PlannedRange:
    """Return the partitions of the rows between the two positions that the options name.

    Raises:
        ConfigError: the end lies before the start, or the server has not reached it.
        PositionLostError: the server does not have the range any more.
        DataLossError: the daemon's log does not have it any more.
        RelayError: the range is larger than relayMaxBytes.
    """
    options = replace(options, starting_position=options.starting_position or "earliest")
    directory = attached_directory(options)
    if directory is not None:
        return PlannedRange(_planned_in_log(options, plan, latest, directory), None)
    return _planned_from_server(options, plan, latest, load)


def _planned_in_log(
    options: SourceOptions, plan: ReadPlan, latest: ServerEnd, directory: Path
) -> list[ChangePartition]:
    feed = AttachedFeed(options, directory)
    try:
        end = _end(options, feed, latest)
        return _planned(feed, options, plan, end, reached=feed.head().position)
    finally:
        if options.reader_name is None:
            feed.leave()
        else:
            feed.close()


def _planned_from_server(options: SourceOptions, plan: ReadPlan, latest: ServerEnd, load: str) -> PlannedRange:
    asking = ReplicaFeed(options, private_base())
    try:
        begin, end = asking.starting_offset(), _end(options, asking, latest)
        if end.place is None:
            _judge(begin.position, end.position, asking.server_position())
    finally:
        asking.close()
    if _is_empty(begin, end):
        return PlannedRange([], None)
    folder, complete = take_folder(options, f"{load}|{begin.position}|{begin.resume}|{end.position}|{end.place}")
    try:
        if not complete:
            begin = _fetch(options, folder, begin, end)
            finish(folder)
        options = replace(options, relay_dir=folder)
        partitions = _planned(FetchedFeed(folder, begin), options, plan, end, reached=end.position)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return PlannedRange.of(partitions, folder)


def _is_empty(begin: SourceOffset, end: ServerEnd) -> bool:
    """Return True if no groups lie between `begin` and `end`.

    If `begin` has a higher number than the end of the server, sequence numbers went back.
    """
    if end.place is not None and begin.primary is not None and begin.uid == end.uid:
        return is_at_or_after(begin.primary, end.place)
    known = GtidPosition(tuple(gtid for gtid in begin.position if end.position.get(gtid.domain_id)))
    return covers(begin.position, end.position) and (end.place is None or covers(end.position, known))


def _fetch(options: SourceOptions, folder: Path, begin: SourceOffset, end: ServerEnd) -> SourceOffset:
    """Receive up to `end` into the folder, and return the begin of the range.

    The begin differs from `begin` only after an accepted data loss.
    """
    feed = ReplicaFeed(options, folder)
    try:
        begin = feed.start(replace(begin, anchor=False))
        while not has_end(feed, end):
            head = feed.head()
            if not feed.wait_beyond(head.location, LONG_POLL_S) and feed.full:
                raise RelayError(
                    f"the range from {begin.position or 'the beginning'} to {end.position} does not fit into "
                    f"relayMaxBytes, {options.connection.relay_max_bytes >> 20} MB, which is full at {head.position}.",
                    hint="Raise relayMaxBytes, read the range in parts (endingPosition), or use spark.readStream with "
                    "trigger(availableNow=True), which reads it batch by batch.",
                )
    finally:
        feed.close()
    return begin


def _planned(
    feed: Feed, options: SourceOptions, plan: ReadPlan, end: ServerEnd, *, reached: GtidPosition
) -> list[ChangePartition]:
    planner = planner_over(feed, options, plan)
    begin = planner.initial_offset()
    if end.place is None:
        _judge(begin.position, end.position, reached)
    return planner.whole_range(begin, offset_of_end(feed, end))


def _end(options: SourceOptions, feed: ReplicaFeed | AttachedFeed, latest: ServerEnd) -> ServerEnd:
    end = "latest" if options.ending_position is None else options.ending_position
    if not end:
        raise ConfigError(
            "no change lies before the first transaction, where endingPosition=earliest ends.",
            hint="Set another endingPosition. earliest is for content=tables.",
        )
    return latest if end == "latest" else ServerEnd(feed.ending_position(end))


def _judge(begin: GtidPosition, end: GtidPosition, reached: GtidPosition) -> None:
    """Refuse a range that ends before its begin, or that the server has not reached yet."""
    for gtid in end:
        first = begin.get(gtid.domain_id)
        if first is not None and first.seq_no > gtid.seq_no:
            raise ConfigError(
                f"endingPosition {end} lies before startingPosition {begin}: in domain {gtid.domain_id}, {gtid} comes "
                f"before {first}.",
                hint="Exchange them, or leave one out.",
            )
    if not covers(reached, end):
        raise ConfigError(
            f"endingPosition {end} is not reached: the binlog is at {reached or 'its beginning'}.",
            hint="Wait for it, or read up to latest.",
        )
