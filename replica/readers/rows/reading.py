"""Reading of binlog files with their rows: ranges of whole groups, their events, and their rows as VARIANT.

`Reading.parts` yields one `Part` per range, with events that are decoded on demand; `Reading.rows` yields the batches
of selected rows. The reading keeps state across ranges and files: prepared XA transactions until they end, and table
definitions from DDL in the files. If a file ends inside a group, the reading shows the events of the group but not its
rows, because the commit is missing.

An unreadable row image ends the reading after the rows before it. With `skip_damaged`, every range is decoded twice:
the first pass finds the groups with unreadable images, which are reported and completely omitted.
"""

from __future__ import annotations

import contextlib
import mmap
import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from replica.errors import DataLossError, ProtocolError, ReplicaError
from replica.protocol.charset import charset_of
from replica.protocol.constants import TYPE_AT, ChecksumAlgorithm, EventType
from replica.protocol.events.decode import decode
from replica.protocol.gtid import GtidPosition
from replica.protocol.header import parse_header
from replica.readers.files.ranges import relocated
from replica.readers.log.in_files import FilesReader
from replica.readers.log.in_relay_log import RelayLogReader
from replica.readers.rows.progress import DumpProgress
from replica.relay_log.location import RelayLocation
from replica.relay_log.walks.xa import prepared_at
from replica.rows.decode.batch import Groups
from replica.rows.decode.decode import DecodeOptions, RangeDecoder, UnreadableGroup
from replica.rows.decode.writers import DAMAGED
from replica.rows.scan.scan import Scan, scan
from replica.rows.scan.xa import CarriedGroup, XaAction, XaGroup, describe, find_xa_groups
from replica.rows.types.arrow_arrays import array_of_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from replica.protocol.events.statement_events import StatusVars
    from replica.protocol.events.transaction_events import XaId
    from replica.protocol.header import Event
    from replica.readers.files.binlog import BinlogFile
    from replica.readers.files.encryption import KeyRing
    from replica.readers.log.reader import Part
    from replica.readers.rows.names import Names
    from replica.readers.rows.progress import Notices
    from replica.relay_log.log import RelayLog
    from replica.rows.decode.batch import ChangeBatch

CARRIED_IN_MEMORY: Final = 32 << 20
"""Maximum bytes of prepared XA transactions in memory, for files that cannot be read twice; more goes to temporary
files.
"""
OPTIONS: Final = DecodeOptions(shape="variant", invalid_dates="text", stored_digits=True, reuse_buffers=True)
LEAVE_OUT: Final = "The bytes are damaged; with --skip-damaged their transaction is left out."


class ShownRows(NamedTuple):
    """A batch, and which of its groups are selected (None: all)."""

    batch: ChangeBatch
    shown: npt.NDArray[np.bool_] | None
    gtids: pa.Array | None
    """GTIDs of MySQL's groups, one text per group; None for MariaDB's."""


@dataclass(slots=True)
class Carried:
    """XA transactions that are prepared and not ended at the current place of the reading."""

    groups: dict[XaId, CarriedGroup] = field(default_factory=dict)
    in_memory: int = 0

    def prepare(self, part: Part, xa: XaGroup) -> None:
        data: memoryview | bytes | mmap.mmap = part.piece.data[xa.start : xa.end]
        if not part.binlog.seekable:  # a view suffices for a mapped file
            data = self._kept(part.piece.data[xa.start : xa.end])
        self.groups[xa.xid] = CarriedGroup(memoryview(data), part.piece.checksum)

    def _kept(self, data: memoryview) -> bytes | mmap.mmap:
        if self.in_memory + len(data) <= CARRIED_IN_MEMORY:
            self.in_memory += len(data)
            return bytes(data)
        with tempfile.TemporaryFile(prefix="mariadb-replica-xa-") as file:
            file.write(data)
            file.flush()
            return mmap.mmap(file.fileno(), len(data), access=mmap.ACCESS_READ)

    def end(self, xid: XaId) -> None:
        group = self.groups.pop(xid, None)
        if group is not None and isinstance(group.data, memoryview) and isinstance(group.data.obj, bytes):
            self.in_memory -= len(group.data)


