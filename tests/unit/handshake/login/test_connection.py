"""Replies as the driver gets them, and when a connection is private."""

from __future__ import annotations

import asyncio

import pymysql.err
import pytest

from replica.errors import AuthenticationError, ConfigError, ProtocolError
from replica.handshake.login.connection import MAX_LOGIN_BYTES, PACKET_COST, DriverConnection, secret_of
from replica.options.config import Endpoint, ReplicaConfig
from replica.protocol.packets.packets import MAX_PIECE, pack

TCP, SOCKET = Endpoint("db1", 3306), Endpoint("", 0, "/run/mysqld.sock")


def config(**options: object) -> ReplicaConfig:
    return ReplicaConfig.parse({"user": "u", **options})


async def reading(data: bytes) -> DriverConnection:
    made = DriverConnection(config(), TCP)
    reader = asyncio.StreamReader()
    made.streams = reader, None
    reader.feed_data(data)
    reader.feed_eof()
    return made


@pytest.mark.parametrize(
    ("options", "endpoint", "private"),
    [
        ({}, TCP, False),
        ({"tls": "disabled"}, TCP, False),
        ({"tls": "required"}, TCP, True),
        ({"tls": "verify-ca"}, TCP, True),
        ({"tls": "verify-identity"}, TCP, True),
        ({"tls": "verify-password", "password": "x"}, TCP, False),
        ({}, SOCKET, True),
    ],
)
def test_where_a_password_may_be_sent(options: dict[str, object], endpoint: Endpoint, private: bool) -> None:  # noqa: FBT001
    assert secret_of(config(**options), endpoint).private == private


def test_an_empty_password_verifies_nothing() -> None:
    with pytest.raises(AuthenticationError, match="empty password"):
        secret_of(config(tls="verify-password"), TCP)


async def test_a_password_that_cannot_be_read_is_known_before_a_server_is_asked() -> None:
    with pytest.raises(ConfigError, match="/nowhere/password"):
        DriverConnection(config(password_file="/nowhere/password"), TCP)


async def test_packets_are_joined_whatever_their_numbers() -> None:
    payload = b"\x00" + bytes(MAX_PIECE + 10)
    made = await reading(pack(payload, 7) + pack(b"\x00second", 3))
    made.expect(2 * MAX_PIECE)
    assert await made.read_reply() == payload
    assert await made.read_reply() == b"\x00second"
    assert made._next_seq_id == 4


async def test_replies_have_a_limit_of_all_their_bytes() -> None:
    with pytest.raises(ProtocolError, match=f"more than {MAX_LOGIN_BYTES} bytes"):
        await (await reading(pack(bytes(MAX_LOGIN_BYTES)))).read_reply()
    made = await reading(pack(b"x") * 4)
    made.expect(3 * (1 + PACKET_COST))
    for _ in range(3):
        await made.read_payload()
    with pytest.raises(ProtocolError, match="more than"):
        await made.read_payload()


async def test_what_is_longer_than_wanted_is_cut_and_the_last() -> None:
    made = await reading(pack(bytes(101)) + pack(b"x"))
    assert await made.read_payload(longest=100) == bytes(100)
    assert made.closed


async def test_an_empty_reply_is_none() -> None:
    with pytest.raises(ProtocolError, match="empty packet"):
        await (await reading(pack(b""))).read_reply()


async def test_errors_are_raised_and_cut_connections_noticed() -> None:
    made = await reading(pack(b"\xff\x15\x04#28000Access denied") + b"\x05\0\0\0ab")
    with pytest.raises(pymysql.err.OperationalError, match="Access denied"):
        await made.read_reply()
    with pytest.raises(pymysql.err.OperationalError, match="Lost connection"):
        await made.read_reply()
