"""What login.py and connection.py rely on in the driver, watched: a rename must fail here, not in the field."""

from __future__ import annotations

import asyncio
import inspect

import aiomysql.connection
import pytest

from replica.config import Endpoint, ReplicaConfig
from replica.handshake.connection import DriverConnection


@pytest.mark.parametrize(
    "name",
    [
        *("_connect", "_execute_command", "_get_server_information", "_read_bytes", "_read_packet"),
        "_request_authentication",
    ],
)
def test_the_drivers_private_coroutines_exist(name: str) -> None:
    assert inspect.iscoroutinefunction(getattr(aiomysql.connection.Connection, name))


@pytest.mark.parametrize(
    "name",
    [
        *("_connect_attrs", "_encoding", "_next_seq_id", "_reader", "_server_auth_plugin", "_unix_socket", "_writer"),
        *("salt", "server_capabilities", "server_status", "server_thread_id", "server_version"),
    ],
)
def test_the_drivers_attributes_are_still_used_by_itself(name: str) -> None:
    assert f"self.{name} = " in inspect.getsource(aiomysql.connection)


def test_the_driver_closes_only_what_it_still_holds() -> None:
    assert "if self._writer:" in inspect.getsource(aiomysql.connection.Connection.__del__)


def test_the_driver_calls_what_we_put_in_its_place() -> None:
    source = inspect.getsource(aiomysql.connection)
    assert "await self._get_server_information()" in source
    assert "await self._request_authentication()" in source
    assert "await self._read_packet()" in source
    assert "if (self.server_status & SERVER_STATUS.SERVER_STATUS_NO_BACKSLASH_ESCAPES):" in " ".join(source.split())


async def test_the_driver_never_sees_the_password() -> None:
    config = ReplicaConfig.parse({"user": "u", "password": "marked-password"})
    connection = DriverConnection(config, Endpoint("db1", 3306))
    assert "marked-password" not in repr(vars(connection))
    assert connection._password == ""


async def test_asyncios_reader_holds_early_bytes_where_detach_looks_for_them() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(b"early")
    assert bytes(reader._buffer) == b"early"  # type: ignore[attr-defined]
