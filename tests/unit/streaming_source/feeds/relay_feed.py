"""A `Feed` without a server: a real relay log, groups that a test lets arrive when it wants; and planners over it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal

from replica.handshake.start.start import Latest, ServerEnd
from replica.protocol.gtid import BinlogPosition, Gtid, GtidPosition
from replica.relay_log.log import RelayLog
from replica.relay_writer.writer import RelayWriter
from replica.rows.types.types import ValuePolicy
from streaming_source.offsets.data_loss import Losses
from streaming_source.offsets.offset import SourceOffset
from streaming_source.planning.admission import Admission, BatchLimits
from streaming_source.planning.definitions.remembered_selection import RememberedSelection, selection_of
from streaming_source.planning.definitions.statement_dml import StatementDml
from streaming_source.planning.definitions.table_history import TableHistory
from streaming_source.planning.planner import ChangePlanner
from streaming_source.ranges.cutting import Origin, RangeCutter
from streaming_source.rows.read_plan import ReadPlan
from streaming_source.schema.changes import SchemaChanges
from streaming_source.schema.table_state import SchemaStore
from streaming_source.selection.resolver import SelectedTables
from tests.kit.binlog.primary import SERVER_ID, Primary
from tests.kit.relay.driving import receive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from replica.errors import RelayFileRemovedError
    from replica.relay_log.location import RelayHead, RelayLocation
    from streaming_source.options.row_options import OnStatementDml
    from streaming_source.ranges.places import Feed


EVERYTHING = SelectedTables(("*.*",), {})


def plan(
    feed: Feed,
    *,
    tables: SelectedTables = EVERYTHING,
    inline: bool = False,
    skip_unprepared: bool = False,
    shape: Literal["envelope", "flat", "variant"] = "variant",
    on_statement_dml: OnStatementDml = "fail",
    **limits: Any,
) -> ChangePlanner:
    """A planner over `feed`, with the fields of `BatchLimits` as limits."""
    cutter = RangeCutter(tables, inline=inline, skip_unprepared=skip_unprepared)
    selection = RememberedSelection(selection_of(ReadPlan(shape, tables, None, "")), tables)
    statements = StatementDml(tables, on_statement_dml)
    admission = Admission(tables, BatchLimits(**limits), cutter)
    return ChangePlanner(feed, cutter, admission, history(tables), selection, statements)


def history(tables: SelectedTables = EVERYTHING) -> TableHistory:
    """What is known of the tables of a query that asked no server."""
    changes = SchemaChanges("ignore", None, tables.catalog, ValuePolicy())
    return TableHistory(tables, None, changes, SchemaStore(None))


def next_file_time(folder: Path) -> None:
    """Wait until the clock of the file system has moved on: two files written in one of its ticks have one time."""
    probe = folder / "probe"
    probe.touch()
    began = probe.stat().st_mtime_ns
    while probe.stat().st_mtime_ns == began:
        time.sleep(0.001)
        probe.touch()
    probe.unlink()


class RelayFeed:
    """`arriving` runs at each wait: what it lets arrive is there when the wait returns."""

    def __init__(self, folder: Path, groups: Iterable[str] = (), *, begin: str = "", file_bytes: int = 1 << 20) -> None:
        self.log = RelayLog(folder)
        self.folder = folder
        self.starts: list[SourceOffset] = []
        self.target: GtidPosition | None = None
        self.position = GtidPosition.parse(begin)
        self.arriving: Callable[[], None] = lambda: None
        self.closed = False
        self.full = False
        self.epoch = self.reopened = 0
        self.down_s = 0.0
        self.losses = Losses()
        self.latest = Latest(GtidPosition(), frozenset(), GtidPosition())
        self.primary = Primary()
        self._writer = RelayWriter.open(folder, start=self.position, max_file_bytes=file_bytes)
        self.started = True
        if groups:
            self.arrive(*groups)

    def arrive(self, *groups: str, rows: int = 20) -> None:
        """Groups 'domain-server-sequence', one transaction each of `rows` bytes of row images.

        With 'prepare x' behind it a group prepares XA transaction x, with 'commit x' or 'rollback x' it ends it.
        """
        self.primary.connect()  # every arrival is a connection of its own
        for group in groups:
            gtid, *xa = group.split()
            match xa:
                case []:
                    self.primary.transaction(Gtid.parse(gtid), rows=(rows,))
                case ["prepare", name]:
                    self.primary.xa_prepare(name, Gtid.parse(gtid), rows=(rows,))
                case [verb, name]:
                    self.primary.xa_end(name, verb.upper(), Gtid.parse(gtid))
        receive(self._writer, self.primary.wire())

    def starting_offset(self) -> SourceOffset:
        head = self.head()
        return SourceOffset(head.position, head.position, anchor=True)

    def start(self, offset: SourceOffset) -> SourceOffset:
        self.starts.append(offset)
        self.started = True
        return offset

    def release(self, keep_from: RelayLocation) -> None:
        self.log.purge_before(keep_from)

    def restart_after(self, error: RelayFileRemovedError) -> None:
        """Look up again what is there: nothing can be fetched."""
        self.reopened += 1
        self.epoch += 1
        if self.log.head() is None:
            raise error

    def head(self) -> RelayHead:
        return self._writer.head

    def wait_beyond(self, location: RelayLocation, timeout_s: float) -> bool:  # noqa: ARG002
        self.arriving()
        return self.head().location > location

    def server_end(self) -> ServerEnd:
        return ServerEnd(self.head().position if self.target is None else self.target)

    def origin(self, location: RelayLocation) -> Origin:
        return Origin(SERVER_ID) if location.offset else Origin()

    def is_last(self, place: BinlogPosition, uid: str | None) -> bool:  # noqa: ARG002
        return False

    def latest_and_prepared(self) -> Latest:
        return self.latest

    @property
    def spool(self) -> Path:
        return self.folder / "readers" / "query.tables"

    def close(self) -> None:
        self.closed = True
        self._writer.close()
