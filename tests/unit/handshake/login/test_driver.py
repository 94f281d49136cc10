"""What driver.py relies on in aiomysql, PyMySQL and asyncio: an update that changes it must fail here, by its name."""

from __future__ import annotations

import ast
import asyncio
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aiomysql
import pymysql
import pymysql.err
import pytest
from aiomysql.connection import Connection

from replica.handshake.login import driver
from replica.handshake.login.connection import DriverConnection
from replica.handshake.login.driver import Driver, unread
from replica.options.config import Endpoint, ReplicaConfig
from replica.protocol.packets.packets import pack

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CALLED_BY_IT: Final = {
    "_get_server_information": "the greeting would be read by the driver, with no limit of its size",
    "_request_authentication": "the driver would log in itself: without TLS where a server offers none",
    "_read_packet": "the reply to autocommit would be read with no limit of its size",
}
"""What we put in the place of the driver's own -> what would happen where it no longer calls that."""
USED_BY_US: Final = {
    "_connect": "open() would not connect",
    "_read_bytes": "receive() would not read",
    "_next_seq_id": "count_on() would have no effect, and servers refuse packets out of order",
    "_reader": "receive() would go on with the old end after TLS or compression begins",
    "_writer": "packets would go to the old end after TLS or compression begins; detach() would leave it to the driver",
    "_connect_attrs": "a login would not tell the server what it is",
}
"""What we call, read or set -> what would break without it."""
VERSIONS: Final = f"aiomysql {aiomysql.__version__}, PyMySQL {pymysql.__version__}"


def broken(name: str) -> str:
    what = {**CALLED_BY_IT, **USED_BY_US}[name]
    return f"{VERSIONS}: Connection.{name} is not what replica/handshake/login/driver.py takes it for: {what}"


class Scripted(Driver):
    """A connection that logs in without a word, and reads whole packets."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint, "repl")
        self.called: list[str] = []

    async def greeted(self, payload: bytes) -> None:
        self.called.append(f"greeted with {payload!r}")
        self.server_status = 0

    async def log_in(self) -> None:
        self.called.append("log_in")

    async def read_payload(self, longest: int = 0) -> bytes:  # noqa: ARG002
        header = await self.receive(4)
        self.called.append(f"packet {header[3]}")
        return await self.receive(int.from_bytes(header[:3], "little"))


@pytest.fixture
async def server() -> AsyncIterator[tuple[Endpoint, list[bytes]]]:
    """Greets, notes the first command, answers OK with autocommit off, notes what follows, and hangs up."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(pack(b"hello"))
        header = await reader.readexactly(4)
        heard.append(header + await reader.readexactly(int.from_bytes(header[:3], "little")))
        writer.write(pack(b"\x00\x00\x00\x02\x00\x00\x00", 1))
        heard.append(await reader.readexactly(9))
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield Endpoint("127.0.0.1", listening.sockets[0].getsockname()[1]), heard


async def test_open_goes_through_what_is_ours_and_sets_autocommit(server: tuple[Endpoint, list[bytes]]) -> None:
    endpoint, heard = server
    connection = Scripted(endpoint)
    await connection.open()
    assert connection.called[:2] == ["packet 0", "greeted with b'hello'"], broken("_get_server_information")
    assert connection.called[2:3] == ["log_in"], broken("_request_authentication")
    assert connection.called[3:] == ["packet 1"], broken("_read_packet")
    assert heard[0] == pack(b"\x03SET AUTOCOMMIT = 1"), broken("_next_seq_id")
    assert connection.server_status == 2
    connection.close()


async def test_a_packet_is_written_with_the_number_we_give_and_counted(server: tuple[Endpoint, list[bytes]]) -> None:
    endpoint, heard = server
    connection = Scripted(endpoint)
    await connection.open()
    connection.count_on(0x1FF)
    connection.write_packet(b"")
    connection.write_packet(b"x")
    await connection.writer.drain()
    with pytest.raises(pymysql.err.OperationalError, match="Lost connection") as lost:
        await connection.receive(1)
    assert lost.value.args[0] == 2013, broken("_read_bytes")
    assert heard[1] == b"\0\0\0\xff" + b"\x01\0\0\0x", broken("_next_seq_id")
    assert connection.closed
    assert connection.streams is None, broken("_writer")


async def test_the_driver_lets_go_of_streams_that_were_taken(server: tuple[Endpoint, list[bytes]]) -> None:
    endpoint, _ = server
    connection = Scripted(endpoint)
    await connection.open()
    assert connection.streams is not None
    reader, writer = connection.streams
    connection.streams = None
    assert connection.closed, broken("_writer")
    connection.__del__()
    connection.close()
    assert not writer.is_closing(), broken("_writer")
    connection.streams = reader, writer
    connection.close()
    assert writer.is_closing(), broken("_writer")


async def test_other_streams_are_used_once_they_are_set() -> None:
    connection = Scripted(Endpoint("db1", 3306))
    reader = asyncio.StreamReader()
    connection.streams = reader, None  # type: ignore[assignment]
    reader.feed_data(b"early")
    assert unread(reader) == b"early", "asyncio: StreamReader._buffer does not hold what has come"
    assert await connection.receive(5) == b"early", broken("_reader")


@pytest.mark.parametrize("name", [*CALLED_BY_IT, *USED_BY_US])
async def test_a_private_name_is_there(name: str) -> None:
    method = getattr(Connection, name, None)
    made = f"self.{name} = " in inspect.getsource(sys.modules[Connection.__module__])
    assert inspect.iscoroutinefunction(method) if method else made, broken(name)


async def test_a_login_says_what_it_is() -> None:
    connection = DriverConnection(ReplicaConfig.parse({"user": "u"}), Endpoint("db1", 3306))
    assert connection.attributes["program_name"] == "mariadb-replica", broken("_connect_attrs")


def test_values_are_escaped_by_the_status_of_the_server() -> None:
    source = " ".join(inspect.getsource(Connection.escape_string).split())
    assert "self.server_status & SERVER_STATUS.SERVER_STATUS_NO_BACKSLASH_ESCAPES" in source, VERSIONS


async def test_the_driver_never_sees_the_password() -> None:
    config = ReplicaConfig.parse({"user": "u", "password": "marked-password"})
    connection = DriverConnection(config, Endpoint("db1", 3306))
    assert "marked-password" not in repr(vars(connection))
    assert connection._password == ""


def _private(path: Path) -> set[str]:
    """The names with an underscore that a file takes of an object, or gives a method."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    names |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def test_the_list_is_complete() -> None:
    assert _private(Path(driver.__file__)) == {*CALLED_BY_IT, *USED_BY_US, "_buffer"}


@pytest.mark.parametrize("file", ["connection.py", "login.py"])
async def test_no_other_file_has_a_name_that_is_the_drivers(file: str) -> None:
    """A subclass that has one by chance would change the driver."""
    of_the_driver = {*dir(Connection), *vars(Connection())}
    assert not _private(Path(driver.__file__).with_name(file)) & of_the_driver
