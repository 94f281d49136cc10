from __future__ import annotations

import contextlib
import itertools
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.errors import ChecksumError, ProtocolError, RelayError, ReplicaError, UnsupportedEventError
from replica.protocol.constants import EventType, GtidFlag, HeaderFlag
from replica.protocol.events.binlog_file import decode_file, encode_event, encode_rotate
from replica.protocol.events.decode import ExecuteLoadQueryEvent, GtidEvent, QueryEvent
from replica.protocol.gtid import BinlogPosition, Gtid, GtidPosition
from replica.protocol.packets.packets import EofPacket, ErrPacket, pack
from replica.relay_log.kernels.stream_record import Cell
from replica.relay_log.location import RelayLocation
from replica.relay_log.log import RelayLog
from replica.relay_writer.receiver import Receiver
from replica.relay_writer.writer import RelayWriter
from tests.kit.binlog import bodies
from tests.kit.binlog.primary import CRC32, FILE, NONE, SERVER_ID, Primary, packet
from tests.kit.relay.driving import feed, receive, stored
from tests.kit.relay.plain_reading import read_plainly
from tests.unit.commands.tail.relay_logs import wire_of
from tests.vectors.load import raw_events

VECTORS = Path(__file__).parents[2] / "vectors"


def agree(directory: Path, wire: bytes, *, semi_sync: bool = False, checksum: object = CRC32) -> None:
    """The relay directory holds what the plain twin reads from the same bytes."""
    plain = read_plainly(wire, semi_sync=semi_sync, checksum=checksum)  # type: ignore[arg-type]
    files, ends = stored(directory)
    assert files == plain.files
    assert ends == plain.ends
    head = RelayLog(directory).head()
    assert head is not None
    assert head.position == plain.position


@st.composite
def primaries(draw: st.DrawFn) -> Primary:  # noqa: C901  (one branch a shape)
    primary = Primary(checksum=draw(st.sampled_from([CRC32, NONE])), zero_positions=draw(st.booleans()))
    primary.open_file()
    sizes = st.lists(st.one_of(st.integers(0, 60), st.integers(200, 5000)), max_size=4)
    for _ in range(draw(st.integers(1, 8))):
        primary.sequence += 1
        gtid = Gtid(draw(st.integers(0, 2)), draw(st.sampled_from([1, SERVER_ID, 0xFFFFFFFF])), primary.sequence)
        match draw(st.sampled_from("ttttsczhdrgip")):
            case "t":
                primary.transaction(gtid, draw(sizes), draw(st.sampled_from(["xid", "commit", "rollback", "xa"])))
            case "s":
                primary.statement(gtid, compressed=draw(st.booleans()))
            case "c":
                primary.checkpoint()
            case "h":
                primary.heartbeat()
            case "d":  # cut by the next GTID or by the end
                primary.transaction(gtid, draw(sizes), "")
            case "r":
                primary.rotate(f"bin.{100 + primary.sequence:06d}")
            case "g":  # not known, but may be ignored: outside of a group and inside
                primary.event(250, b"outside", flags=HeaderFlag.IGNORABLE)
                primary.gtid(gtid, GtidFlag.TRANSACTIONAL)
                primary.event(250, b"inside", flags=HeaderFlag.IGNORABLE)
                primary.xid()
            case "p":  # a rows event in fragments
                primary.gtid(gtid, GtidFlag.TRANSACTIONAL)
                for _ in range(3):
                    primary.event(EventType.PARTIAL_ROW_DATA, b"fragment", inside=True)
                primary.xid()
            case "i":  # texts that only look like the end, and a compressed COMMIT
                primary.gtid(gtid, GtidFlag.TRANSACTIONAL)
                primary.query(b"ROLLBACK TO `x`", inside=True)
                primary.query(b"XCOMMIT", inside=True)
                primary.event(EventType.QUERY_COMPRESSED, bodies.query(b"COMMIT"), inside=True)
                primary.query(b"COMMIT")
    return primary


