"""Whatever a server says before the dump: an error of ours, soon, in bounded memory, and the next host."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.errors import DisconnectedError, ProtocolError, ReplicaError, ServerError
from replica.handshake.login import login as login_module
from replica.handshake.login.login import ask, log_in
from replica.handshake.primary.catalog import read_tables
from replica.handshake.primary.server import inspect_server
from replica.handshake.registration import MAX_REPLY_BYTES
from replica.handshake.start.binlog import event_at
from replica.handshake.start.start import latest_position
from replica.options.config import Endpoint, ReplicaConfig
from replica.protocol.gtid import BinlogPosition, GtidPosition
from tests.fixtures.network.hostile import ANSWERS, OK, Answer, HostileServer, greeting, lenenc, rows
from tests.fixtures.replicas import replica_config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.mariadb import MariaDb

MEMORY_FACTOR = 16
"""What Python needs for a short row, per byte that it came in as the limit counts them."""


@pytest.fixture(scope="module")
def hostile() -> Iterator[HostileServer]:
    with HostileServer(ANSWERS["garbage"]) as server:
        yield server


def config(server: HostileServer, **options: object) -> ReplicaConfig:
    return ReplicaConfig.parse({"user": "u", "password": "p", "host": "127.0.0.1", "port": server.port} | options)


async def meet(server: HostileServer) -> None:
    """Log in and ask what every connection asks first."""
    login = await log_in(config(server), Endpoint("127.0.0.1", server.port))
    try:
        await login.run(inspect_server(900))
    finally:
        login.close()


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.slow) if one == "endless results" else one for one in ANSWERS]
)
async def test_every_hostile_answer_is_an_error_of_ours_in_bounded_memory(hostile: HostileServer, name: str) -> None:
    hostile.answer = ANSWERS[name]
    tracemalloc.start()
    try:
        with pytest.raises(ReplicaError) as raised:
            await meet(hostile)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MEMORY_FACTOR * MAX_REPLY_BYTES
    assert f"127.0.0.1:{hostile.port}" in raised.value.message
    assert isinstance(raised.value, ServerError if name == "an ERR packet that is no text" else ProtocolError)
    assert raised.value.hint or isinstance(raised.value, ServerError)


async def test_no_file_of_ours_is_sent(hostile: HostileServer) -> None:
    hostile.answer = Answer("statement", lambda: [b"\xfb" + __file__.encode()])
    hostile.asked.clear()
    with pytest.raises(ProtocolError, match="asks for a file of this machine"):
        await meet(hostile)
    login, *statements = hostile.asked
    assert not int.from_bytes(login[:4], "little") & 1 << 7  # CLIENT_LOCAL_FILES
    assert len(statements) == 4, "three settle the session"


async def test_a_catalog_may_be_longer_than_other_answers(hostile: HostileServer) -> None:
    many = rows(*[(b"x" * 100,) * 2] * 30_000, width=2)
    hostile.answer = Answer("statement", lambda: many)
    login = await log_in(config(hostile), Endpoint("127.0.0.1", hostile.port))
    with pytest.raises(ProtocolError, match="an invalid reply"):  # as two columns; it was read to its end
        await login.run(read_tables())
    login = await log_in(config(hostile), Endpoint("127.0.0.1", hostile.port))
    with pytest.raises(ProtocolError, match=f"more than {MAX_REPLY_BYTES} bytes"):
        await login.run(latest_position())


async def test_a_silent_server_is_waited_for_so_long(hostile: HostileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_module, "STATEMENT_TIMEOUT_S", 0.05)
    hostile.answer = Answer("statement", list)
    with pytest.raises(DisconnectedError, match="gave no answer"):
        await meet(hostile)
    hostile.answer = Answer("connection", list)
    with pytest.raises(DisconnectedError, match="did not complete the login"):
        await log_in(config(hostile, connect_timeout_s=0.05), Endpoint("127.0.0.1", hostile.port))


async def test_a_look_at_an_event_ends_however_many_come_and_however_long(hostile: HostileServer) -> None:
    head = bytes(4) + b"\x02" + bytes(4) + (1 << 20).to_bytes(4, "little") + bytes(6)
    place = BinlogPosition("binlog.000001", 4)

    async def look() -> bytes | None:
        login = await log_in(config(hostile), Endpoint("127.0.0.1", hostile.port))
        return await event_at(login, place, longest=100_000)

    hostile.answer = _dump(b"\0" + head + bytes(5 << 20))
    found = await look()
    assert found is not None
    assert len(found) == 100_000
    artificial = b"\0" + head[:-2] + b"\x20\x00"
    hostile.answer = _dump(artificial, forever=True)
    with pytest.raises(ProtocolError, match="a reply of more than"):
        await look()


def _dump(event: bytes, *, forever: bool = False) -> Answer:
    """OK to the two statements that announce us, then events."""
    turn = iter((1, 2))

    def says() -> Iterator[bytes]:
        if next(turn, None):
            yield OK
            return
        yield event
        while forever:
            yield event

    return Answer("statement", says)


@settings(max_examples=200)
@given(
    to=st.sampled_from(["connection", "login", "statement"]),
    payloads=st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.sampled_from([OK, greeting(), *rows((b"1",)), b"\xfe", b"\xff\x10\x04", b"\xfb", lenenc(b"x")]),
        ),
        max_size=6,
    ),
    raw=st.booleans(),
    cut=st.integers(0, 60),
)
def test_junk_is_an_error_of_ours(
    junk_server: HostileServer,
    to: str,
    payloads: list[bytes],
    raw: bool,  # noqa: FBT001
    cut: int,
) -> None:
    payloads = [*payloads, greeting()[:cut] if to == "connection" else b"\xfb"]
    junk_server.answer = Answer(to, lambda: payloads, raw=raw, hang_up=True)  # type: ignore[arg-type]
    with pytest.raises(ReplicaError):
        asyncio.run(meet(junk_server))


@pytest.fixture(scope="module")
def junk_server() -> Iterator[HostileServer]:
    with HostileServer(ANSWERS["garbage"]) as server:
        yield server


async def test_a_question_goes_to_the_next_host_until_none_is_left(hostile: HostileServer) -> None:
    hostile.answer = ANSWERS["local infile"]
    twice = f"127.0.0.1:{hostile.port},localhost:{hostile.port}"
    before = hostile.accepted
    with pytest.raises(ProtocolError, match="asks for a file"):
        await ask(config(hostile, host=twice), lambda _: latest_position())
    assert hostile.accepted == before + 2


@pytest.mark.server
@pytest.mark.parametrize("name", ["garbage", "local infile", "endless rows", "an absurd column count"])
async def test_a_question_is_answered_by_the_next_host(any_server: MariaDb, hostile: HostileServer, name: str) -> None:
    hostile.answer = ANSWERS[name]
    hosts = f"127.0.0.1:{hostile.port},{any_server.host}:{any_server.port}"
    found = await ask(replica_config(any_server, host=hosts), lambda _: latest_position())
    assert found == GtidPosition.parse(any_server.gtid_binlog_pos())