@dataclass(slots=True)
class Reading:
    """Reading of `files`, in the order of the log."""

    files: Sequence[str]
    selection: ChosenTransactions
    names: Names
    notices: Notices
    keys: KeyRing | None = None
    skip_damaged: bool = False
    progress: DumpProgress = field(default_factory=DumpProgress)
    _carried: Carried = field(default_factory=Carried)
    _decoder: RangeDecoder | None = None
    _scanned: tuple[memoryview, Scan] | None = None
    _readable: tuple[memoryview, npt.NDArray[np.bool_]] | None = None

    def parts(self) -> Iterator[Part]:
        """Yield all ranges of all files, until no later transaction can be selected."""
        for part in self._parts():
            yield part
            self.progress.advance(part.binlog, part.piece.end)

    def _parts(self) -> Iterator[Part]:
        reader = FilesReader(self.files, self.keys)
        for part in reader.parts(cut_at_ddl=True, skip_damaged=self.skip_damaged, at_end=self._report_damage):
            yield part
            if self.selection.finished:
                return
        for xid in self._carried.groups:
            self.notices.say(
                f"the XA transaction {describe(xid)} is prepared, but neither committed nor rolled back; "
                "its rows are not shown."
            )

    def _report_damage(self, binlog: BinlogFile) -> None:
        for damage in binlog.damage:
            self.notices.say(
                f"{binlog.name}: left out {damage.size} bytes from offset {damage.begin} on: {damage.error}"
            )

    def scan(self, part: Part) -> Scan:
        """Return the scan of the range; the last one is cached."""
        if self._scanned is None or self._scanned[0] is not part.piece.data:
            try:
                self._scanned = part.piece.data, scan(part.piece.data, checksum=part.piece.checksum)
            except ProtocolError as error:
                raise relocated(error, part.name, part.piece.offset) from None
        return self._scanned[1]

    def groups(self, part: Part) -> Groups:
        """Return the event groups of the range."""
        found = self.scan(part)
        return Groups(found.groups, found.expansion)

    def shown(self, part: Part) -> npt.NDArray[np.bool_] | None:
        """Mark the selected groups of the range; None if all are selected."""
        if not part.piece.whole:
            return None
        selected = None if self.selection.everything else self.selection.shown(self.groups(part))
        if self._readable is None or self._readable[0] is not part.piece.data:
            return selected
        return self._readable[1] if selected is None else selected & self._readable[1]

    def visible(self, part: Part) -> set[int] | None:
        """Return the offsets, in the range, of the selected groups; None if all are selected."""
        shown = self.shown(part)
        return None if shown is None else set(self.groups(part).start[shown].tolist())

    def carry(self, part: Part) -> list[CarriedGroup]:
        """Return the XA groups from before the range that end in it, and keep the groups that the range prepares."""
        return self._carry(part, self._xa_groups(part))

    def _carry(self, part: Part, xa: Sequence[XaGroup]) -> list[CarriedGroup]:
        carried = [self._carried.groups[group.xid] for group in xa if group.xid in self._carried.groups]
        for group in xa:
            if group.action is XaAction.PREPARE:
                self._carried.prepare(part, group)
            else:
                self._carried.end(group.xid)
        return carried

    def rows(self, part: Part) -> Iterator[ShownRows]:
        """Yield the selected row changes of the range. Errors of the range as a whole are raised at once."""
        if not part.piece.whole:
            return iter(())
        if part.defines and self.names.learn(part):
            self._decoder = None  # its compiled tables may have other columns now
        shown, xa = self.shown(part), self._xa_groups(part)
        carried = self._carry(part, xa)
        if shown is not None and not shown.any():
            return iter(())
        return self._decoded(part, carried, shown)

    def _decoded(
        self, part: Part, carried: Sequence[CarriedGroup], shown: npt.NDArray[np.bool_] | None
    ) -> Iterator[ShownRows]:
        if self.skip_damaged:
            self._skip_unreadable(part, carried)
            shown = self.shown(part)
        missing: list[XaGroup] = []
        gtids: pa.Array | None = None
        try:
            for number, batch in enumerate(
                self._row_decoder.decode(
                    part.piece.data,
                    checksum=part.piece.checksum,
                    carried=carried,
                    unprepared=missing,
                    only=None if shown is None else lambda _: shown,
                )
            ):
                if number == 0:
                    gtids = mysql_gtids(part, batch.groups)
                yield ShownRows(batch, shown, gtids)
        except ProtocolError as error:
            raise self.advised(of_file(error, part)) from None
        for group in missing:
            if shown is None or shown[group.number]:
                self.notices.left_out(
                    DataLossError(
                        f"{group.gtid} commits the XA transaction {describe(group.xid)}, which was prepared before "
                        f"{self.files[0]} begins: its rows are not shown.",
                        hint="Name also the file with its XA PREPARE, before the others.",
                    )
                )

    @property
    def _row_decoder(self) -> RangeDecoder:
        if self._decoder is None:
            self._decoder = RangeDecoder(self.names, OPTIONS)
        return self._decoder

    def _unreadable(self, part: Part, carried: Sequence[CarriedGroup] = ()) -> list[UnreadableGroup]:
        """Find the groups of the range with unreadable row images; errors have offsets of the file."""
        found: list[UnreadableGroup] = []
        decoded = self._row_decoder.decode(
            part.piece.data, checksum=part.piece.checksum, carried=carried, unprepared=[], unreadable=found
        )
        try:
            for _ in decoded:
                pass
        except ProtocolError as error:
            if not found:
                raise of_file(error, part) from None
        return [UnreadableGroup(one.number, of_file(one.error, part)) for one in found]

    def _skip_unreadable(self, part: Part, carried: Sequence[CarriedGroup]) -> None:
        """Report the unreadable groups of the range; later calls do not show them."""
        groups = self.groups(part)
        readable = np.ones(len(groups), np.bool_)
        for one in self._unreadable(part, carried):
            readable[one.number] = False
            self.report_skipped(part, one)
        self._readable = part.piece.data, readable

    def report_skipped(self, part: Part, one: UnreadableGroup) -> None:
        """Report an unreadable group that was skipped."""
        groups = self.groups(part)
        start, end = int(groups.start[one.number]), int(groups.end[one.number])
        gtid = gtid_at(part, groups, one.number)
        where = f"{end - start} bytes from offset {part.piece.offset + start} on"
        self.notices.say(f"{part.name}: left out {gtid}, {where}: {one.error.message}")

    def advised(self, error: ProtocolError) -> ProtocolError:
        """Return the same error, with a hint to the option that skips the damage."""
        if error.hint == DAMAGED and not self.skip_damaged:
            error.hint = LEAVE_OUT
        return error

    def _xa_groups(self, part: Part) -> list[XaGroup]:
        try:
            return find_xa_groups(part.piece.data, checksum=part.piece.checksum)
        except ProtocolError as error:
            raise relocated(error, part.name, part.piece.offset) from None


