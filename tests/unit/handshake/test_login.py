"""What login.py relies on in the driver, watched: an aiomysql that renames it must fail here, not in the field."""

from __future__ import annotations

import asyncio
import inspect
import ssl

import aiomysql.connection
import aiomysql.cursors
import pymysql.err
import pytest

from replica.config import Endpoint
from replica.errors import AuthenticationError, DisconnectedError, ReplicaError, ServerError
from replica.handshake.login import _translated

ENDPOINT = Endpoint("db1", 3306)


@pytest.mark.parametrize("name", ["_connect", "_get_server_information", "_process_auth", "_read_packet"])
def test_the_drivers_private_coroutines_exist(name: str) -> None:
    assert inspect.iscoroutinefunction(getattr(aiomysql.connection.Connection, name))


def test_the_drivers_cursor_asks_for_warnings_in_one_place() -> None:
    assert inspect.iscoroutinefunction(aiomysql.cursors.Cursor._show_warnings)


@pytest.mark.parametrize(
    "name", ["_next_seq_id", "_reader", "_secure", "_ssl_context", "_writer", "server_capabilities", "server_thread_id"]
)
def test_the_drivers_attributes_are_still_used_by_itself(name: str) -> None:
    assert f"self.{name} = " in inspect.getsource(aiomysql.connection)


def test_the_driver_closes_only_what_it_still_holds() -> None:
    assert "if self._writer:" in inspect.getsource(aiomysql.connection.Connection.__del__)


def translated(error: BaseException) -> ReplicaError:
    return _translated(error, ENDPOINT)


@pytest.mark.parametrize("code", [1045, 1227, 1130, 1698, 2059])
def test_refused_accounts_are_permanent(code: int) -> None:
    error = translated(pymysql.err.OperationalError(code, "Access denied"))
    assert isinstance(error, AuthenticationError)
    assert error.code == code
    assert "db1:3306" in str(error)


@pytest.mark.parametrize("code", [1040, 1053, 2003, 2013])
def test_busy_and_lost_servers_may_be_tried_again(code: int) -> None:
    assert isinstance(translated(pymysql.err.OperationalError(code, "gone")), DisconnectedError)


def test_socket_errors_may_be_tried_again() -> None:
    assert isinstance(translated(ConnectionResetError(104, "reset by peer")), DisconnectedError)


def test_other_errors_keep_the_servers_code() -> None:
    error = translated(pymysql.err.ProgrammingError(1064, "syntax"))
    assert type(error) is ServerError
    assert error.code == 1064


def test_an_untrusted_certificate_is_permanent() -> None:
    cause = ssl.SSLCertVerificationError(1, "certificate verify failed")
    cause.verify_message = "self-signed certificate"
    wrapped = pymysql.err.OperationalError(2003, "Can't connect")
    wrapped.__cause__ = cause
    error = translated(wrapped)
    assert isinstance(error, AuthenticationError)
    assert "self-signed" in error.message


async def test_asyncios_reader_holds_early_bytes_where_detach_looks_for_them() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(b"early")
    assert bytes(reader._buffer) == b"early"  # type: ignore[attr-defined]