@settings(max_examples=100)
@given(
    primary=primaries(),
    sizes=st.lists(st.integers(1, 700), min_size=1, max_size=6),
    semi_sync=st.booleans(),
    stream_above=st.sampled_from([600, 1000, 256 << 10]),
)
@pytest.mark.edge(56)
def test_any_chunking_gives_what_the_plain_twin_reads(
    primary: Primary, sizes: list[int], *, semi_sync: bool, stream_above: int
) -> None:
    wire = primary.wire(semi_sync=semi_sync)
    with tempfile.TemporaryDirectory() as folder:
        with RelayWriter.open(Path(folder)) as relay:
            receive(relay, wire, sizes, semi_sync=semi_sync, stream_above=stream_above)
            relay.rollback()
            agree(Path(folder), wire, semi_sync=semi_sync, checksum=primary.checksum)
        agree(Path(folder), wire, semi_sync=semi_sync, checksum=primary.checksum)


def test_one_byte_at_a_time(tmp_path: Path) -> None:
    primary = Primary.dump(zero_positions=True)
    primary.transaction(Gtid(0, 1, 1), (3, 900))
    primary.rotate("bin.000008")
    primary.statement(Gtid(1, 1, 1))
    wire = primary.wire()
    with RelayWriter.open(tmp_path) as relay:
        receive(relay, wire, [1], stream_above=600)
        agree(tmp_path, wire)


@pytest.mark.parametrize("version", ["10.5", "10.11", "11.8"])
@pytest.mark.parametrize("name", ["rotation.stream", "rotation.semisync.stream"])
def test_recorded_dumps_of_real_servers(tmp_path: Path, version: str, name: str) -> None:
    wire = (VECTORS / version / name).read_bytes()
    semi_sync = "semisync" in name
    with RelayWriter.open(tmp_path) as relay:
        receive(relay, wire, [97, 4096, 1], semi_sync=semi_sync)
        agree(tmp_path, wire, semi_sync=semi_sync)


@pytest.mark.parametrize("semi_sync", [False, True])
@pytest.mark.parametrize("event_bytes", [2**24 - 4, 2**24 - 3, 2**24 - 2, 2**24 - 1, 2**24, 2 * 0xFFFFFF - 1, 50 << 20])
def test_events_around_the_packet_limit(tmp_path: Path, *, event_bytes: int, semi_sync: bool) -> None:
    primary = Primary.dump()
    primary.transaction(Gtid(0, 1, 1), (event_bytes - 23, 5))
    primary.transaction(Gtid(0, 1, 2))
    wire = primary.wire(semi_sync=semi_sync)
    with RelayWriter.open(tmp_path) as relay:
        receive(relay, wire, [1 << 20, 77_777, 3], semi_sync=semi_sync)
        assert relay.position == GtidPosition((Gtid(0, 1, 2),))
        agree(tmp_path, wire, semi_sync=semi_sync)


def test_a_streamed_event_that_ends_the_group(tmp_path: Path) -> None:
    # The terminal text and the CRC stand in the last bytes, wherever the pieces were cut.
    for cut in range(1, 20):
        primary = Primary.dump()
        primary.statement(Gtid(0, 1, 1), text=b"CREATE TABLE t /* " + b"x" * 2000 + b"*/")
        primary.gtid(Gtid(0, 1, 2), GtidFlag.TRANSACTIONAL)
        primary.event(EventType.QUERY, bodies.query(b"")[:-2] + b"d" * 3000 + b"\0COMMIT")
        wire = primary.wire()
        folder = tmp_path / str(cut)
        with RelayWriter.open(folder) as relay:
            receive(relay, wire, [len(wire) - cut, 2, 5], stream_above=600)
            assert relay.position == GtidPosition((Gtid(0, 1, 2),))
            agree(folder, wire)


def test_positions_beyond_four_gigabytes(tmp_path: Path) -> None:
    primary = Primary.dump(zero_positions=True)
    primary.position = (1 << 32) - 100  # the next event's 32 bits wrap
    primary.transaction(Gtid(0, 1, 1), (500,))
    wrapped = primary.position
    primary.events[0] = encode_rotate(FILE, (1 << 32) - 200, server_id=SERVER_ID, checksum=CRC32)
    wire = primary.wire()
    with RelayWriter.open(tmp_path) as relay:
        receive(relay, wire)
        assert relay.head.primary == BinlogPosition(FILE, wrapped)
    assert wrapped > 1 << 32