def of_file(error: ProtocolError, part: Part) -> ProtocolError:
    """Add the file's name and offset to an error; an error in an XA group from before the range has no offset."""
    notes = getattr(error, "__notes__", None)
    if notes:
        return type(error)(f"{part.name}: {error.placeless} ({'; '.join(notes)})", hint=error.hint)
    return relocated(error, part.name, part.piece.offset)


def gtid_at(part: Part, groups: Groups, number: int) -> str:
    """Return the GTID of one group of the range, as text."""
    start = int(groups.start[number])
    header = parse_header(part.piece.data, start)
    event = part.piece.data[start : start + header.event_length]
    return gtid_text(decode(event, part.piece.description, checksum=ChecksumAlgorithm(int(part.piece.checksum))))


def data_type(part: Part, groups: Groups, number: int) -> int:
    """Return the type of the event that begins one group of the range."""
    return int(part.piece.data[int(groups.start[number]) + TYPE_AT])


def mysql_gtids(part: Part, groups: Groups) -> pa.Array | None:
    """Return the GTIDs of MySQL's groups, `uuid:number`; None for MariaDB's, which the group records have."""
    data = part.piece.data
    starts = groups.start.tolist()
    if not starts or data[starts[0] + TYPE_AT] == EventType.GTID:
        return None
    return array_of_values([gtid_at(part, groups, number) for number in range(len(starts))], pa.large_string())


