"""Ranges: they hold every event, end where groups end, and where DDL or events that decoders refuse stand."""

from __future__ import annotations

import gzip
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from replica.errors import ConfigError, UnsupportedEventError
from replica.protocol.constants import BINLOG_MAGIC, EventType, GtidFlag, HeaderFlag
from replica.protocol.events.binlog_file import decode_file, encode_event
from replica.protocol.events.decode import QueryEvent
from replica.readers.files.binlog import open_binlog
from tests.kit.binlog import bodies
from tests.kit.some import some
from tests.kit.tree import files
from tests.unit.readers.files.reading import CRC32, TRANSACTIONS, Unit, as_file, read, read_bytes, units
from tests.vectors.load import BINLOGS, HERE, name_of

if TYPE_CHECKING:
    from pathlib import Path

MYSQL = files(HERE / "mysql", "*.binlog")


def event(kind: int, body: bytes, *, flags: int = 0) -> bytes:
    return encode_event(kind, body, server_id=1, checksum=CRC32, flags=flags)


def gtid(seq: int, flags2: int = GtidFlag.TRANSACTIONAL) -> bytes:
    return event(EventType.GTID, bodies.gtid(seq, 0, flags2))


def query(text: bytes) -> bytes:
    return event(EventType.QUERY, bodies.query(text))


XID = event(EventType.XID, bytes(8))
ROWS = event(EventType.WRITE_ROWS_V1, bytes(20))
GROUP = gtid(1) + ROWS + XID
DDL = gtid(2, GtidFlag.STANDALONE | GtidFlag.DDL) + query(b"CREATE TABLE t (a INT)")
MYSQL_GTID = event(EventType.GTID_LOG, bytes(42))


def lengths(folder: Path, parts: list[bytes], **options: object) -> list[int]:
    """How long the ranges are after the FORMAT_DESCRIPTION, which is read apart."""
    data = as_file(parts)
    start = len(data) - sum(map(len, parts))
    got = read_bytes(folder, data, **options)
    assert got.error is None
    assert got.data == data[4:]
    return [end - max(begin, start) for begin, end in got.places if end > start]


@pytest.mark.parametrize("path", BINLOGS, ids=name_of)
@pytest.mark.parametrize("max_bytes", [1, 1000, 8 << 20])
def test_every_group_of_every_vector(path: Path, max_bytes: int) -> None:
    data = path.read_bytes()
    got = read(path, max_bytes=max_bytes)
    assert got.error is None
    assert got.data == data[4:]
    assert all(got.whole)
    expected = units(data)
    if max_bytes == 1:
        assert got.places == expected
    ends = {unit.end for unit in expected}
    assert all(before.end == after.start for before, after in pairwise(got.places))
    assert all(place.end in ends for place in got.places)
    groups = {unit.end - unit.start for unit in expected}
    assert all(end - start <= max_bytes or end - start in groups for start, end in got.places)


@pytest.mark.parametrize("path", MYSQL, ids=name_of)
def test_every_group_of_mysql_files(path: Path) -> None:
    """A MySQL group begins with a GTID event and no other unit has one."""
    data = path.read_bytes()
    got = read(path, max_bytes=1)
    assert (got.error, got.data, set(got.whole)) == (None, data[4:], {True})
    assert got.places == units(data)
    begins = {EventType.GTID_LOG, EventType.ANONYMOUS_GTID, EventType.GTID_TAGGED_LOG}
    kinds = [part_types(bytes(part.data)) for part in got.ranges]
    groups = [part for part in kinds if part[0] in begins]
    assert all(begins.isdisjoint(part[1:]) for part in kinds)
    assert all(len(part) == 1 for part in kinds if part[0] not in begins)
    ends = {EventType.XID, EventType.QUERY, EventType.TRANSACTION_PAYLOAD, EventType.XA_PREPARE}
    assert all(part[-1] in ends for part in groups)
    assert path.stem not in ("types", "json", "groups.1") or len(groups) > 3


def part_types(data: bytes) -> list[int]:
    found, at = [], 0
    while at < len(data):
        found.append(data[at + 4])
        at += int.from_bytes(data[at + 9 : at + 13], "little")
    return found