def test_heartbeats_move_no_position_but_tell_the_primarys_end(tmp_path: Path) -> None:
    primary = Primary.dump(Gtid(0, 1, 1))
    with RelayWriter.open(tmp_path) as relay:
        receiver = receive(relay, primary.wire())
        before = relay.head
        primary.events.clear()
        primary.position += 5000
        primary.heartbeat()
        feed(receiver, primary.wire())
        assert relay.head == before
        assert receiver.primary == BinlogPosition(FILE, primary.position)


def test_an_announced_none_strips_only_the_first_rotate(tmp_path: Path) -> None:
    primary = Primary.dump(Gtid(0, 1, 1))
    primary.events[0] = encode_rotate(FILE, 4, server_id=SERVER_ID, checksum=NONE)
    with RelayWriter.open(tmp_path) as relay:
        receive(relay, primary.wire())
        assert relay.head.primary.file == FILE
        assert relay.position == GtidPosition((Gtid(0, 1, 1),))


def test_the_algorithm_follows_the_format_description(tmp_path: Path) -> None:
    # CRC32 -> NONE -> CRC32: the ROTATE and the artificial one after it still have the old file's algorithm.
    primary = Primary.dump()
    for seq, checksum in enumerate([NONE, CRC32, NONE], 1):
        primary.transaction(Gtid(0, 1, seq))
        first = len(primary.events)
        primary.rotate(f"bin.{seq:06d}")
        old, primary.checksum = primary.checksum, checksum
        fresh = Primary.dump(checksum=checksum, file=primary.file)
        primary.events[first + 1 :] = [
            encode_rotate(primary.file, 4, server_id=SERVER_ID, checksum=old),
            *fresh.events[1:],
        ]
    primary.transaction(Gtid(0, 1, 4))
    wire = primary.wire()
    with RelayWriter.open(tmp_path) as relay:
        receive(relay, wire, [333])
        assert len(stored(tmp_path)[0]) == 4
        agree(tmp_path, wire)


def test_a_file_that_began_anew_discards_the_open_group(tmp_path: Path) -> None:
    primary = Primary.dump(Gtid(0, 1, 1))
    primary.transaction(Gtid(0, 1, 2), end="")  # the primary crashed here
    primary.open_file("bin.000008")
    primary.transaction(Gtid(0, 1, 2), (7,))
    wire = primary.wire()
    for index, sizes in enumerate(([1 << 20], [100])):
        folder = tmp_path / str(index)
        with RelayWriter.open(folder) as relay:
            receive(relay, wire, sizes)
            assert relay.state[Cell.discarded] == 1
            agree(folder, wire)


def statements_in(path: Path) -> int:
    """The plain twin of the counter: texts inside transactions that change rows."""
    count = 0
    inside = False
    for _, event in decode_file(path.read_bytes()):
        if isinstance(event, GtidEvent):
            inside = not event.is_standalone
        elif inside and isinstance(event, QueryEvent | ExecuteLoadQueryEvent):
            border = event.query in (b"COMMIT", b"BEGIN") or event.query.startswith((b"ROLLBACK", b"SAVEPOINT", b"XA "))
            count += not border and event.query[:4].lower() not in (b"crea", b"drop")
    return count


@pytest.mark.parametrize("stem", ["transactions", "compression", "minimal_image"])
@pytest.mark.parametrize("sizes", [[1 << 20], [97]])
def test_changes_without_rows_are_counted(tmp_path: Path, stem: str, sizes: list[int]) -> None:
    with RelayWriter.open(tmp_path) as relay:
        receive(relay, wire_of(raw_events("11.8", stem)), sizes)
        assert relay.state[Cell.statements] == statements_in(VECTORS / "11.8" / f"{stem}.binlog")
    assert statements_in(VECTORS / "11.8" / "transactions.binlog") == 7


def test_of_changes_without_rows_only_those_of_whole_groups_count(tmp_path: Path) -> None:
    primary = Primary.dump()
    for end in ("", "xid"):
        primary.gtid(Gtid(0, 1, 1), GtidFlag.TRANSACTIONAL)
        primary.query(b"UPDATE t SET a = 1", inside=True)
        primary.query(b"INSERT" + bytes(300 << 10), inside=True)
        primary.event(EventType.QUERY_COMPRESSED, bodies.query(b"DELETE"), inside=True)
        primary.query(b"CREATE TEMPORARY TABLE w (a INT)", inside=True)
        if end:
            primary.xid()
        else:
            primary.open_file("bin.000008")
    primary.transaction(Gtid(0, 1, 2), end="commit")
    primary.statement(Gtid(0, 1, 3), text=b"TRUNCATE t")
    for index, sizes in enumerate(([1 << 20], [100])):
        with RelayWriter.open(tmp_path / str(index)) as relay:
            receive(relay, primary.wire(), sizes)
            assert relay.state[Cell.statements] == 3


