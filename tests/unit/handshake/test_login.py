"""What login.py and connection.py rely on in the driver, watched: a rename must fail here, not in the field."""

from __future__ import annotations

import asyncio
import inspect

import aiomysql.connection
import aiomysql.cursors
import pytest

from replica.config import Endpoint, ReplicaConfig
from replica.handshake.connection import DriverConnection


@pytest.mark.parametrize(
    "name", ["_connect", "_get_server_information", "_request_authentication", "_read_packet", "_read_bytes"]
)
def test_the_drivers_private_coroutines_exist(name: str) -> None:
    assert inspect.iscoroutinefunction(getattr(aiomysql.connection.Connection, name))


def test_the_drivers_cursor_asks_for_warnings_in_one_place() -> None:
    assert inspect.iscoroutinefunction(aiomysql.cursors.Cursor._show_warnings)


@pytest.mark.parametrize(
    "name",
    [
        *("_connect_attrs", "_encoding", "_next_seq_id", "_reader", "_server_auth_plugin", "_unix_socket", "_writer"),
        *("salt", "server_capabilities", "server_thread_id"),
    ],
)
def test_the_drivers_attributes_are_still_used_by_itself(name: str) -> None:
    assert f"self.{name} = " in inspect.getsource(aiomysql.connection)


def test_the_driver_closes_only_what_it_still_holds() -> None:
    assert "if self._writer:" in inspect.getsource(aiomysql.connection.Connection.__del__)


def test_the_driver_calls_what_we_put_in_its_place() -> None:
    source = inspect.getsource(aiomysql.connection)
    assert "await self._request_authentication()" in source
    assert "connection._read_packet()" in source


async def test_the_driver_never_sees_the_password() -> None:
    config = ReplicaConfig.parse({"user": "u", "password": "marked-password"})
    connection = DriverConnection(config, Endpoint("db1", 3306))
    assert "marked-password" not in repr(vars(connection))
    assert connection._password == ""


async def test_asyncios_reader_holds_early_bytes_where_detach_looks_for_them() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(b"early")
    assert bytes(reader._buffer) == b"early"  # type: ignore[attr-defined]
