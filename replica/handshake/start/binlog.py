"""Queries of the server's binlog: its files, single events and groups.

Each function starts a dump and ends it at the first event that answers. The dump uses a separate connection and server
id 0. With that id the server does not wait for more events, and does not take us for another replica of the same id.
The connection cannot be used afterwards.

Source: measured on 10.11 and 11.8, for server id 0; the refusals are those of the server's sql/sql_repl.cc
(check_slave_start_position, set_read_error).
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, NamedTuple

from replica.errors import DisconnectedError, PrerequisiteError, ServerError
from replica.handshake.login.login import PROBE_BYTES, log_in
from replica.handshake.registration import CAPABILITY_GTID, Query, Steps
from replica.handshake.start.dump_error import dump_error
from replica.protocol.constants import FIRST_POSITION, HEADER_LENGTH, ROLES, DumpFlag, EventType, HeaderFlag, Role
from replica.protocol.events.decode import GtidEvent, decode, decode_description
from replica.protocol.groups.fingerprint import LONGEST_EVENT, FingerprintBuilder
from replica.protocol.gtid import Gtid, GtidPosition
from replica.protocol.header import parse_header
from replica.protocol.packets.packets import ErrPacket, com_binlog_dump
from replica.protocol.wire import Cursor

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from replica.handshake.login.login import Login
    from replica.options.config import Endpoint, ReplicaConfig
    from replica.protocol.groups.fingerprint import Fingerprint
    from replica.protocol.gtid import BinlogPosition
    from replica.protocol.header import FormatDescriptionEvent

MAX_DUMP_POSITION = (1 << 32) - 1
"""Maximum offset of COM_BINLOG_DUMP, which has 32 bits. Events beyond 4 GiB can be reached by GTID only."""

_BEFORE_THE_EVENT = (EventType.FORMAT_DESCRIPTION, EventType.START_ENCRYPTION)

ER_NO_SUCH_PLACE = 1236
"""ER_MASTER_FATAL_ERROR_READING_BINLOG: the dump is refused because the file or an event at that offset is missing."""


async def first_event(login: Login, file: str) -> bytes:
    """Return the FORMAT_DESCRIPTION event with which a binlog file begins.

    Raises:
        ServerError: the server has no such file (ER_NO_SUCH_PLACE).
        DisconnectedError: the connection ended.
    """
    await login.run(_announce())
    command = com_binlog_dump(0, flags=DumpFlag.NON_BLOCK, file=file, position=FIRST_POSITION)
    async with contextlib.aclosing(login.dump(command)) as events:
        async for event in events:
            if parse_header(memoryview(event)).event_type == EventType.FORMAT_DESCRIPTION:
                return event
    raise DisconnectedError(f"the server sent nothing of {file}.")


async def event_at(login: Login, place: BinlogPosition, *, longest: int = PROBE_BYTES) -> bytes | None:
    """Return the event with its checksum that starts at `place`, cut to `longest` bytes; None at the end of the binlog.

    Raises:
        ServerError: the server has no such file, or no event starts there (1236).
    """
    async with contextlib.aclosing(_events_from(login, place, longest)) as events:
        async for event in events:
            return event
    return None


class GroupHere(NamedTuple):
    """Event group at a place.

    `inside`: whether the place is inside an event group. `gtid`: GTID of the first group that begins at the place or
    after it.
    """

    inside: bool
    gtid: Gtid | None


async def group_at(login: Login, place: BinlogPosition) -> GroupHere:
    """Return the group at a place where an event starts.

    Raises:
        ServerError: as for `event_at`.
    """
    async with contextlib.aclosing(_events_from(login, place)) as events:
        async for event in events:
            header = parse_header(memoryview(event))
            if header.event_type == EventType.GTID:
                body = Cursor(event, HEADER_LENGTH)
                sequence, domain = body.u64(), body.u32()
                return GroupHere(inside=False, gtid=Gtid(domain, header.server_id, sequence))
            if ROLES[header.event_type] is not Role.CONTROL:
                return GroupHere(inside=True, gtid=None)
    return GroupHere(inside=False, gtid=None)


async def fingerprint_of(login: Login, gtid: Gtid, position: GtidPosition) -> Fingerprint | None:
    """Return the fingerprint of the group of a GTID, or None if the group is missing between its neighbours.

    Args:
        login: a connection, which cannot be used afterwards.
        gtid: the group.
        position: where the dump begins in the other domains, so that the server sends little.

    Raises:
        ServerError: the transactions with which the dump would begin were purged.
    """
    others = tuple(one for one in position if one.domain_id != gtid.domain_id)
    # Use the preceding sequence number, whether or not a group has it: without gtid_strict_mode, a server starts after
    # a gap.
    before = (gtid._replace(seq_no=gtid.seq_no - 1),) if gtid.seq_no > 1 else ()
    await login.run(_announce())
    await login.run(_ask_for(GtidPosition((*others, *before)), strict_mode=False, ignore_duplicates=False))
    builder: FingerprintBuilder | None = None
    description: FormatDescriptionEvent | None = None
    flags = DumpFlag.NON_BLOCK
    async with contextlib.aclosing(login.dump(com_binlog_dump(0, flags=flags), longest=LONGEST_EVENT)) as events:
        async for event in events:
            kind = parse_header(memoryview(event)).event_type
            if kind == EventType.FORMAT_DESCRIPTION:
                description = decode_description(event)
            elif kind == EventType.GTID and description is not None:
                if builder is not None:
                    break
                here = decode(event, description)
                if not isinstance(here, GtidEvent) or here.gtid.domain_id != gtid.domain_id:
                    continue
                if here.gtid.seq_no > gtid.seq_no:
                    return None
                if here.gtid == gtid:
                    builder = FingerprintBuilder(gtid)
            elif builder is not None and description is not None and ROLES[kind] is not Role.CONTROL:
                builder.feed(event, description)
                if builder.done or ROLES[kind] is Role.END:
                    break
    return None if builder is None else builder.result()


async def probe(
    login: Login, position: GtidPosition, *, strict_mode: bool = True, ignore_duplicates: bool = False
) -> None:
    """Raise the error with which the server would refuse a dump after `position`.

    Raises:
        PositionLostError: the server does not have the transactions after the position.
        ServerError: any other refusal.
    """
    await login.run(_announce())
    await login.run(_ask_for(position, strict_mode=strict_mode, ignore_duplicates=ignore_duplicates))
    async with contextlib.aclosing(login.dump(com_binlog_dump(0, flags=DumpFlag.NON_BLOCK))) as events:
        try:
            async for event in events:
                # An artificial ROTATE comes first, even before a refusal.
                if parse_header(memoryview(event)).event_type == EventType.FORMAT_DESCRIPTION:
                    return
        except ServerError as error:
            raise dump_error(ErrPacket(error.code, error.sqlstate, error.message)) from None


async def _events_from(login: Login, place: BinlogPosition, longest: int = PROBE_BYTES) -> AsyncGenerator[bytes]:
    await login.run(_announce())
    # With annotations, because otherwise the server would skip an annotation and send the event after it.
    flags = DumpFlag.NON_BLOCK | DumpFlag.SEND_ANNOTATE_ROWS
    command = com_binlog_dump(0, flags=flags, file=place.file, position=place.position)
    async with contextlib.aclosing(login.dump(command, longest=longest)) as events:
        async for event in events:
            header = parse_header(memoryview(event))
            if header.event_type not in _BEFORE_THE_EVENT and not header.flags & HeaderFlag.ARTIFICIAL:
                yield event


def _ask_for(position: GtidPosition, *, strict_mode: bool, ignore_duplicates: bool) -> Steps[None]:
    yield Query(f"SET @slave_connect_state = '{position}'")
    yield Query(f"SET @slave_gtid_strict_mode = {int(strict_mode)}")
    yield Query(f"SET @slave_gtid_ignore_duplicates = {int(ignore_duplicates)}")


def _announce() -> Steps[None]:
    yield Query("SET @master_binlog_checksum = @@global.binlog_checksum")
    yield Query(f"SET @mariadb_slave_capability = {CAPABILITY_GTID}")


# File numbers have no gaps, so a binary search finds the oldest file. SHOW BINARY LOGS is not used, because it needs
# another privilege. The begin time of a file is in its first event, which only a dump returns. The search for a time
# therefore takes one short dump and one login for each file that it tests, about fourteen for 10 000 files.


class BinlogFiles(NamedTuple):
    """The files `base` + number, from `oldest` to `newest`, without gaps."""

    base: str
    oldest: int
    newest: int

    def name(self, number: int) -> str:
        return f"{self.base}{number:06d}"


class BegunFile(NamedTuple):
    """A binlog file, and its begin time in seconds since 1970 by the server's clock."""

    name: str
    begun_s: int