@pytest.mark.parametrize("path", BINLOGS, ids=name_of)
def test_a_ddl_group_stands_alone(path: Path) -> None:
    data = path.read_bytes()
    got = read(path, cut_at_ddl=True)
    assert (got.error, got.data) == (None, data[4:])
    texts = [
        (place.offset, parsed.query.upper()) for place, parsed in decode_file(data) if isinstance(parsed, QueryEvent)
    ]
    for offset, text in texts:
        if text.startswith((b"CREATE", b"ALTER", b"DROP")):
            [part] = [part for part in got.ranges if part.offset <= offset < part.end]
            assert Unit(part.offset, part.end) in units(data), text


def test_max_bytes_is_kept_unless_one_group_is_larger(tmp_path: Path) -> None:
    large = gtid(1) + ROWS * 50 + XID
    size = len(GROUP)
    assert lengths(tmp_path, [GROUP] * 5, max_bytes=len(as_file([])) - 4 + 2 * size)[:1] == [2 * size]
    assert lengths(tmp_path, [GROUP, large, GROUP, GROUP], max_bytes=400) == [size, len(large), 2 * size]


def test_ddl_between_rows(tmp_path: Path) -> None:
    parts = [GROUP, GROUP, DDL, DDL, GROUP]
    expected = [2 * len(GROUP), len(DDL), len(DDL), len(GROUP)]
    assert lengths(tmp_path, parts, cut_at_ddl=True) == expected
    assert lengths(tmp_path, parts) == [sum(map(len, parts))]


def test_a_create_select_is_ddl_and_an_xa_commit_is_not(tmp_path: Path) -> None:
    create_select = gtid(2, GtidFlag.DDL) + query(b"CREATE TABLE t (a INT)") + ROWS + XID
    xa_commit = gtid(3, GtidFlag.STANDALONE | GtidFlag.COMPLETED_XA) + query(b"XA COMMIT X'61',X'',1")
    parts = [GROUP, create_select, GROUP, xa_commit, GROUP]
    assert lengths(tmp_path, parts, cut_at_ddl=True) == [
        len(GROUP),
        len(create_select),
        2 * len(GROUP) + len(xa_commit),
    ]


def test_mysql_groups(tmp_path: Path) -> None:
    transaction = MYSQL_GTID + query(b"BEGIN") + ROWS + query(b"SAVEPOINT a") + XID
    other_engine = MYSQL_GTID + query(b"BEGIN") + ROWS + query(b"COMMIT")
    ddl = MYSQL_GTID + query(b"CREATE TABLE a (b INT)")
    xa = MYSQL_GTID + query(b"XA START X'61',X'',1") + ROWS + query(b"XA END X'61',X'',1") + event(38, bytes(20))
    payload = MYSQL_GTID + event(EventType.TRANSACTION_PAYLOAD, bytes(30))
    parts = [transaction, other_engine, ddl, xa, payload, transaction]
    assert lengths(tmp_path, parts, max_bytes=1) == [len(part) for part in parts]
    before = len(transaction) + len(other_engine)
    assert lengths(tmp_path, parts, cut_at_ddl=True) == [before, len(ddl), len(xa) + len(payload) + len(transaction)]


@pytest.mark.parametrize("refused", [event(26, b"\1\0\0"), event(99, b"from the future")])
def test_what_decoders_refuse_stands_alone(tmp_path: Path, refused: bytes) -> None:
    size = len(GROUP)
    assert lengths(tmp_path, [GROUP, GROUP, refused, GROUP]) == [2 * size, len(refused), size]
    inside = gtid(2) + ROWS + refused + XID
    assert lengths(tmp_path, [GROUP, GROUP, inside, GROUP]) == [2 * size, len(inside), size]
    standalone = gtid(2, GtidFlag.STANDALONE) + event(26, b"\1\0\0")
    assert lengths(tmp_path, [GROUP, standalone, GROUP]) == [size, len(standalone), size]


def test_ignorable_events_pass_anywhere(tmp_path: Path) -> None:
    unknown = event(99, b"", flags=HeaderFlag.IGNORABLE)
    dummies = query(b"# Dummy event replacing event type 162") + event(EventType.USER_VAR, b"\1\0\0\0!\1")
    parts = [unknown, GROUP, dummies, gtid(2), unknown, XID]
    assert lengths(tmp_path, parts) == [sum(map(len, parts))]


def test_a_group_that_a_crash_cut_goes_with_the_next(tmp_path: Path) -> None:
    parts = [GROUP, gtid(2) + ROWS, GROUP]
    assert lengths(tmp_path, parts, max_bytes=1) == [len(GROUP), len(gtid(2) + ROWS) + len(GROUP)]