def test_a_second_connection_goes_on_behind_the_last_complete_group(tmp_path: Path) -> None:
    primary = Primary.dump(Gtid(0, 1, 1))
    primary.transaction(Gtid(0, 1, 2), (3000,))
    wire = primary.wire()
    begin = primary.events[:3]
    with RelayWriter.open(tmp_path) as relay:
        receive(relay, wire[:-40])
        assert relay.position == GtidPosition((Gtid(0, 1, 1),))
        again = Primary()
        again.events = begin + primary.events[9:]  # the server starts at the second group
        receive(relay, again.wire())
        assert len(stored(tmp_path)[0]) == 1, "the same primary file goes on in the same relay file"
        agree(tmp_path, wire)


@pytest.mark.parametrize("semi_sync", [False, True])
def test_an_error_packet_after_events(tmp_path: Path, *, semi_sync: bool) -> None:
    primary = Primary.dump(Gtid(0, 1, 1))
    with RelayWriter.open(tmp_path) as relay:
        receiver = receive(relay, primary.wire(semi_sync=semi_sync), semi_sync=semi_sync)
        feed(receiver, pack(b"\xff\xd4\x04#HY000purged", 9), [3])
        assert receiver.packet == ErrPacket(1236, "HY000", "purged")
        assert relay.position == GtidPosition((Gtid(0, 1, 1),))


def test_an_end_packet(tmp_path: Path) -> None:
    with RelayWriter.open(tmp_path) as relay:
        receiver = receive(relay, pack(bytes.fromhex("fe00000200"), 1))
        assert receiver.packet == EofPacket(0, 2)


def damaged() -> list[tuple[str, type[ReplicaError], bytes]]:
    def after_a_group(make: object) -> bytes:
        primary = Primary.dump(Gtid(0, 1, 1))
        primary.gtid(Gtid(0, 1, 2), GtidFlag.TRANSACTIONAL)
        return primary.wire() + make(primary)  # type: ignore[operator]

    def last_packet(primary: Primary, kind: int, body: bytes) -> bytes:
        primary.event(kind, body)
        return packet(primary.events[-1])

    def rows(flip: int) -> bytes:
        event = bytearray(encode_event(EventType.WRITE_ROWS_V1, bytes(100), server_id=1, checksum=CRC32))
        event[flip] ^= 1
        return packet(bytes(event))

    orphan = Primary.dump(Gtid(0, 1, 1))
    orphan.event(EventType.TABLE_MAP, bytes(30))
    return [
        ("flipped body bit", ChecksumError, after_a_group(lambda _: rows(50))),
        ("flipped header bit", ChecksumError, after_a_group(lambda _: rows(14))),
        ("flipped length", ProtocolError, after_a_group(lambda _: rows(9))),
        ("unknown type", UnsupportedEventError, after_a_group(lambda p: last_packet(p, 173, b"newer"))),
        ("incident", UnsupportedEventError, after_a_group(lambda p: last_packet(p, 26, b"\1\0\4lost"))),
        ("no status byte", ProtocolError, after_a_group(lambda _: pack(b"", 1))),
        ("unknown status", ProtocolError, after_a_group(lambda _: pack(b"\7abc", 1))),
        ("short event", ProtocolError, after_a_group(lambda _: pack(b"\0" + bytes(10), 1))),
        ("huge event", ProtocolError, after_a_group(lambda _: pack(b"\0" + bytes(9) + b"\xff" * 4 + bytes(6), 1))),
        ("short GTID", ProtocolError, short_gtid()),
        ("outside of a group", ProtocolError, orphan.wire()),
    ]


def short_gtid() -> bytes:
    primary = Primary.dump(Gtid(0, 1, 1))
    primary.event(EventType.GTID, bytes(5))
    return primary.wire()


