"""Let a script be the primary at the other end of a session's socket, in a time of its own or over TCP."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import selectors
import socket
from typing import TYPE_CHECKING, ParamSpec

import pytest

from replica.errors import ReplicaError
from replica.protocol.gtid import Gtid
from tests.kit.binlog.primary import Primary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

    from replica.live.session import Session

    Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_Given = ParamSpec("_Given")

_TURN_S = 1e-6  # a timer that is due a rounding error from now would come for ever in a time that stands still


class _Selector(selectors.DefaultSelector):
    """Waits for no timer: where no socket is ready, the time until the next one has passed."""

    passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.passed_s += _TURN_S
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            ready = super().select(60)
            assert ready, "everybody waits for somebody else"
            return ready
        self.passed_s += timeout
        return ready


class _OwnTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._waiting = _Selector()
        super().__init__(self._waiting)

    def time(self) -> float:
        return self._waiting.passed_s


def in_own_time(test: Callable[_Given, Coroutine[None, None, None]]) -> Callable[_Given, None]:
    """Run a test in a loop whose clock goes on when nothing else can, at once: no machine is too slow for it.

    Exact for ends of `socket.socketpair` in that loop: what one sends is there for the other in the same moment.
    """

    @functools.wraps(test)
    def run(*args: _Given.args, **given: _Given.kwargs) -> None:
        with asyncio.Runner(loop_factory=_OwnTimeLoop) as runner:
            runner.run(test(*args, **given))

    return run


async def play(session: Session, script: Script, leftover: bytes = b"") -> ReplicaError:
    """Connect the session to a scripted primary; the error that ended it."""
    ours, theirs = socket.socketpair()
    playing = asyncio.ensure_future(_play(script, theirs))
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
    transport.pause_reading()
    try:
        with pytest.raises(ReplicaError) as caught:
            await session.run(transport, leftover)
        return caught.value
    finally:
        transport.abort()
        await playing


async def _play(script: Script, end: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=end)
    with contextlib.closing(writer), contextlib.suppress(ConnectionError):
        await script(reader, writer)


@contextlib.asynccontextmanager
async def listening(script: Script) -> AsyncIterator[asyncio.Transport]:
    """A connection over TCP to a scripted primary, for what only a network does: resets, and ends that are closed."""
    server = await asyncio.start_server(script, "127.0.0.1", 0)
    transport, _ = await asyncio.get_running_loop().create_connection(
        asyncio.Protocol, *server.sockets[0].getsockname()
    )
    transport.pause_reading()
    try:
        yield transport
    finally:
        transport.abort()
        server.close()


def one_group(seq: int = 1) -> Primary:
    primary = Primary(sequence=seq)
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
