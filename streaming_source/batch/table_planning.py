"""Planning of a batch read of tables: read all of them into a folder, as of one position, and make the partitions.

`plan_tables` takes the options, the plan of the rows, and the offset at which they hold. While it reads the tables, a
replica receives later transactions into the same folder, and past_tables.py uses them to revert rows that were read
later. Both end with the last table. The rows stay as long as the DataFrame may be used (folders.py).

Errors: tables that cannot be read so, tables that were altered after the offset, and rows that do not fit into
relayMaxBytes.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from replica.errors import RelayError
from replica.protocol.gtid import GtidPosition
from replica.relay_log.directory.disk import replace_file
from replica.snapshot.frontier import Frontier
from replica.snapshot.spool.batches import BatchName, find_batch
from streaming_source.attached.folder import attached_directory
from streaming_source.batch.folders import finish, take_folder
from streaming_source.batch.past_tables import SPOOL_NAME, TablesRead, read_tables
from streaming_source.batch.planning import PlannedRange
from streaming_source.planning.open_planner import open_cutter
from streaming_source.planning.tables.row_ranges import range_of

if TYPE_CHECKING:
    from pathlib import Path

    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.options.source_options import SourceOptions
    from streaming_source.rows.partition import MappedRange
    from streaming_source.rows.read_plan import ReadPlan

STEPS_NAME: Final = "tables.json"
LOST: Final = "Another program changed it: load() again."


def plan_tables(options: SourceOptions, plan: ReadPlan, begin: SourceOffset, load: str) -> PlannedRange:
    """Return the partitions of the rows of all tables, as they are at an offset.

    Raises:
        PrerequisiteError: a table cannot be read so that its rows are right.
        DiskFullError: the rows do not fit into relayMaxBytes, or on the disk.
        ReplicaError: any error of reading and receiving.
    """
    if attached_directory(options) is not None:  # rows of this read must not go into a daemon's folder
        options = replace(options, relay_dir=None)
    folder, complete = take_folder(options, f"{load}|tables|{begin.position}|{begin.resume}")
    try:
        if not complete:
            _write(read_tables(options, plan, begin, folder), folder)
            finish(folder)
        cutter = open_cutter(options, plan)
        partitions = cutter.on_board(cutter.of_tables(_parts(folder, begin)))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return PlannedRange.of(partitions, folder)


def _write(steps: TablesRead, folder: Path) -> None:
    told = {"frontiers": [frontier.json() for frontier in steps.frontiers], "position": str(steps.position)}
    replace_file(folder / STEPS_NAME, json.dumps(told).encode())


def _steps(folder: Path) -> TablesRead:
    try:
        told = json.loads((folder / STEPS_NAME).read_text(encoding="utf-8"))
        frontiers = tuple(Frontier.parse(value) for value in told["frontiers"])
        return TablesRead(frontiers, GtidPosition.parse(told["position"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RelayError(f"{folder / STEPS_NAME} cannot be read: {error!r}.", hint=LOST) from None


def _parts(folder: Path, begin: SourceOffset) -> list[MappedRange]:
    steps = _steps(folder)
    found: list[MappedRange] = []
    for before, after in zip(steps.frontiers, steps.frontiers[1:], strict=False):
        if before.rows == after.rows:
            continue
        parts = find_batch(folder / SPOOL_NAME, BatchName(before, after, steps.position))
        if parts is None:
            raise RelayError(f"rows that were read into {folder} were removed.", hint=LOST)
        found += [range_of(part, begin) for part in parts]
    return found
