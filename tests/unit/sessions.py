"""A session over a real socket, against a scripted other end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from replica.errors import (
    ReplicaError,
)
from replica.protocol.gtid import Gtid
from tests.unit.relay.streams import Primary

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from replica.session import Session

    Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def play(session: Session, script: Script, leftover: bytes = b"") -> ReplicaError:
    """Connect the session to a scripted primary; the error that ended it."""
    server = await asyncio.start_server(script, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(asyncio.Protocol, host, port)
    transport.pause_reading()
    try:
        with pytest.raises(ReplicaError) as caught:
            await asyncio.wait_for(session.run(transport, leftover), 20)
        return caught.value
    finally:
        server.close()
        transport.abort()


def one_group(seq: int = 1) -> Primary:
    primary = Primary(seq=seq)
    primary.open_file()
    primary.transaction(Gtid(0, 1, seq))
    return primary


def sending(*pieces: bytes, then_close: bool = True) -> Script:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        if not then_close:
            await reader.read()
        writer.close()

    return script