def gtid_text(event: Event) -> str:
    """Return a GTID as text: `0-1-7`, or MySQL's `uuid:7`."""
    gtid = getattr(event, "gtid", None)
    return "anonymous" if gtid is None else str(gtid)


class PreparedBefore:
    """XA transactions that were prepared before `start`, for a reading that began there.

    The log before `start` may be long. It is searched only when the first of these transactions is committed, which is
    rare.
    """

    def __init__(self, log: RelayLog, start: RelayLocation) -> None:
        self._log = log
        self._start = start
        self._seen: set[XaId] = set()
        self._done = False

    def supply(self, reading: Reading, part: Part) -> None:
        """Give the reading the prepared groups that the part commits, before it reads the part.

        Purged groups are not an error here: the reading reports them.
        """
        if self._done:
            return
        for group in find_xa_groups(part.piece.data, checksum=part.piece.checksum):
            if group.action is XaAction.PREPARE:
                self._seen.add(group.xid)
            elif group.xid in self._seen:
                self._seen.remove(group.xid)
            elif group.action is XaAction.COMMIT:
                self._done = True
                with contextlib.suppress(DataLossError):
                    self._carry(reading)
                return

    def _carry(self, reading: Reading) -> None:
        reader = RelayLogReader(self._log)
        for group in prepared_at(self._log, self._start):
            end = RelayLocation(group.location.file, group.bytes.end)
            for part in reader.parts(group.location, end):
                reading.carry(part)


# GTIDs limit a reading as in mariadb-binlog: the start is exclusive, because the reader already has that transaction,
# and the stop is inclusive. Each GTID counts in its own domain, by sequence number. Domains without a start are shown
# from the beginning. With a stop, only the domains that it names are shown. Times are commit times; the start is
# inclusive, the stop exclusive.


@dataclass(slots=True)
class ChosenTransactions:
    """Bounds of the selected transactions: GTID positions, and commit times in seconds since 1970."""

    start: GtidPosition = field(default_factory=GtidPosition)
    stop: GtidPosition = field(default_factory=GtidPosition)
    start_time: int | None = None
    stop_time: int | None = None
    _reached: set[int] = field(default_factory=set)

    @property
    def everything(self) -> bool:
        return not self.start and not self.stop and self.start_time is None and self.stop_time is None

    @property
    def finished(self) -> bool:
        """Whether no later transaction can be selected: every domain of `stop` has reached it."""
        return bool(self.stop) and self._reached.issuperset(gtid.domain_id for gtid in self.stop)

    def shown(self, groups: Groups) -> npt.NDArray[np.bool_]:
        """Mark the selected groups; the caller must pass groups in the order of the log."""
        shown = np.ones(len(groups), np.bool_)
        sequence = groups.seq_no.astype(np.uint64)  # as int64, numbers from 2^63 on are negative
        for gtid in self.start:
            shown &= (groups.domain != gtid.domain_id) | (sequence > np.uint64(gtid.seq_no))
        if self.stop:
            within = np.zeros(len(groups), np.bool_)
            for gtid in self.stop:
                of_domain = groups.domain == gtid.domain_id
                within |= of_domain & (sequence <= np.uint64(gtid.seq_no))
                if (of_domain & (sequence >= np.uint64(gtid.seq_no))).any():
                    self._reached.add(gtid.domain_id)
            shown &= within
        if self.start_time is not None:
            shown &= groups.commit_ts >= self.start_time
        if self.stop_time is not None:
            shown &= groups.commit_ts < self.stop_time
        return shown


def statement_text(query: bytes, status: StatusVars | None = None) -> str:
    """Decode a statement's characters. Without a known character set, the bytes are read as UTF-8."""
    if status is not None and status.charset is not None:
        try:
            return charset_of(status.charset[0]).decode(query)
        except ReplicaError:
            pass  # a collation of a newer server: keywords and most names are ASCII in every character set
    return query.decode("utf-8", "replace")