@pytest.mark.parametrize(("_name", "kind", "wire"), damaged(), ids=[d[0] for d in damaged()])
@pytest.mark.parametrize("sizes", [[1 << 20], [11]])
def test_what_is_refused_and_what_stays(
    tmp_path: Path, _name: str, kind: type[ReplicaError], wire: bytes, sizes: list[int]
) -> None:
    with RelayWriter.open(tmp_path) as relay:
        receiver = Receiver(relay, semi_sync=False)
        with pytest.raises(kind, match=r"bin\.000007|lost") as caught:
            feed(receiver, wire, sizes)
        assert type(caught.value) is kind
        relay.rollback()
        assert relay.position == GtidPosition((Gtid(0, 1, 1),))
        assert len(stored(tmp_path)[1][0]) == 1


def test_a_missing_semi_sync_header(tmp_path: Path) -> None:
    primary = Primary.dump()
    with RelayWriter.open(tmp_path) as relay, pytest.raises(ProtocolError):
        receive(relay, primary.wire(semi_sync=False), semi_sync=True)


def test_a_corrupted_streamed_event(tmp_path: Path) -> None:
    primary = Primary.dump(Gtid(0, 1, 1))
    primary.transaction(Gtid(0, 1, 2), (400_000,))
    wire = bytearray(primary.wire())
    wire[-200_000] ^= 0x10
    with RelayWriter.open(tmp_path) as relay:
        with pytest.raises(ChecksumError):
            receive(relay, bytes(wire), [10_000])
        relay.rollback()
        assert relay.position == GtidPosition((Gtid(0, 1, 1),))


def test_dummy_events_of_old_servers_are_passed_over(tmp_path: Path) -> None:
    primary = Primary.dump()
    primary.event(EventType.USER_VAR, struct.pack("<I", 9) + b"!dummyvar" + b"\1")
    primary.event(EventType.QUERY, bytes(14) + b"# Dummy event replacing event type 163 that slave cannot handle.")
    primary.transaction(Gtid(0, 1, 1))
    with RelayWriter.open(tmp_path) as relay:
        receive(relay, primary.wire(), [50])
        assert relay.position == GtidPosition((Gtid(0, 1, 1),))
        assert relay.head.primary.position == primary.position


def test_the_last_wanted_ack_covers_complete_groups_only(tmp_path: Path) -> None:
    primary = Primary.dump(Gtid(0, 1, 1))
    wire = primary.wire(semi_sync=True, ack_last=True)
    first = primary.position
    with RelayWriter.open(tmp_path) as relay:
        receiver = receive(relay, wire, semi_sync=True)
        assert receiver.take_ack() == BinlogPosition(FILE, first)
        assert receiver.take_ack() is None
        before = len(primary.events)
        primary.transaction(Gtid(0, 1, 2), end="")
        feed(receiver, b"".join(packet(e, semi_sync=True, ack=True) for e in primary.events[before:]))
        assert receiver.take_ack() is None, "the group is open: nothing of it may be acknowledged"
        before = len(primary.events)
        primary.xid()
        feed(receiver, packet(primary.events[-1], semi_sync=True))
        assert receiver.take_ack() is not None


@pytest.mark.parametrize("position", [(1 << 62) + 1, 1 << 63, (1 << 64) - 1])
def test_a_rotate_to_a_position_that_no_file_has_is_refused(tmp_path: Path, position: int) -> None:
    primary = Primary.dump(Gtid(0, 1, 1))
    primary.events[0] = encode_rotate(FILE, position, server_id=SERVER_ID, checksum=CRC32)
    with RelayWriter.open(tmp_path) as relay, pytest.raises(ProtocolError, match=str(position)):
        receive(relay, primary.wire())


def test_an_ack_names_the_file_its_event_stands_in(tmp_path: Path) -> None:
    primary = Primary.dump(Gtid(0, 1, 1))
    end, count = primary.position, len(primary.events)
    primary.rotate("bin.000008")
    wire = b"".join(packet(e, semi_sync=True, ack=i == count - 1) for i, e in enumerate(primary.events))
    with RelayWriter.open(tmp_path) as relay:
        assert receive(relay, wire, semi_sync=True).take_ack() == BinlogPosition(FILE, end)