def test_a_group_without_its_end(tmp_path: Path) -> None:
    data = as_file([GROUP, gtid(2), ROWS])
    got = read_bytes(tmp_path, data)
    assert got.error is None
    assert got.whole == [True, False]
    assert got.data == data[4:]
    stop = event(EventType.STOP, b"")
    got = read_bytes(tmp_path, data + stop)
    assert got.whole == [True, False]
    assert got.data == data[4:] + stop


def test_events_of_groups_outside_of_any(tmp_path: Path) -> None:
    data = as_file([GROUP, ROWS, GROUP])
    got = read_bytes(tmp_path, data)
    assert isinstance(got.error, UnsupportedEventError)
    assert got.error.offset == len(data) - len(ROWS + GROUP)
    assert got.data == data[4 : got.error.offset]
    got = read_bytes(tmp_path, data, skip_damaged=True)
    assert got.data == data[4 : len(data) - len(ROWS + GROUP)] + GROUP


def test_an_encryption_that_starts_late_is_refused(tmp_path: Path) -> None:
    data = as_file([GROUP, event(EventType.START_ENCRYPTION, b"\1" + bytes(16))])
    got = read_bytes(tmp_path, data)
    assert isinstance(got.error, UnsupportedEventError)
    assert got.data == as_file([GROUP])[4:]


def test_a_gtid_without_its_fields(tmp_path: Path) -> None:
    got = read_bytes(tmp_path, as_file([GROUP, event(EventType.GTID, bytes(12))]))
    assert "too short for a GTID" in str(got.error)
    assert got.data == as_file([GROUP])[4:]


def test_parts_of_a_file_read_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(TRANSACTIONS)
    with open_binlog(path) as file:
        places = list(file.ranges(max_bytes=1000, verify=False))
        for place in some(places):
            alone = file.ranges(start=place.offset, stop=place.end, description=place.description)
            assert [part.data for part in alone] == [place.data]


def test_a_second_description_says_how_to_go_on(tmp_path: Path) -> None:
    """As in a relay log of MariaDB's own replica, whose primary does not write checksums."""
    unchecked = (HERE / "11.8" / "minimal_image.binlog").read_bytes()[4:]
    data = TRANSACTIONS + unchecked
    got = read_bytes(tmp_path, data, max_bytes=1)
    assert (got.error, got.data) == (None, data[4:])
    assert [part.checksum for part in got.ranges] == [part.offset < len(TRANSACTIONS) for part in got.ranges]
    assert all(part.description.checksum == part.checksum for part in got.ranges)
    assert read_bytes(tmp_path, data).data == data[4:]


def test_a_stream_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(TRANSACTIONS))
    with open_binlog(path) as file:
        assert b"".join(part.data for part in file.ranges()) == TRANSACTIONS[4:]
        with pytest.raises(ConfigError, match="read once"):
            file.ranges()
    with open_binlog(path) as file, pytest.raises(ConfigError, match="from its beginning"):
        file.ranges(start=500)


def test_ranges_outlive_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(TRANSACTIONS)
    with open_binlog(path) as file:
        parts = list(file.ranges(max_bytes=1))
    path.unlink()
    assert BINLOG_MAGIC + b"".join(part.data for part in parts) == TRANSACTIONS
    assert all(part.data.readonly for part in parts)


def test_beyond_four_gigabytes(tmp_path: Path) -> None:
    """Positions in headers have 32 bits; what is before is a hole in the file."""
    start = (1 << 32) - 300
    events, end = [], start
    for number in range(20):
        for kind, body in ((162, bodies.gtid(number, 0, 4)), (23, bytes(20)), (16, bytes(8))):
            end += 23 + len(body)
            events.append(encode_event(kind, body, server_id=1, checksum=CRC32, log_pos=end))
    group = sum(map(len, events[:3]))
    events[31] = bytes(len(events[31]))
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.write(as_file([]))
        file.seek(start)
        file.write(b"".join(events))
    with open_binlog(path) as binlog:
        parts = list(binlog.ranges(start=start, skip_damaged=True, max_bytes=1))
        assert [part.offset for part in parts] == [start + group * n for n in range(20) if n != 10]
        assert [damage.offset for damage in binlog.damage] == [start + 10 * group + len(events[0])]
