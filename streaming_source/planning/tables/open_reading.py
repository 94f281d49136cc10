"""Construction of a query's table reader from its options, in the process that plans the query.

`open_reading` makes a `TableSnapshot` once the feed has its relay log. The snapshot has a view of the log for its
threads. It writes its files to a folder of the relay log, where tasks can read them. It connects when it is started.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import cache, partial
from typing import TYPE_CHECKING, Final

from replica.errors import RelayError
from replica.handshake.login.login import ask
from replica.protocol.gtid import covers
from replica.relay_log.log import RelayLog
from streaming_source.offsets.reading_requests import RequestFolder
from streaming_source.planning.tables.table_rows import SnapshotRows

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from replica.protocol.gtid import GtidPosition
    from replica.relay_log.location import RelayHead
    from replica.schema.known_tables import TableName
    from replica.snapshot.check.verdict import InitialVerdicts
    from replica.snapshot.snapshot import TableSnapshot
    from streaming_source.options.source_options import SourceOptions
    from streaming_source.planning.admission import BatchLimits
    from streaming_source.planning.tables.keys import KeyColumns
    from streaming_source.ranges.places import Feed
    from streaming_source.rows.partition import ChangePartition
    from streaming_source.rows.read_plan import ReadPlan

_log = logging.getLogger(__name__)

WAIT_POLL_S: Final = 0.02
"""Seconds between two reads of the head by threads that wait for a position."""


class SharedLog:
    """Relay log for the threads that read tables. The feed's own object belongs to one thread."""

    def __init__(self, directory: Path) -> None:
        self.log = RelayLog(directory)

    def head(self) -> RelayHead:
        """Return the end of the log.

        Raises:
            RelayError: the folder was removed.
        """
        head = self.log.head()
        if head is None:
            raise RelayError(f"the relay log {self.log.directory} was removed.", hint="Start the query again.")
        return head

    def wait_for(self, position: GtidPosition, timeout_s: float) -> bool:
        """Wait until the log has a position; return whether it has."""
        deadline = time.monotonic() + timeout_s
        while not covers(self.head().position, position):
            if time.monotonic() >= deadline:
                return False
            time.sleep(WAIT_POLL_S)
        return True


def table_rows(feed: Feed, options: SourceOptions, plan: ReadPlan, limits: BatchLimits) -> SnapshotRows:
    """Make the snapshot rows of a query. The tables are read only if an offset asks for their rows."""

    def opened() -> TableSnapshot:
        return open_reading(options, plan, feed.log.directory, feed.spool, limits)

    def judge() -> None:
        judge_tables(options, plan, table_by_table=requests is not None)

    @cache
    def keys() -> KeyColumns:
        from streaming_source.planning.tables.keys import KeyColumns

        unkeyed, table_by_table = options.snapshot_unkeyed == "whole", requests is not None
        host = options.snapshot_endpoint
        return KeyColumns(options.connection, host, unkeyed=unkeyed, table_by_table=table_by_table)

    def keys_in_rows(partitions: Sequence[ChangePartition]) -> Collection[TableName]:
        from streaming_source.rows.reader import tables_with_other_keys  # imports the row decoder

        return tables_with_other_keys(partitions, plan)

    initial, again = options.initial, options.resnapshot
    requests = None if options.resnapshot_requests is None else RequestFolder(options.resnapshot_requests)
    return SnapshotRows(
        *(feed, plan.tables, opened, keys, keys_in_rows, limits),
        initial=initial,
        again=again,
        requests=requests,
        judge=judge,
    )


def open_reading(
    options: SourceOptions, plan: ReadPlan, relay_dir: Path, spool: Path, limits: BatchLimits
) -> TableSnapshot:
    """Make the reader of a query's tables beside a relay log, which writes batches within the limits to a folder.

    Args:
        options: the options of the query.
        plan: the plan for reading its rows.
        relay_dir: the folder of the relay log.
        spool: the folder to write.
        limits: the limits of a batch.
    """
    from replica.snapshot.pace import CHUNK_BYTES, Pace
    from replica.snapshot.snapshot import TableSnapshot

    rows, beside = options.snapshot_chunk_rows, limits.beside_changes()
    if beside.max_rows is not None:
        rows = min(rows, max(1, beside.max_rows))
    rate = options.snapshot_rows_per_second
    pace = Pace(
        connections=options.snapshot_connections,
        chunk_rows=rows,
        chunk_bytes=min(CHUNK_BYTES, beside.max_bytes),
        rows_a_second=None if rate is None else float(rate),
        host=options.snapshot_endpoint,
        unkeyed=options.snapshot_unkeyed == "whole",
        resnapshot_statement_dml=options.on_statement_dml == "row",
        table_by_table=options.resnapshot_requests is not None,
    )
    return TableSnapshot(options.connection, SharedLog(relay_dir), plan.tables.selects, pace, spool)


def judge_tables(
    options: SourceOptions, plan: ReadPlan, *, settled: bool = False, table_by_table: bool = False
) -> InitialVerdicts:
    """Refuse tables that cannot be read correctly, log warnings about readable tables, and return all verdicts.

    `settled`: the position of the rows is fixed before they are read. `table_by_table`: as for `require`.
    """
    from replica.snapshot.check.verdict import ask_verdicts, require, warnings_of

    config, tables = options.connection, plan.tables
    if options.snapshot_endpoint is not None:
        config = config.model_copy(update={"host": (str(options.snapshot_endpoint),), "unix_socket": None})
    unkeyed = options.snapshot_unkeyed == "whole"
    steps = partial(ask_verdicts, tables.patterns, tables.selects, settled=settled, unkeyed=unkeyed)
    verdicts = asyncio.run(ask(config, lambda _: steps()))
    for warning in warnings_of(verdicts):
        _log.warning("%s", warning)
    require(verdicts, table_by_table=table_by_table)
    return verdicts