@settings(max_examples=150)
@given(
    primary=primaries(),
    edits=st.lists(
        st.tuples(
            st.sampled_from(["flip", "cut", "double", "noise"]), st.floats(0, 1), st.binary(min_size=1, max_size=9)
        ),
        min_size=1,
        max_size=3,
    ),
    sizes=st.lists(st.integers(1, 900), min_size=1, max_size=4),
    semi_sync=st.booleans(),
)
def test_damage_raises_our_errors_and_never_adds_or_changes_a_group(
    primary: Primary, edits: list[tuple[str, float, bytes]], sizes: list[int], *, semi_sync: bool
) -> None:
    wire = primary.wire(semi_sync=semi_sync)
    true = read_plainly(wire, semi_sync=semi_sync, checksum=primary.checksum)
    data = bytearray(wire)
    for kind, where, noise in edits:
        at = int(where * (len(data) - 1))
        match kind:
            case "flip":
                data[at] ^= 1 << (noise[0] % 8)
            case "cut":
                del data[at : at + len(noise)]
            case "double":
                data[at:at] = data[at : at + len(noise)]
            case "noise":
                data[at:at] = noise
    with tempfile.TemporaryDirectory() as folder:
        with RelayWriter.open(Path(folder)) as relay:
            with contextlib.suppress(ReplicaError):
                receive(relay, bytes(data), sizes, semi_sync=semi_sync, stream_above=600)
            relay.rollback()
        files, _ = stored(Path(folder))
    if primary.checksum == CRC32:
        groups = {g for f, ends in zip(true.files, true.ends, strict=True) for g in split(bytes(f), ends)}
        found = [g for f in files for g in split(f, read_ends(f))]
        assert all(group in groups for group in found)


def split(data: bytes, ends: list[tuple[int, Gtid, int, int]]) -> list[bytes]:
    borders = [0, *(end for end, *_ in ends)]
    return [data[a:b] for a, b in itertools.pairwise(borders)]


def read_ends(data: bytes) -> list[tuple[int, Gtid, int, int]]:
    """Group ends of bare events, found by the plain twin."""
    events, at = [], 0
    while at < len(data):
        length = int.from_bytes(data[at + 9 : at + 13], "little")
        events.append(data[at : at + length])
        at += length
    head = Primary.dump()
    reading = read_plainly(b"".join(packet(e) for e in [*head.events, *events]))
    return reading.ends[0] if reading.ends else []


def test_a_dummy_that_is_not_complete_is_not_passed_over(tmp_path: Path) -> None:
    primary = Primary.dump()
    primary.event(EventType.QUERY, bytes(14) + b"# Dummy event" + b"x" * 100 + bytes(5000))
    with RelayWriter.open(tmp_path) as relay, pytest.raises(ProtocolError):
        receive(relay, primary.wire(), [600], stream_above=600)


def test_sequence_numbers_use_all_64_bits(tmp_path: Path) -> None:
    primary = Primary.dump()
    gtids = [Gtid(0xFFFFFFFF, 0xFFFFFFFF, 2**64 - 2), Gtid(0xFFFFFFFF, 0xFFFFFFFF, 2**64 - 1)]
    for gtid in gtids:
        primary.transaction(gtid)
    with RelayWriter.open(tmp_path) as relay:
        receive(relay, primary.wire())
        assert relay.position == GtidPosition((gtids[1],))
        log = RelayLog(tmp_path)
        first = log.locate(GtidPosition((gtids[0],)))
        assert first is not None
        assert log.cut(first, relay.committed, 1).position == relay.position
        assert log.cut(RelayLocation(1, 0), relay.committed, 1).position == GtidPosition((gtids[0],))


def test_the_last_domain_and_one_too_many(tmp_path: Path) -> None:
    primary = Primary.dump()
    for domain in range(4097):
        primary.gtid(Gtid(domain, 1, 1), GtidFlag.STANDALONE)
        primary.query(b"x")
    with RelayWriter.open(tmp_path) as relay:
        with pytest.raises(RelayError, match="4096 GTID domains"):
            receive(relay, primary.wire(), [100_000])
        assert len(relay.position) == 4096
        log = RelayLog(tmp_path)
        assert log.locate(relay.position) == relay.committed
    with RelayWriter.open(tmp_path) as relay:
        assert len(relay.position) == 4096