def binlog_files() -> Steps[BinlogFiles]:
    """Return the range of files that the server still has.

    Raises:
        PrerequisiteError: the server writes no binlog.
    """
    rows = yield Query("SHOW STATUS LIKE 'Binlog_snapshot_file'")
    current = rows[0][1] if rows else None
    match = re.fullmatch(r"(.*\.)([0-9]{6,10})", current or "")
    if match is None:
        raise PrerequisiteError("the server reports no binlog file.", hint="Turn log_bin on.")
    files = BinlogFiles(match[1], 1, int(match[2]))
    low, high = 1, files.newest
    while low < high:
        middle = (low + high) // 2
        if (yield from state_at(files.name(middle), FIRST_POSITION)) is None:
            low = middle + 1
        else:
            high = middle
    return files._replace(oldest=high)


def state_at(file: str, position: int) -> Steps[str | None]:
    """Return the GTIDs reached at an offset of a binlog file.

    None means that the file does not exist, or that the offset is inside an event. Inside an event group, after its
    GTID event, the group counts as reached although it is not (measured).
    """
    quoted = file.replace("\\", "\\\\").replace("'", "''")
    rows = yield Query(f"SELECT BINLOG_GTID_POS('{quoted}', {position})")
    return rows[0][0]


async def begun_at(config: ReplicaConfig, endpoint: Endpoint, file: str) -> int | None:
    """Return the time at which the server began the file, in seconds since 1970; None if the file was purged."""
    login = await log_in(config, endpoint)
    with contextlib.closing(login):
        try:
            return parse_header(memoryview(await first_event(login, file))).timestamp
        except ServerError as error:
            if error.code != ER_NO_SUCH_PLACE:
                raise
            return None


async def last_begun_by(config: ReplicaConfig, endpoint: Endpoint, files: BinlogFiles, time_s: int) -> BegunFile | None:
    """Return the last of `files` that began at or before `time_s` (Unix seconds); None if all of them began later."""
    found = None
    low, high = files.oldest, files.newest + 1  # the first file begun later is in [low, high]
    while low < high:
        middle = (low + high) // 2
        begun_s = await begun_at(config, endpoint, files.name(middle))
        if begun_s is None or begun_s <= time_s:
            found = BegunFile(files.name(middle), begun_s) if begun_s is not None else None
            low = middle + 1
        else:
            high = middle
    return found
